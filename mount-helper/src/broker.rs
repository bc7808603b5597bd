//! The process that mounts. A fixed pool of threads, one to talk and the others to work: nothing is
//! started after the system call filter is in place.
use crate::channel;
use crate::journal;
use crate::supervisor::STOP;
use crate::table::{self, Table};
use crate::talk;
use crate::work;
use crate::world::World;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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
    let (talker, listener) = (Arc::clone(broker), Arc::clone(listener));
    // A process that hears nobody must not go on.
    spawn("talk".to_owned(), move || {
        let why = talk::serve(&talker, &listener);
        panic!("the thread that talks has ended: {why}")
    })?;
    for number in 0..table::workers() {
        let broker = Arc::clone(broker);
        spawn(format!("work-{number}"), move || work::serve(&broker))?;
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
