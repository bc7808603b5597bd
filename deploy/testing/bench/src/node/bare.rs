//! The lower bound of the node's figures: the same loop device, formatted and mounted by bare
//! system calls and programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::tool::{Arguments, DISK, ToolId};
use ebs_csi_wire::FsType;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::thread::{CapabilitySet, capabilities};

/// A loop device over a sparse file, outside the simulator; cleared when dropped.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    node: PathBuf,
    file: PathBuf,
    point: PathBuf,
    target: PathBuf,
}

/// The identifier does not matter, because nothing looks this file system up.
const UUID: [u8; 16] = *b"bare loop device";

/// strerror(3) of EBUSY.
const BUSY: &str = "Device or resource busy";

/// Makes the block device at `node` read as zeros again, like a new one.
pub(crate) fn blank(node: &Path) -> io::Result<()> {
    run(Command::new("blkdiscard").arg("--force").arg(node)).map(drop)
}

/// Changes the size of the loop device at `node`, and of its file.
pub(crate) fn resize(node: &Path, bytes: u64) -> io::Result<()> {
    let name = node.file_name().unwrap_or_default();
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let file = std::fs::read_to_string(file)?;
    std::fs::File::options().write(true).open(file.trim_end())?.set_len(bytes)?;
    run(Command::new("losetup").arg("--set-capacity").arg(node)).map(drop)
}

/// Returns the time of the program that makes a `kind` at `node`, with the helper's arguments but
/// another identifier than that of any volume.
pub(crate) fn format(node: &Path, kind: FsType) -> io::Result<Duration> {
    run_tool(ToolId::formats(kind), node, kind)
}

/// Returns whether this process may grow a mounted ext file system, which CAP_SYS_RESOURCE allows.
pub(crate) fn grows_ext_mounted() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE))
}

fn run_tool(id: ToolId, node: &Path, kind: FsType) -> io::Result<Duration> {
    let options = FormatOptions::default();
    let tool = id.tool().ok_or_else(|| io::Error::other(format!("no tool is called {id:?}")))?;
    let line = tool.command_line(&Arguments { fs: kind, format: &options, uuid: UUID });
    let (program, arguments) =
        line.split_first().ok_or_else(|| io::Error::other("an empty command line"))?;
    let disk = node.to_string_lossy();
    let arguments = arguments.iter().map(|argument| match argument.as_str() {
        DISK => disk.as_ref(),
        other => other,
    });
    let mut command = Command::new(program);
    command.args(arguments);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let began = Instant::now();
        match run(&mut command) {
            // A process that lost the race for a free loop device claims it for a moment:
            // drivers/block/loop.c, loop_configure.
            Err(e) if e.to_string().contains(BUSY) && Instant::now() < deadline => {}
            result => return result.map(|_| began.elapsed()),
        }
    }
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(io::Error::other(format!(
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn timed(step: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let began = Instant::now();
    step()?;
    Ok(began.elapsed())
}

impl LoopDevice {
    /// Makes a device of `bytes` bytes with 512-byte sectors and direct I/O, as the simulator does,
    /// with its files in `directory`.
    pub(crate) fn make(directory: &Path, name: &str, bytes: u64) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let file = directory.join(format!("{name}.img"));
        std::fs::File::create(&file)?.set_len(bytes)?;
        let point = directory.join(format!("{name}.mnt"));
        std::fs::create_dir_all(&point)?;
        let losetup = |direct: &str| {
            run(Command::new("losetup")
                .args(["--find", "--show", "--sector-size", "512", direct])
                .arg(&file))
        };
        // Not every file system that holds the file supports direct I/O.
        let node = losetup("--direct-io=on").or_else(|_| losetup("--direct-io=off"))?;
        Ok(Self {
            node: PathBuf::from(node),
            file,
            point,
            target: directory.join(format!("{name}.target")),
        })
    }

    pub(crate) fn node(&self) -> &Path {
        &self.node
    }

    /// Returns the time of the program that checks a `kind` of unknown origin in full, with the
    /// helper's arguments.
    pub(crate) fn check(&self, kind: FsType) -> io::Result<Duration> {
        let xfs = kind == FsType::Xfs;
        run_tool(if xfs { ToolId::XfsRepair } else { ToolId::E2fsckFull }, &self.node, kind)
    }

    /// Returns the time to mount a `kind` that is smaller than the device, and to grow it: mounted
    /// where the kernel allows that ([`grows_ext_mounted`]), otherwise checked and grown before.
    pub(crate) fn mount_and_grow(&self, kind: FsType) -> io::Result<Duration> {
        let grow = |program, what| timed(|| run(Command::new(program).arg(what)).map(drop));
        match kind {
            FsType::Xfs => Ok(self.mount(kind)? + grow("xfs_growfs", &self.point)?),
            _ if grows_ext_mounted() => Ok(self.mount(kind)? + grow("resize2fs", &self.node)?),
            _ => Ok(self.check(kind)? + grow("resize2fs", &self.node)? + self.mount(kind)?),
        }
    }

    /// Returns the time of mount(2) alone.
    pub(crate) fn mount(&self, kind: FsType) -> io::Result<Duration> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        // As the driver does: the file system of another device may have the same identifier.
        let data = (kind == FsType::Xfs).then_some(c"nouuid");
        timed(|| Ok(mount(&self.node, &self.point, kind.as_str(), flags, data)?))
    }

    /// Returns the time to make a target directory and to bind the mounted file system there.
    pub(crate) fn bind(&self) -> io::Result<Duration> {
        timed(|| {
            std::fs::create_dir(&self.target)?;
            Ok(mount_bind(&self.point, &self.target)?)
        })
    }

    /// Returns the time to undo [`bind`](Self::bind).
    pub(crate) fn unbind(&self) -> io::Result<Duration> {
        timed(|| {
            unmount(&self.target, UnmountFlags::NOFOLLOW)?;
            std::fs::remove_dir(&self.target)
        })
    }

    /// Returns the time of statvfs(3) on the mounted file system.
    pub(crate) fn space(&self) -> io::Result<Duration> {
        timed(|| Ok(rustix::fs::statvfs(&self.point).map(drop)?))
    }

    /// Returns the time of umount2(2).
    pub(crate) fn unmount(&self) -> io::Result<Duration> {
        timed(|| Ok(unmount(&self.point, UnmountFlags::NOFOLLOW)?))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.unbind();
        let _ = self.unmount();
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.node));
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_dir(&self.point);
    }
}
