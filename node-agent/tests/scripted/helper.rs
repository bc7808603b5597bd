//! A mount-helper that follows a script: a thread that speaks the protocol's frames on a unix
//! socket and performs the given acts.

#![allow(dead_code)]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebs_csi_wire::{
    HeldVolume, Hello, Inventory, Operation, Outcome, Refusal, Reply, Request, Welcome, frame,
};

/// What the helper does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends this answer.
    Answer(Outcome),
    /// Sends the answer after this time.
    Slowly(Duration, Outcome),
    /// Sends no answer and keeps the connection open.
    Hang,
    /// Closes the connection.
    Crash,
    /// Sends half of the answer and closes the connection.
    CutShort(Outcome),
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends the answer with the id of another request.
    WrongId(Outcome),
}

impl Act {
    /// Answers that the helper holds these volumes and does nothing.
    pub(crate) fn holds(volumes: impl Into<Vec<HeldVolume>>) -> Self {
        Self::Answer(Outcome::Inventory(Inventory {
            volumes: volumes.into(),
            ..Inventory::default()
        }))
    }
}

/// How the helper answers the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Answers with a common version.
    Usual,
    /// Answers that no version is common.
    OtherVersion,
    /// Sends no answer.
    Silent,
}

#[derive(Debug, Default)]
struct Script {
    acts: VecDeque<Act>,
    requests: Vec<(Operation, Duration)>,
    connections: usize,
    live: Vec<UnixStream>,
}

/// The scripted helper. Dropping it closes its socket and every connection.
#[derive(Debug)]
pub(crate) struct ScriptedHelper {
    path: PathBuf,
    script: Arc<Mutex<Script>>,
    gone: Arc<Mutex<bool>>,
}

impl ScriptedHelper {
    /// Listens at `path`. A request without a scripted act gets the answer of a helper without
    /// faults.
    pub(crate) fn start(path: &Path, greeting: Greeting) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("bind");
        let script = Arc::new(Mutex::new(Script::default()));
        let gone = Arc::new(Mutex::new(false));
        let (shared, over) = (Arc::clone(&script), Arc::clone(&gone));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if *over.lock().expect("lock") {
                    return;
                }
                let mut now = shared.lock().expect("lock");
                now.connections += 1;
                now.live.push(stream.try_clone().expect("clone"));
                drop(now);
                let script = Arc::clone(&shared);
                thread::spawn(move || converse(stream, greeting, &script));
            }
        });
        Self { path: path.to_owned(), script, gone }
    }

    /// Appends the acts for the next requests, in order.
    pub(crate) fn then(&self, acts: impl IntoIterator<Item = Act>) {
        self.script.lock().expect("lock").acts.extend(acts);
    }

    /// Returns the requests so far, without the greetings.
    pub(crate) fn requests(&self) -> Vec<Operation> {
        let script = self.script.lock().expect("lock");
        script.requests.iter().map(|(operation, _)| operation.clone()).collect()
    }

    /// Returns, for each request, how long its caller said that it waits.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        let script = self.script.lock().expect("lock");
        script.requests.iter().map(|(_, wait)| *wait).collect()
    }

    /// Waits until so many requests have arrived.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let arrived = async {
            while self.requests().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), arrived).await.expect("the requests arrive");
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.script.lock().expect("lock").connections
    }
}

impl Drop for ScriptedHelper {
    fn drop(&mut self) {
        *self.gone.lock().expect("lock") = true;
        // Wakes the listener, which then ends.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        for stream in &self.script.lock().expect("lock").live {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn converse(mut stream: UnixStream, greeting: Greeting, script: &Mutex<Script>) {
    while let Ok(payload) = read_message(&mut stream) {
        let request = Request::decode(&payload).expect("the agent speaks the protocol");
        let act = match &request.operation {
            Operation::Hello(theirs) => greet(greeting, *theirs),
            operation => {
                let mut script = script.lock().expect("lock");
                script.requests.push((operation.clone(), request.wait));
                let act = script.acts.pop_front();
                act.unwrap_or_else(|| Act::Answer(usual_answer(operation)))
            }
        };
        if !perform(&mut stream, request.id, act) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_message(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut prefix = [0; frame::PREFIX];
    stream.read_exact(&mut prefix)?;
    let mut message = vec![0; u32::from_le_bytes(prefix) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Performs an act. Returns whether the connection stays open.
fn perform(stream: &mut UnixStream, id: u64, act: Act) -> bool {
    let send = |stream: &mut UnixStream, id, outcome| {
        let frame = frame::framed(&Reply { id, outcome }.encode());
        frame.is_ok_and(|frame| stream.write_all(&frame).is_ok())
    };
    match act {
        Act::Answer(outcome) => send(stream, id, outcome),
        Act::Slowly(pause, outcome) => {
            thread::sleep(pause);
            send(stream, id, outcome)
        }
        Act::WrongId(outcome) => send(stream, id + 1000, outcome),
        Act::Hang => true,
        Act::Crash => false,
        Act::CutShort(outcome) => {
            let whole = frame::framed(&Reply { id, outcome }.encode()).expect("frame");
            let _ = stream.write_all(&whole[..whole.len() / 2 + 1]);
            false
        }
        Act::Bytes(bytes) => stream.write_all(&bytes).is_ok(),
    }
}

fn greet(greeting: Greeting, theirs: Hello) -> Act {
    match (greeting, Hello::OURS.common(theirs)) {
        (Greeting::Silent, _) => Act::Hang,
        (Greeting::Usual, Some(version)) => Act::Answer(Outcome::Welcome(Welcome {
            version,
            release: "0.0.1-scripted".to_owned(),
            policy_digest: "0".repeat(64),
            sandbox: true,
            landlock: Some(7),
            wider: vec!["--paths=any".to_owned(), "--sandbox".to_owned()],
        })),
        _ => Act::Answer(Refusal::Version.into()),
    }
}

/// Returns the answer of a helper without faults. A request with another answer needs an act of the
/// script.
fn usual_answer(operation: &Operation) -> Outcome {
    use ebs_csi_wire::{Done, Expanded, LogPage, Staged, Usage};
    match operation {
        Operation::Stage(_) => {
            Outcome::Staged(Staged { formatted: true, device_bytes: 1 << 30, ..Staged::default() })
        }
        Operation::Expand(_) => Outcome::Expanded(Expanded {
            device_bytes: 2 << 30,
            filesystem_bytes: (2 << 30) - 4096,
        }),
        Operation::Stats(_) => Outcome::Usage(Usage {
            total_bytes: 1000,
            used_bytes: 300,
            available_bytes: 650,
            total_inodes: 100,
            used_inodes: 11,
            available_inodes: 89,
            ..Usage::default()
        }),
        Operation::Inspect(_) => Outcome::Inventory(Inventory::default()),
        Operation::NvmeStatistics(_) => Outcome::LogPage(LogPage { page: vec![0; 4096] }),
        _ => Outcome::Done(Done::default()),
    }
}
