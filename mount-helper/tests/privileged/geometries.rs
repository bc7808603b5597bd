//! Each tool of the policy, confined as in production, on file systems as users have them: sizes,
//! groups, blocks, sectors, features, and formats of older tools. By default a few of them;
//! `GEOMETRIES=all` tries each, which takes some 20 minutes.
mod rows;
mod space;

use crate::rig::{
    Attached, LONG, Repeated, Rig, children, done, grows_mounted, role, staged, staging, status,
    volume, write_synced,
};
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::{FsType, Operation, Origin, Outcome, Stage, VolumeId};
use rows::{Geometry, Make};
use space::{Image, Space};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Cell {
    step: &'static str,
    /// Each tool that ran with its end, as the journal reports it.
    tools: Vec<(String, String)>,
    outcome: String,
    seconds: f64,
    good: bool,
}

/// The table's line for one geometry.
struct Line {
    cells: Vec<Cell>,
    most: Most,
}

#[test]
fn every_tool_works_on_common_file_system_geometries() {
    let all = std::env::var("GEOMETRIES").is_ok_and(|which| which == "all");
    let only = std::env::var("GEOMETRY").ok();
    let Some(rig) = Rig::start() else { return };
    let space = Space::new(&rig, all);
    let mut tried = BTreeSet::new();
    let mut bad = Vec::new();
    for geometry in rows::all() {
        let wanted = only
            .as_ref()
            .map_or(all || geometry.slice, |only| geometry.name.contains(only.as_str()));
        if !wanted {
            continue;
        }
        let name = format!("{} {}", geometry.fs, geometry.name);
        match survey(&rig, &space, &geometry) {
            Ok(line) => {
                println!("{}", line.text(&name));
                let ran = line.cells.iter().flat_map(|cell| &cell.tools);
                tried.extend(ran.map(|(tool, _)| tool.clone()));
                if line.cells.iter().any(|cell| !cell.good) {
                    bad.push(name);
                }
            }
            Err(why) => println!("geometry | {name} | not made here: {why}"),
        }
    }
    if only.is_none() {
        // The tool that only an unfinished growth needs runs in `attacks/upkeep/growth.rs`, and
        // resize2fs only where the kernel may not grow what is mounted.
        let cut_short = ToolId::E2fsckAll.as_str();
        let unmounted = grows_mounted().then(|| ToolId::Resize2fs.as_str());
        let tools = ebs_csi_policy::tool::TOOLS.iter().map(|tool| tool.key);
        let tools = tools.filter(|key| *key != cut_short && Some(*key) != unmounted);
        let missing: Vec<_> = tools.filter(|key| !tried.contains(*key)).collect();
        assert!(missing.is_empty(), "never ran: {missing:?}");
    }
    assert!(bad.is_empty(), "{bad:#?}\n{}", rig.journal());
}

impl Line {
    fn text(&self, name: &str) -> String {
        let cell = |Cell { step, tools, outcome, seconds, .. }: &Cell| {
            let tools: Vec<_> = tools.iter().map(|(tool, end)| format!("{tool} {end}")).collect();
            format!("{step} {seconds:.1} s [{}] {outcome}", tools.join(", "))
        };
        let cells: Vec<_> = self.cells.iter().map(cell).collect();
        format!("geometry | {name} | {} | {}", cells.join("; "), self.most)
    }
}

