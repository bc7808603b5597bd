//! The process table in `/proc` (proc_pid_stat(5)).

use std::collections::HashSet;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::mount_table;

/// A process, distinguishable from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks between the boot of the machine and the start of the process.
    pub(crate) started: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEntry {
    pub(crate) identity: Identity,
    pub(crate) parent: i32,
    pub(crate) state: char,
}

impl ProcessEntry {
    fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn row(pid: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessEntry { identity: Identity { pid, started }, parent, state })
}

pub(crate) fn all() -> Vec<ProcessEntry> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| row(entry.file_name().to_str()?.parse().ok()?)).collect()
}

impl Identity {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        row(pid).map(|row| row.identity)
    }

    pub(crate) fn alive(self) -> bool {
        row(self.pid).is_some_and(|row| row.identity == self && row.runs())
    }

    /// Returns the state letter, while the process exists.
    pub(crate) fn state(self) -> Option<char> {
        row(self.pid).filter(|row| row.identity == self).map(|row| row.state)
    }

    /// Sends a signal, if the id still belongs to the same process.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        match (self.alive(), Pid::from_raw(self.pid)) {
            (true, Some(pid)) => match kill_process(pid, signal) {
                // The process has ended since the check.
                Err(Errno::SRCH) => Ok(()),
                sent => Ok(sent?),
            },
            _ => Ok(()),
        }
    }
}

/// Returns `roots` and all their descendants, parents first.
pub(crate) fn process_tree(roots: &[Identity]) -> Vec<Identity> {
    let table = all();
    let mut found: Vec<Identity> = roots.iter().copied().filter(|root| root.alive()).collect();
    let mut known: HashSet<i32> = found.iter().map(|identity| identity.pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for row in &table {
            if row.parent == parent.pid && known.insert(row.identity.pid) {
                found.push(row.identity);
            }
        }
    }
    found
}

/// Returns the processes whose `/dev` is a directory of the state directory `state_dir`: those
/// inside a simulated node, including orphans.
pub(crate) fn inside(state_dir: &Path) -> Vec<Identity> {
    let Some(name) = state_dir.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let part = format!("/{name}/");
    let ours = std::process::id();
    let others = all()
        .into_iter()
        .filter(|row| row.runs() && u32::try_from(row.identity.pid) != Ok(ours))
        .map(|row| row.identity);
    let is_inside = |identity: &Identity| {
        let mounts = mount_table::of(&identity.pid.to_string()).unwrap_or_default();
        let mut devices = mounts.iter().filter(|mount| mount.point == Path::new("/dev"));
        devices.any(|mount| mount.root.to_string_lossy().contains(&part))
    };
    others.filter(is_inside).collect()
}

/// Returns the program's name as the kernel knows it, at most 15 bytes.
pub(crate) fn name(pid: i32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_pid_does_not_count_as_alive() {
        let own = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.alive());
        assert!(!Identity { started: own.started + 1, ..own }.alive());
    }

    #[test]
    fn tree_contains_child_and_killed_child_is_dead() {
        let own = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = process_tree(&[own]);
        let child_identity = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(found.contains(&child_identity));
        child_identity.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!child_identity.alive());
    }
}
