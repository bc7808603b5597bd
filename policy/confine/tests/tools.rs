//! Each tool of the policy works on a real block device under the policy's confinement.
//!
//! A child of this program enters the supervisor's profile, then the tool's, and becomes the tool.
//! The tool opens the device by name here, so its Landlock domain has a rule for the device. The
//! helper needs no such rule.

mod harness;

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use ebs_csi_confine::{Enforced, Entering, Fault, Places, tool};
use ebs_csi_policy::format_option::{FormatError, FormatOptions, ROWS};
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::SUPERVISOR;
use ebs_csi_policy::tool::{Arguments, DISK, Meaning, ToolId};
use ebs_csi_wire::FsType;
use harness::TestResult;
use rustix::fs::{FileType, Mode, mknodat};

const MIB: u64 = 1 << 20;
/// Exit status of a child that did not become the tool.
const NOT_STARTED: u8 = 250;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, number, device, line @ ..] = arguments.as_slice()
        && flag == "--child"
    {
        return become_tool(number, device, line);
    }
    if let [_, flag, number] = arguments.as_slice()
        && flag == "--filters"
    {
        let counted = count_filters(number);
        counted.map_or_else(|problem| println!("{problem}"), |count| println!("{count}"));
        return ExitCode::SUCCESS;
    }
    if let Some(missing) = ["/sbin/losetup", "/usr/sbin/mke2fs", "/usr/sbin/mkfs.xfs"]
        .iter()
        .find(|path| !Path::new(path).exists())
    {
        println!("skipped: {missing} is not installed");
        return ExitCode::SUCCESS;
    }
    type Case = fn() -> TestResult;
    let cases: [(&str, Case); 6] = [
        ("ext4_is_made_checked_and_grown", || ext(FsType::Ext4)),
        ("ext3_is_made_checked_and_grown", || ext(FsType::Ext3)),
        ("ext4_is_made_with_every_option", ext4_options),
        ("xfs_is_made_and_checked", xfs),
        ("xfs_of_many_groups_is_checked", xfs_of_many_groups),
        ("each_tool_gets_its_own_filters", own_filters),
    ];
    harness::run(cases)
}

fn ext(fs: FsType) -> TestResult {
    let disk = Disk::new(64 * MIB)?;
    let plain = FormatOptions::default();
    disk.run(ToolId::Mke2fs, fs, &plain, Some(Meaning::Done))?;
    disk.run(ToolId::E2fsck, fs, &plain, Some(Meaning::Clean))?;
    disk.run(ToolId::E2fsckLook, fs, &plain, Some(Meaning::Clean))?;
    disk.grow(96 * MIB)?;
    disk.run(ToolId::E2fsckFull, fs, &plain, Some(Meaning::Clean))?;
    disk.run(ToolId::Resize2fs, fs, &plain, Some(Meaning::Done))?;
    disk.run(ToolId::E2fsckFull, fs, &plain, Some(Meaning::Clean))?;
    disk.run(ToolId::E2fsckAll, fs, &plain, Some(Meaning::Clean))?;
    if fs == FsType::Ext3 {
        // The state "errors" makes the checker run, and the checker finds nothing. (An ext4
        // superblock has a checksum.)
        disk.damage(1024 + 58, &[2])?;
        disk.run(ToolId::E2fsck, fs, &plain, Some(Meaning::Repaired))?;
        // An invalid superblock is neither clean nor repaired.
        disk.damage(1024, &[0xff; 16])?;
        disk.run(ToolId::E2fsck, fs, &plain, None)?;
    }
    disk.run(ToolId::XfsRepair, FsType::Xfs, &plain, Some(Meaning::Uncorrectable))
        .map_err(|problem| format!("a check for XFS where there is none: {problem}").into())
}

/// Returns the examples of all options that the file system has.
fn every_option(fs: FsType) -> Result<FormatOptions, FormatError> {
    let rows = ROWS.iter().filter(|row| row.on(fs).is_some());
    FormatOptions::check(&rows.map(|row| row.with(row.example)).collect::<Vec<_>>(), fs)
}

fn ext4_options() -> TestResult {
    let disk = Disk::new(64 * MIB)?;
    let options = every_option(FsType::Ext4)?;
    disk.run(ToolId::Mke2fs, FsType::Ext4, &options, Some(Meaning::Done))?;
    disk.run(ToolId::E2fsckFull, FsType::Ext4, &options, Some(Meaning::Clean))
}

fn xfs() -> TestResult {
    let disk = Disk::new(320 * MIB)?;
    let options = every_option(FsType::Xfs)?;
    disk.run(ToolId::MkfsXfs, FsType::Xfs, &options, Some(Meaning::Done))?;
    disk.run(ToolId::XfsRepair, FsType::Xfs, &options, Some(Meaning::Clean))?;
    disk.run(ToolId::MkfsXfs, FsType::Xfs, &FormatOptions::default(), Some(Meaning::Done))?;
    disk.run(ToolId::E2fsck, FsType::Ext4, &options, None)
}

/// With 32 groups or more the checker sets a timer.
fn xfs_of_many_groups() -> TestResult {
    for (groups, id) in [(32, ToolId::XfsRepair), (96, ToolId::XfsRepairMany)] {
        let disk = Disk::new(groups * 128 * MIB)?;
        let made = Command::new("/usr/sbin/mkfs.xfs")
            .args(["-q", "-d", &format!("agcount={groups}"), &disk.device])
            .status()?;
        if !made.success() {
            return Err(format!("mkfs.xfs: {made}").into());
        }
        disk.run(id, FsType::Xfs, &FormatOptions::default(), Some(Meaning::Clean))?;
    }
    Ok(())
}