/// Makes the file system, and has the helper perform each step that it performs on disks. An error
/// says why the file system could not be made.
fn survey(rig: &Rig, space: &Space, geometry: &Geometry) -> Result<Line, String> {
    let volume = volume();
    let image = space.disk(&volume, geometry.bytes)?;
    let mut line = Line { cells: Vec::new(), most: Most::default() };
    let mut attached = rig.attach_sectors(image.path(), geometry.sector);
    if let Make::ByHand(program, arguments) = &geometry.make {
        by_hand(program, arguments, &attached)?;
    }
    let plain = Stage { format: geometry.format(), ..rig.stage_request(&volume, geometry.fs) };
    let with = |origin: Origin, read_only: bool| {
        let mut request = plain.clone();
        request.disk.origin = origin;
        request.read_only = read_only;
        request
    };
    let mut step = |name: &'static str, request: &Stage, attached: &Attached, files: u32| {
        let cell = tried(rig, name, request, attached, &mut line.most);
        if cell.good && cell.outcome == "staged" {
            fill(rig, &volume, files);
            done(rig.unstage(&volume));
        }
        line.cells.push(cell);
    };
    if matches!(geometry.make, Make::ByHelper(_)) {
        step("format", &with(Origin::Blank, false), &attached, 0);
        // The file system carries this volume's identifier; it is examined only when it carries
        // another one.
        new_identifier(geometry.fs, &attached);
    }
    step("examine", &with(Origin::Copy, false), &attached, geometry.files);
    if geometry.fs != FsType::Xfs {
        by_hand("debugfs", "-w -R @", &attached)?;
        step("check", &with(Origin::Blank, false), &attached, 0);
    }
    // A new attachment, about which the helper knows nothing.
    drop(attached);
    attached = rig.attach_sectors(image.path(), geometry.sector);
    step("examine full", &with(Origin::Copy, false), &attached, 0);
    drop(attached);
    attached = rig.attach_sectors(image.path(), geometry.sector);
    step("look", &with(Origin::Copy, true), &attached, 0);
    attached.resize(geometry.bytes / 4 / 4096 * 4096 * 5);
    step("grow", &with(Origin::Blank, false), &attached, 0);
    if line.cells.iter().all(|cell| cell.outcome == "staged") {
        for read_only in [false, true] {
            let crashed = Crashed { fs: geometry.fs, sector: geometry.sector, read_only };
            line.cells.push(crashed.tried(rig, &plain, &attached, &mut line.most));
        }
    }
    Ok(line)
}

/// Performs one stage, and records the tools that ran for it.
fn tried(
    rig: &Rig,
    step: &'static str,
    request: &Stage,
    attached: &Attached,
    most: &mut Most,
) -> Cell {
    let before = rig.journal().lines().count();
    let began = Instant::now();
    let watch = watch(rig.pid());
    let outcome = loop {
        match rig.call(Operation::Stage(request.clone())) {
            Outcome::Pending => assert!(began.elapsed() < LONG * 30, "{step} never ends"),
            other => break other,
        }
    };
    most.join(watch.end());
    let seconds = began.elapsed().as_secs_f64();
    let journal = rig.journal();
    let tools: Vec<_> = journal
        .lines()
        .skip(before)
        .filter(|line| line.contains(" broker tool "))
        .map(|line| {
            let field = |name: &str| {
                let rest = line.split(&format!(" {name}=")).nth(1).unwrap_or_default();
                rest.split(' ').next().unwrap_or_default().to_owned()
            };
            let bad = if line.contains(" error ") { " BAD" } else { "" };
            (field("tool"), field("end") + bad)
        })
        .collect();
    let tools_good = tools.iter().all(|(_, end)| !end.ends_with("BAD"));
    let (outcome, good) = match outcome {
        Outcome::Staged(_) => ("staged".to_owned(), true),
        // A file system that this kernel cannot mount counts as good here.
        other if tools_good && !mounts_by_hand(request, attached) => {
            (format!("not mounted by this kernel ({other:?})"), true)
        }
        other => (format!("{other:?}"), false),
    };
    Cell { step, tools, outcome, seconds, good: good && tools_good }
}

/// A disk as it is when its node loses power after files were synced.
struct Crashed {
    fs: FsType,
    sector: u32,
    read_only: bool,
}

impl Crashed {
    /// More than the area for fast commits has blocks.
    const FILES: usize = 150;

    /// Stages a copy of the disk, taken while its file system was in use. A cell is good when each
    /// synced file shows.
    fn tried(&self, rig: &Rig, plain: &Stage, disk: &Attached, most: &mut Most) -> Cell {
        let file = |root: &Path, n: usize| root.join(format!("synced-{}-{n}", self.read_only));
        staged(rig.call(Operation::Stage(plain.clone())));
        let root = rig.staged_root(&plain.disk.volume);
        rig.open_in_container(&staging(&plain.disk.volume));
        for n in 0..Self::FILES {
            write_synced(&file(&root, n), "kept");
        }
        let volume = volume();
        let image = Image::copy(&disk.image, &volume);
        done(rig.unstage(&plain.disk.volume));
        let copy = rig.attach_sectors(image.path(), self.sector);
        let mut request =
            Stage { read_only: self.read_only, ..rig.stage_request(&volume, self.fs) };
        request.disk.origin = Origin::Copy;
        let step = if self.read_only { "crash, read" } else { "crash" };
        let mut cell = tried(rig, step, &request, &copy, most);
        if cell.outcome == "staged" {
            let root = rig.staged_root(&volume);
            let shown = (0..Self::FILES).filter(|n| file(&root, *n).exists()).count();
            cell.outcome = format!("staged, {shown} of {} files", Self::FILES);
            cell.good &= shown == Self::FILES;
            done(rig.unstage(&volume));
        }
        cell
    }
}

