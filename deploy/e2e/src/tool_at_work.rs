//! Stops a tool of the mount-helper while the tool works on a disk.

use std::time::{Duration, Instant};

use ebs_csi_sandbox::Node;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};

/// A stopped tool. Dropping the value lets the tool continue.
#[derive(Debug)]
pub struct ToolAtWork {
    pid: i32,
}

/// The programs that the helper executes.
const TOOLS: &str = "mke2fs mkfs.ext4 mkfs.ext3 mkfs.xfs e2fsck fsck.ext4 resize2fs xfs_repair";

fn name(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn children(pid: i32) -> Vec<i32> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Returns the tools that run on `node` now: the children of the supervisor's children. Reading the
/// whole process table may take longer than the few milliseconds that a tool lives.
pub fn running(node: &Node) -> Vec<i32> {
    node.helper.pid().into_iter().flat_map(tools_of).collect()
}

fn tools_of(supervisor: i32) -> Vec<i32> {
    children(supervisor)
        .into_iter()
        .flat_map(children)
        .filter(|pid| name(*pid).is_some_and(|name| TOOLS.split(' ').any(|tool| tool == name)))
        .collect()
}

/// Waits at most 20 s for a tool on `node`, and stops it.
pub async fn catch(node: &Node) -> ToolAtWork {
    let supervisor = node.helper.pid();
    let watched = tokio::task::spawn_blocking(move || supervisor.and_then(watch)).await;
    let stopped = watched.ok().flatten();
    stopped.unwrap_or_else(|| panic!("no tool was seen in 20 s\n{}", node.helper.log_tail(20)))
}

/// Polls for a tool, with priority over the tool and over other tests.
fn watch(supervisor: i32) -> Option<ToolAtWork> {
    const PAUSE: Duration = Duration::from_micros(200);
    // Without the right to a priority the polls are only less frequent on a busy machine.
    let _ = setpriority_process(None, -20);
    let end = Instant::now() + Duration::from_secs(20);
    let mut stopped = None;
    while stopped.is_none() && Instant::now() < end {
        if let Some(pid) = tools_of(supervisor).first().copied() {
            let caught = ToolAtWork { pid };
            caught.signal(Signal::STOP);
            // A tool that is about to exit cannot be stopped any more.
            while caught.state().is_some_and(|state| !"TZX".contains(state)) {
                std::thread::sleep(PAUSE);
            }
            stopped = caught.alive().then_some(caught);
        }
        std::thread::sleep(PAUSE);
    }
    let _ = setpriority_process(None, 0);
    stopped
}

impl ToolAtWork {
    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether the tool still exists.
    pub fn alive(&self) -> bool {
        self.state().is_some_and(|state| !"ZX".contains(state))
    }

    /// Returns the state letter of proc_pid_stat(5).
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // The tool may have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for ToolAtWork {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
    }
}
