//! Stops a tool of the mount-helper while the tool works on a disk.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, setpriority_process};

use crate::process_table::{self, Identity};
use crate::world::node::Node;

/// A stopped tool. Dropping the value lets the tool continue.
#[derive(Debug)]
pub struct ToolAtWork {
    identity: Identity,
}

const TOOLS: &str = "mke2fs mkfs.ext4 mkfs.ext3 mkfs.xfs e2fsck fsck.ext4 resize2fs xfs_repair";

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
    let is_tool = |name: String| TOOLS.split(' ').any(|tool| tool == name);
    children(supervisor)
        .into_iter()
        .flat_map(children)
        .filter(|pid| process_table::name(*pid).is_some_and(is_tool))
        .collect()
}

/// Waits at most 20 s for a tool on `node`, and stops it. Returns `None` if no tool was seen.
pub async fn catch(node: &Node) -> Option<ToolAtWork> {
    let supervisor = node.helper.pid()?;
    tokio::task::spawn_blocking(move || watch(supervisor)).await.ok().flatten()
}

/// Polls for a tool, with priority over the tool and over other tests.
fn watch(supervisor: i32) -> Option<ToolAtWork> {
    const PAUSE: Duration = Duration::from_micros(200);
    // Without the right to a priority the polls are only less frequent on a busy machine.
    let _ = setpriority_process(None, -20);
    let end = Instant::now() + Duration::from_secs(20);
    let mut stopped = None;
    while stopped.is_none() && Instant::now() < end {
        let tool = tools_of(supervisor).first().copied().and_then(Pid::from_raw);
        // First of all, because the tool lives for milliseconds; it may have ended.
        let sent = tool.map(|pid| kill_process(pid, Signal::STOP));
        if let (Some(pid), Some(Ok(()))) = (tool, sent)
            && let Some(identity) = Identity::of(pid.as_raw_nonzero().get())
        {
            let caught = ToolAtWork { identity };
            // A tool that is about to exit cannot be stopped any more. One under a tracer is `t`.
            while identity.state().is_some_and(|state| !"TtZX".contains(state)) {
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
        self.identity.pid
    }

    /// Returns whether the tool still exists.
    pub fn alive(&self) -> bool {
        self.identity.alive()
    }
}

impl Drop for ToolAtWork {
    fn drop(&mut self) {
        // The tool may have ended.
        let _ = self.identity.signal(Signal::CONT);
    }
}