fn mounts_by_hand(request: &Stage, attached: &Attached) -> bool {
    let place = tempfile::tempdir().expect("tempdir");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        output.expect(program).status.success()
    };
    let directory = place.path().to_str().expect("utf-8");
    let mode = if request.read_only { "ro" } else { "rw" };
    let mounted =
        run("mount", &["-t", request.fs.as_str(), "-o", mode, &attached.path(), directory]);
    if mounted {
        assert!(run("umount", &[directory]));
    }
    mounted
}

/// Runs a program on the disk, unconfined; `@` stands for the command that marks the file system as
/// not unmounted.
fn by_hand(program: &str, arguments: &str, attached: &Attached) -> Result<(), String> {
    let words = arguments.split_whitespace();
    let output = Command::new(program)
        .args(words.map(|word| if word == "@" { "ssv state 0" } else { word }))
        .arg(attached.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(said.lines().next().unwrap_or_default().to_owned())
}

/// Gives the file system a new identifier, so that it looks like another volume's. A file system
/// whose identifier cannot be changed is mounted unchecked, and the result shows that.
fn new_identifier(fs: FsType, attached: &Attached) {
    let result = match fs {
        FsType::Xfs => by_hand("xfs_admin", "-U generate", attached),
        FsType::Ext3 | FsType::Ext4 => by_hand("tune2fs", "-f -U random", attached),
    };
    if let Err(why) = result {
        println!("the identifier stays: {why}");
    }
}

/// Writes directories with files, some of them large and sparse, some with long names.
fn fill(rig: &Rig, volume: &VolumeId, files: u32) {
    if files == 0 {
        return;
    }
    let root = rig.staged_root(volume);
    for number in 0..files {
        let directory = root.join(format!("directory-{}", number / 100));
        // A full disk serves as well.
        let made = fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(format!("a-longer-name-{number}")), "text"));
        if made.is_err() {
            break;
        }
    }
    let large = fs::File::create(root.join("large"));
    let _ = large.and_then(|file| file.set_len(1 << 30));
}

/// The maximum of each resource over all tools that were seen. A tool that ended at once was not
/// seen.
#[derive(Debug, Default, Clone, Copy)]
struct Most {
    address_space: u64,
    data: u64,
    resident: u64,
    threads: u64,
}

impl Most {
    fn join(&mut self, other: Self) {
        self.address_space = self.address_space.max(other.address_space);
        self.data = self.data.max(other.data);
        self.resident = self.resident.max(other.resident);
        self.threads = self.threads.max(other.threads);
    }

    fn of(pid: u32) -> Self {
        let number = |field: &str| {
            let text = status(pid, field);
            let first = text.split_whitespace().next().unwrap_or_default();
            first.parse().unwrap_or(0)
        };
        Self {
            address_space: number("VmPeak"),
            data: number("VmData"),
            resident: number("VmHWM"),
            threads: number("Threads"),
        }
    }
}

impl fmt::Display for Most {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| kib.div_ceil(1024);
        write!(
            f,
            "address space {} MiB, data {} MiB, resident {} MiB, threads {}",
            mib(self.address_space),
            mib(self.data),
            mib(self.resident),
            self.threads
        )
    }
}

/// Watches the tools of the runners of a supervisor.
fn watch(supervisor: u32) -> Repeated<Most> {
    Repeated::start(Most::default(), Duration::from_millis(5), move |most| {
        let runners = children(supervisor).into_iter().filter(|pid| role(*pid) == "runner");
        runners.flat_map(children).for_each(|tool| most.join(Most::of(tool)));
    })
}
