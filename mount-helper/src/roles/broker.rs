//! The process that mounts. It has a fixed pool of threads, one that serves the socket and others
//! that work, because no thread is started after the system call filter is in place.
use crate::session::listener::Listener;
use crate::session::{BrokerState, event_loop, operation_table, worker};
use crate::{channel, journal};
use ebs_csi_confine::ThreadStarts;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

/// After SIGTERM, an agent that has sent no request for this long has none left: its pre-stop hook
/// checks twice a second.
const QUIET: Duration = Duration::from_secs(5);
/// Stack size of a thread, in bytes. The deepest call chain uses a few kilobytes; buffers live on
/// the heap.
const STACK: usize = 128 << 10;

/// Starts the pool. Until there is work, the threads only wait and make no call that the filter
/// forbids.
pub(crate) fn start(broker: &Arc<BrokerState>, listeners: Vec<Listener>) -> io::Result<()> {
    let (starts, talker) = (ThreadStarts::default(), Arc::clone(broker));
    // A broker that can receive no request must not go on.
    spawn(&starts, "talk".to_owned(), move || {
        let why = event_loop::serve(&talker, listeners);
        panic!("the thread that talks has ended: {why}")
    })?;
    for number in 0..operation_table::workers() {
        let broker = Arc::clone(broker);
        spawn(&starts, format!("work-{number}"), move || {
            worker::serve(&broker);
            // The end of a thread makes calls that the filter lacks.
            loop {
                thread::park();
            }
        })?;
    }
    starts.wait();
    Ok(())
}

fn spawn(
    starts: &ThreadStarts,
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    starts.spawn(thread::Builder::new().name(name).stack_size(STACK), body).map(drop)
}

/// Watches the supervisor until it asks this process to stop or is gone, and returns the exit
/// status of this process.
pub(crate) fn watch(broker: &BrokerState, supervisor: &OwnedFd, grace: Duration) -> u8 {
    loop {
        match poll(&mut [PollFd::new(supervisor, PollFlags::IN)], None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return 70,
        }
        return match channel::receive(supervisor) {
            Ok((word, _)) if word == channel::STOP => {
                journal::info("stopping", &[]);
                let end = Instant::now() + grace;
                // During a drain the node-agent waits for kubelet's last unmount requests, which
                // this process carries out.
                broker.table.serve_until_quiet(QUIET, grace);
                let left = end.saturating_duration_since(Instant::now());
                let finished = broker.table.drain(left);
                journal::info("stopped", &[("finished", if finished { "yes" } else { "no" })]);
                0
            }
            // The supervisor is gone: no tool could be run or reaped any more.
            _ => 1,
        };
    }
}
