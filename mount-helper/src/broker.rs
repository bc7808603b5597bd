//! The process that mounts. A fixed pool of threads, half to talk and half to work: nothing is started after the
//! system call filter is in place.
use crate::channel;
use crate::journal;
use crate::operation;
use crate::session;
use crate::supervisor::STOP;
use crate::table::{Table, Work};
use crate::world::World;
use ebs_csi_wire::{Outcome, ToolEnd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Threads that hold a connection each. The node-agent bounds its own connections below this.
const TALKERS: usize = 24;
/// Threads that carry out operations; one waits for each running tool.
const WORKERS: usize = 16;
/// After SIGTERM, an agent that has not asked for so long has nothing left to ask: its pre-stop hook
/// looks twice a second.
const QUIET: Duration = Duration::from_secs(5);
/// The deepest call chain is a few kilobytes; buffers live on the heap.
const STACK: usize = 128 << 10;

/// What the threads share.
#[derive(Debug)]
pub struct Broker {
    /// What operations work with.
    pub world: World,
    /// What runs.
    pub table: Table,
    /// The only uid that may ask.
    pub peer_uid: u32,
    /// Digest of the policy that is enforced.
    pub digest: &'static str,
    /// Simulated devices are recognised.
    pub sandbox: bool,
    /// The kernel's version of Landlock, which binds the other processes where it is not 0.
    pub landlock: u8,
}

/// Start the pool. The threads wait for work and make no call that the filter forbids.
pub fn start(broker: &Arc<Broker>, listener: &Arc<OwnedFd>) -> io::Result<()> {
    for number in 0..TALKERS {
        let (broker, listener) = (Arc::clone(broker), Arc::clone(listener));
        spawn(format!("talk-{number}"), move || talk(&broker, &listener))?;
    }
    for number in 0..WORKERS {
        let broker = Arc::clone(broker);
        spawn(format!("work-{number}"), move || {
            while let Some(work) = broker.table.take() {
                carry_out(&broker, work);
            }
        })?;
    }
    Ok(())
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name)
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
}

fn talk(broker: &Broker, listener: &OwnedFd) {
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => session::serve(broker, &socket),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            Err(e) => {
                journal::warn("accept", &[("why", &e.to_string())]);
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn carry_out(broker: &Broker, work: Work) {
    let outcome = operation::run(&broker.world, work.operation());
    report(&work, &outcome);
    broker.table.finish(work, outcome);
}

/// One line for each operation. Nothing in it was chosen by the peer but the volume id, whose shape is checked.
fn report(work: &Work, outcome: &Outcome) {
    let volume = work
        .operation()
        .volume()
        .map_or("", |volume| volume.as_str());
    let took = work.since().elapsed().as_micros().to_string();
    let mut fields = vec![
        ("operation", work.operation().name()),
        ("volume", volume),
        ("took_us", took.as_str()),
    ];
    let (errno, code, seen, owner);
    match outcome {
        Outcome::Refused(refused) => {
            fields.extend([("outcome", "refused"), ("reason", refused.reason.as_str())]);
            if let Some(what) = &refused.seen {
                seen = what.to_string();
                fields.push(("seen", seen.as_str()));
            }
            journal::warn("operation", &fields);
        }
        Outcome::Failed(failed) => {
            fields.extend([("outcome", "failed"), ("step", failed.step.as_str())]);
            if let Some(number) = failed.errno {
                errno = io::Error::from_raw_os_error(number.get()).to_string();
                fields.push(("errno", errno.as_str()));
            }
            if let Some(node) = failed.node {
                owner = node.to_string();
                fields.push(("node", owner.as_str()));
            }
            match failed.tool {
                Some(ToolEnd::Exited(status)) => {
                    code = status.to_string();
                    fields.push(("tool_exit", code.as_str()));
                }
                Some(ToolEnd::Signalled(signal)) => {
                    code = signal.to_string();
                    fields.push(("tool_signal", code.as_str()));
                }
                _ => {}
            }
            journal::error("operation", &fields);
        }
        Outcome::Staged(staged) => {
            let yes = |flag: bool| if flag { "yes" } else { "no" };
            fields.extend([
                ("outcome", "done"),
                ("already", yes(staged.already)),
                ("formatted", yes(staged.formatted)),
                ("checked", yes(staged.checked)),
                ("repaired", yes(staged.repaired)),
                ("grown", yes(staged.grown)),
            ]);
            journal::info("operation", &fields);
        }
        // Asked for all the time, and nothing has changed.
        Outcome::Usage(_) | Outcome::LogPage(_) => {}
        _ => {
            fields.push(("outcome", "done"));
            journal::info("operation", &fields);
        }
    }
}

/// Watch the supervisor until it says stop or is gone; the exit status of this process.
pub fn watch(broker: &Broker, supervisor: &OwnedFd, grace: Duration) -> u8 {
    loop {
        match poll(&mut [PollFd::new(supervisor, PollFlags::IN)], None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return 70,
        }
        return match channel::receive(supervisor) {
            Ok((word, _)) if word == STOP => {
                journal::info("stopping", &[]);
                let end = Instant::now() + grace;
                // On a drain the node-agent waits for kubelet's last unmounts, which come to this
                // process.
                broker.table.serve_last(QUIET, grace);
                let left = end.saturating_duration_since(Instant::now());
                let finished = broker.table.drain(left);
                journal::info(
                    "stopped",
                    &[("finished", if finished { "yes" } else { "no" })],
                );
                0
            }
            // The supervisor is gone: nothing could be run or reaped any more.
            _ => 1,
        };
    }
}
