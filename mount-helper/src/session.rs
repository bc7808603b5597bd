//! One connection: frames in, frames out, one after the other. A peer that breaks the protocol is cut off.
use crate::broker::Broker;
use crate::journal;
use crate::operation;
use crate::sys;
use ebs_csi_wire::{
    Hello, Inventory, Operation, Outcome, Refusal, Reply, Request, RunningOperation, Welcome, frame,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// A frame that has begun must be complete within this time; a reply must be taken within it.
const FRAME_TIME: Duration = Duration::from_secs(10);

/// Most volumes in one page of an inventory; a page must fit a frame with paths of any length that kubelet makes.
const PAGE: usize = 16;

/// Serve one connection until it ends.
pub fn serve(broker: &Broker, socket: &OwnedFd) {
    match sys::peer_uid(socket) {
        Ok(uid) if uid == broker.peer_uid => {}
        Ok(uid) => {
            journal::warn("peer-refused", &[("uid", &uid.to_string())]);
            return;
        }
        Err(e) => {
            journal::warn("peer-unknown", &[("why", &e.to_string())]);
            return;
        }
    }
    let mut stream = Timed {
        socket,
        within_frame: false,
    };
    let mut greeted = false;
    let _caller = broker.table.caller();
    loop {
        stream.within_frame = false;
        let payload = match frame::read_frame(&mut stream) {
            Ok(Some(payload)) => payload,
            Ok(None) => return,
            Err(e) => return cut_off(&e.to_string()),
        };
        let request = match Request::decode(&payload) {
            Ok(request) => request,
            Err(e) => return cut_off(&e.to_string()),
        };
        let id = request.id;
        broker.table.asked();
        let outcome = match request.operation {
            Operation::Hello(theirs) if !greeted => {
                let outcome = greet(broker, theirs);
                greeted = matches!(outcome, Outcome::Welcome(_));
                outcome
            }
            // Hello is the first request, and only the first.
            Operation::Hello(_) => return cut_off("a second hello"),
            _ if !greeted => return cut_off("a request before hello"),
            Operation::Inspect(asked) => inspect(broker, asked.first),
            operation => match broker.table.submit(operation, request.wait) {
                Some(outcome) => outcome,
                None => return,
            },
        };
        let refused = outcome == Refusal::Version.into();
        let reply = Reply { id, outcome };
        if frame::write_frame(&mut stream, &reply.encode()).is_err() || refused {
            return;
        }
    }
}

fn cut_off(why: &str) {
    journal::warn("peer-cut-off", &[("why", why)]);
}

fn greet(broker: &Broker, theirs: Hello) -> Outcome {
    match Hello::OURS.common(theirs) {
        Some(version) => Outcome::Welcome(Welcome {
            version,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            policy_digest: broker.digest.to_owned(),
            sandbox: broker.sandbox,
            landlock: Some(broker.landlock.into()),
        }),
        None => Refusal::Version.into(),
    }
}

fn inspect(broker: &Broker, first: u32) -> Outcome {
    let held = match operation::inventory(&broker.world) {
        Ok(held) => held,
        Err(stop) => return stop.into(),
    };
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let operations = broker
        .table
        .running()
        .into_iter()
        .filter_map(|(operation, since)| {
            Some(RunningOperation {
                volume: operation.volume()?.clone(),
                kind: operation::kind(&operation),
                running_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            })
        })
        .take(64)
        .collect();
    let mut volumes: Vec<_> = held.into_iter().skip(first).take(PAGE + 1).collect();
    let more = volumes.len() > PAGE;
    volumes.truncate(PAGE);
    let mut inventory = Inventory {
        volumes,
        operations,
        more,
    };
    // Paths of unusual length: fewer of them make a page.
    while !fits(&inventory) && inventory.volumes.pop().is_some() {
        inventory.more = true;
    }
    Outcome::Inventory(inventory)
}

fn fits(inventory: &Inventory) -> bool {
    let reply = Reply {
        id: u64::MAX,
        outcome: Outcome::Inventory(inventory.clone()),
    };
    reply.encode().len() <= frame::MAX_FRAME
}

/// The connection with a clock: between frames a peer may be silent, within one it may not.
struct Timed<'s> {
    socket: &'s OwnedFd,
    within_frame: bool,
}

impl Timed<'_> {
    fn ready(&self, flags: PollFlags, end: Option<Instant>) -> io::Result<()> {
        loop {
            let timeout = end.map(|end| {
                let left = end.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
            match poll(&mut [PollFd::new(self.socket, flags)], timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.within_frame.then(|| Instant::now() + FRAME_TIME);
        loop {
            self.ready(PollFlags::IN, end)?;
            match recv(self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    self.within_frame = true;
                    return Ok(length);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let end = Instant::now() + FRAME_TIME;
        loop {
            self.ready(PollFlags::OUT, Some(end))?;
            match send(
                self.socket,
                buffer,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(length) => return Ok(length),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
