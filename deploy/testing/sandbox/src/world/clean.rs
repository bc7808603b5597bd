//! Removes what a world left: processes, mounts, loop devices, files. Touches nothing outside the
//! world's records and paths.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use super::state_dir;
pub use super::state_dir::abandoned_state_dirs;
use crate::binaries::Binaries;
use crate::mount_table;
use crate::process_table::{self, Identity};

/// The counts of removed objects, and the failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// The number of processes that were killed.
    pub processes: usize,
    /// The number of mounts that were removed.
    pub mounts: usize,
    /// The number of loop devices that were cleared.
    pub loops: usize,
    /// What could not be removed, and why.
    pub problems: Vec<String>,
}

impl fmt::Display for Cleaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes, {} mounts, {} loop devices removed",
            self.processes, self.mounts, self.loops
        )?;
        for problem in &self.problems {
            write!(f, "; {problem}")?;
        }
        Ok(())
    }
}

/// Ends the world of `state_dir` by force. Repeating the call is harmless.
pub fn clean(state_dir: &Path, binaries: &Binaries) -> Cleaned {
    let mut cleaned = Cleaned { processes: end_processes(state_dir), ..Cleaned::default() };
    remove_mounts(state_dir, &mut cleaned);
    // The simulator knows its own devices; the remaining ones have a backing file in this
    // directory.
    if let Ok(simulator) = binaries.path("ec2-sim") {
        let _ = Command::new(simulator)
            .args(["clean", "--state-dir"])
            .arg(state_dir.join("ec2"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    for device in loops_of(state_dir) {
        let ended =
            Command::new("losetup").arg("--detach").arg(&device).stdin(Stdio::null()).status();
        if ended.as_ref().is_ok_and(ExitStatus::success) {
            cleaned.loops += 1;
        } else {
            let problem = format!("losetup --detach {} ended with {ended:?}", device.display());
            cleaned.problems.push(problem);
        }
    }
    if mount_table::beneath(state_dir).is_ok_and(|left| left.is_empty())
        && let Err(e) = fs::remove_dir_all(state_dir)
        && state_dir.exists()
    {
        cleaned.problems.push(format!("removing {}: {e}", state_dir.display()));
    }
    cleaned
}

fn live_processes(state_dir: &Path) -> Vec<Identity> {
    let mut roots = state_dir::recorded(state_dir);
    roots.extend(process_table::inside(state_dir));
    process_table::process_tree(&roots)
}

fn end_processes(state_dir: &Path) -> usize {
    let ours = i32::try_from(std::process::id()).ok();
    let mut ended = std::collections::HashSet::new();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let mut living = live_processes(state_dir);
        living.retain(|identity| Some(identity.pid) != ours);
        if living.is_empty() || Instant::now() > until {
            return ended.len();
        }
        for identity in living {
            ended.insert(identity);
            let _ = identity.signal(Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove_mounts(state_dir: &Path, cleaned: &mut Cleaned) {
    let mounts = match mount_table::beneath(state_dir) {
        Ok(mounts) => mounts,
        Err(e) => {
            cleaned.problems.push(format!("reading the mount table: {e}"));
            return;
        }
    };
    for mount in mounts {
        let removed = unmount(&mount.point, UnmountFlags::NOFOLLOW)
            .or_else(|_| unmount(&mount.point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH));
        match removed {
            Ok(()) => cleaned.mounts += 1,
            // The mount disappeared with another member of its peer group.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(e) => cleaned.problems.push(format!("unmounting {}: {e}", mount.point.display())),
        }
    }
}

/// Returns the loop devices whose backing file lies beneath `directory`.
pub(crate) fn loops_of(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| Path::new(file.trim_end()).starts_with(directory))
        })
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}

/// Returns one sentence for each thing of a world that still exists.
pub fn leftovers(state_dir: &Path) -> Vec<String> {
    let mut found: Vec<String> = live_processes(state_dir)
        .into_iter()
        .map(|Identity { pid, .. }| {
            format!("process {pid} ({})", process_table::name(pid).unwrap_or_default())
        })
        .collect();
    let mounts = mount_table::beneath(state_dir).unwrap_or_default();
    found.extend(mounts.iter().map(|mount| format!("mount {}", mount.point.display())));
    let loops = loops_of(state_dir);
    found.extend(loops.iter().map(|device| format!("loop device {}", device.display())));
    if state_dir.exists() {
        found.push(format!("directory {}", state_dir.display()));
    }
    found
}