/// The kernel counts one filter more for a tool that is answered instead of executed.
fn own_filters() -> TestResult {
    let mut added = Vec::new();
    for id in ToolId::ALL {
        let tool = id.tool().ok_or("no such tool")?;
        let output = Command::new(std::env::current_exe()?)
            .args(["--filters", &id.number().to_string()])
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8(output.stdout)?;
        let count: u32 = said.trim().parse().map_err(|_| said)?;
        added.push(count - u32::from(!tool.pretended.is_empty()));
    }
    let same = added.windows(2).all(|two| two[0] == two[1]);
    if same && added[0] > 1 { Ok(()) } else { Err(format!("{added:?}").into()) }
}

/// Returns how many filters this process gets as a tool, beside those of its runner.
fn count_filters(number: &str) -> Result<u32, Box<dyn Error>> {
    let status = File::open("/proc/self/status")?;
    let id = tool_of(number)?;
    let of_runner = enter_supervisor()?.status.seccomp_filters.ok_or("the kernel does not say")?;
    tool::Filters::compile()?.install(id)?;
    let mut text = Vec::new();
    // Without a limit, the library would ask for the length of the file.
    status.take(1 << 16).read_to_end(&mut text)?;
    let all = Status::parse(&text)?.seccomp_filters.ok_or("the kernel does not say")?;
    Ok(all - of_runner)
}

/// A loop device with a device node of its own that any user may open.
struct Disk {
    folder: tempfile::TempDir,
    device: String,
}

impl Disk {
    fn new(size: u64) -> Result<Self, Box<dyn Error>> {
        let mut disk = Self { folder: tempfile::tempdir()?, device: String::new() };
        fs::set_permissions(disk.folder.path(), fs::Permissions::from_mode(0o755))?;
        File::create(disk.image()).and_then(|file| file.set_len(size))?;
        let output = losetup(&["--find", "--show"], &disk.image())?;
        disk.device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let node = fs::metadata(&disk.device)?.rdev();
        let mode = Mode::from_raw_mode(0o666);
        mknodat(rustix::fs::CWD, disk.node(), FileType::BlockDevice, mode, node)?;
        fs::set_permissions(disk.node(), fs::Permissions::from_mode(0o666))?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn node(&self) -> PathBuf {
        // Beneath /dev, where the supervisor's domain permits a tool to open its disk.
        Path::new("/dev").join(format!("ebs-csi-tools-{}", std::process::id()))
    }

    fn grow(&self, size: u64) -> TestResult {
        File::options().write(true).open(self.image())?.set_len(size)?;
        losetup(&["--set-capacity"], Path::new(&self.device))?;
        Ok(())
    }

    fn damage(&self, at: u64, bytes: &[u8]) -> TestResult {
        use std::os::unix::fs::FileExt;
        let file = File::options().write(true).open(&self.device)?;
        file.write_all_at(bytes, at)?;
        Ok(file.sync_all()?)
    }

    fn run(
        &self,
        id: ToolId,
        fs: FsType,
        format: &FormatOptions,
        expected: Option<Meaning>,
    ) -> TestResult {
        let tool = id.tool().ok_or("no such tool")?;
        let node = self.node();
        let line = tool.command_line(&Arguments { fs, format, uuid: *b"0123456789abcdef" });
        let line = line
            .iter()
            .map(|word| if word == DISK { node.display().to_string() } else { word.clone() });
        let output = Command::new(std::env::current_exe()?)
            .arg("--child")
            .arg(id.number().to_string())
            .arg(&node)
            .args(line)
            .stdin(Stdio::null())
            .output()?;
        let said = format!(
            "{} {} {}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if output.status.signal().is_some() || output.status.code() == Some(NOT_STARTED.into()) {
            return Err(format!("{}: {said}", id.as_str()).into());
        }
        let status = output.status.code().and_then(|code| u8::try_from(code).ok());
        let found = status.and_then(|status| tool.meaning(status));
        if found != expected {
            let differs = format!("{}: expected {expected:?}, found {found:?}", id.as_str());
            return Err(format!("{differs}: {said}").into());
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            let _ = losetup(&["--detach"], Path::new(&self.device));
        }
        let _ = fs::remove_file(self.node());
    }
}

fn losetup(arguments: &[&str], last: &Path) -> io::Result<Output> {
    let output = Command::new("/sbin/losetup").args(arguments).arg(last).output()?;
    if output.status.success() {
        Ok(output)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

fn become_tool(number: &str, device: &str, line: &[String]) -> ExitCode {
    let problem = match (confine(number, device), line) {
        (Ok(()), [program, arguments @ ..]) => {
            Command::new(program).args(arguments).env_clear().env("LC_ALL", "C").exec().to_string()
        }
        (confined, _) => format!("{confined:?}, command line {line:?}"),
    };
    println!("{problem}");
    ExitCode::from(NOT_STARTED)
}

fn confine(number: &str, device: &str) -> Result<(), Fault> {
    let id = tool_of(number)?;
    let held = Places::new().with("device", device)?;
    enter_supervisor()?;
    tool::restrict(id, held, false)?;
    tool::Filters::compile()?.install(id)
}

fn tool_of(number: &str) -> Result<ToolId, Fault> {
    let id = number.parse().ok().and_then(ToolId::from_number);
    id.ok_or(Fault::UnknownTool("of that number"))
}

fn enter_supervisor() -> Result<Enforced, Fault> {
    let places = tool::programs(Places::new())?;
    Entering::begin(SUPERVISOR)?.identity()?.files(&places)?.calls()
}
