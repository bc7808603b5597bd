//! The fuzz target for what this client reads, and the replay of its inputs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_wire::{
    AttachedAt, Held, Inspect, Key, KubeletPath, NvmeStatistics, Operation, Outcome,
    PROTOCOL_NEWEST, PROTOCOL_OLDEST, Reply, Stats, Unpublish, VolumeId, frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

use super::call_failure::{NodeCall, failure};
use super::{Address, Deadline, Helper, HelperError, Target};

/// The bit of an input's first byte that makes the client have a key, which the peer lacks.
const HAS_KEY: u8 = 0x80;
/// The bit with which everything comes at once.
const AT_ONCE: u8 = 0x40;
/// The longest text of a failure, in bytes: two of the longest paths, and words.
const LONGEST_TEXT: usize = 10_000;

/// A program at the mount-helper's address that says what an input has.
#[derive(Debug)]
pub struct Peer {
    runtime: Runtime,
    listener: UnixListener,
    socket: PathBuf,
}

impl Peer {
    /// Listens in a directory. Panics when that fails.
    pub fn new(directory: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let socket = directory.join("s");
        let listening = runtime.block_on(async { UnixListener::bind(&socket) });
        Self { runtime, listener: listening.expect("a socket"), socket }
    }

    /// Sends the input to a client that greets and then asks. The first byte chooses the request,
    /// and the rest is what the client reads. Accepts a greeting with an answer to the request.
    ///
    /// What is refused changes nothing: no greeting is remembered and no connection is kept.
    pub fn answers(&self, input: &[u8]) -> bool {
        let Some((chosen, said)) = input.split_first() else { return false };
        self.runtime.block_on(async {
            tokio::select! {
                accepted = self.ask(*chosen) => accepted,
                () = self.serve(*chosen, said) => false,
            }
        })
    }

    async fn ask(&self, chosen: u8) -> bool {
        let target = if chosen & HAS_KEY == 0 {
            Target { address: Address::Unix(self.socket.clone()), key: None }
        } else {
            let key = Key::new(&[7; 32]).map(Arc::new);
            let address = Address::Hypervisor { socket: self.socket.clone(), port: 5000 };
            Target { address, key: key.ok() }
        };
        let helper = Helper::new(target, Arc::default());
        let idle = || helper.idle.lock().expect("no panic").len();
        let known = || helper.known.lock().expect("no panic").clone();
        let deadline = Deadline::after(Duration::from_secs(60));
        let welcome = match helper.greet(deadline).await {
            Ok(welcome) => welcome,
            Err(error) => {
                assert!(!matches!(error, HelperError::Silent), "the peer said everything");
                assert_eq!((known(), idle()), (None, 0), "{error:?}");
                return false;
            }
        };
        assert_eq!(chosen & HAS_KEY, 0, "welcomed without the key");
        assert!((PROTOCOL_OLDEST..=PROTOCOL_NEWEST).contains(&welcome.version));
        round_trip(Outcome::Welcome(welcome.clone()));
        assert_eq!((known().as_ref(), idle()), (Some(&welcome), 1));
        let (operation, call) = request(chosen);
        let answer = helper.send_once(&operation, deadline).await;
        let is_answer = match &answer {
            Ok(_) => true,
            Err(error) => {
                is_told(call, error);
                use HelperError::{Failed, Pending, Refused};
                matches!(error, Refused(_) | Failed(_) | Pending)
            }
        };
        assert_eq!((known(), idle()), (Some(welcome), usize::from(is_answer)), "{answer:?}");
        answer.map(round_trip).is_ok()
    }

    async fn serve(&self, chosen: u8, said: &[u8]) {
        loop {
            let (stream, _) = self.listener.accept().await.expect("a connection");
            // The client may leave at any time.
            let _ = serve_connection(stream, chosen, said).await;
        }
    }
}

async fn serve_connection(mut stream: UnixStream, chosen: u8, said: &[u8]) -> std::io::Result<()> {
    if chosen & HAS_KEY != 0 {
        while stream.read_u8().await? != b'\n' {}
        stream.write_all(b"OK 1\n").await?;
    }
    let is_greeting = |end: &usize| frame::missing(&said[..*end]) == Ok(0);
    let greeting = (0..=said.len()).find(is_greeting).filter(|_| chosen & AT_ONCE == 0);
    read_frame(&mut stream).await?;
    let (greeting, answer) = said.split_at(greeting.unwrap_or(said.len()));
    stream.write_all(greeting).await?;
    if !answer.is_empty() {
        read_frame(&mut stream).await?;
        stream.write_all(answer).await?;
    }
    stream.shutdown().await?;
    // The client would lose what it has not read yet.
    while stream.read(&mut [0; 256]).await? > 0 {}
    Ok(())
}

async fn read_frame(stream: &mut UnixStream) -> std::io::Result<()> {
    let length = stream.read_u32_le().await?;
    stream.read_exact(&mut vec![0; length as usize]).await.map(drop)
}

fn request(chosen: u8) -> (Operation, NodeCall) {
    let volume = VolumeId::parse("vol-0123456789abcdef0").expect("an id");
    let path = KubeletPath::parse("/k/pods/u/volumes/v/mount").expect("a path");
    match chosen % 5 {
        0 => (Inspect { first: 0 }.into(), NodeCall::Publish),
        1 => (Stats { volume, path }.into(), NodeCall::Stats),
        2 => (NvmeStatistics { volume }.into(), NodeCall::Stage),
        3 => (Unpublish { volume, target: path }.into(), NodeCall::Unpublish),
        _ => {
            let attached_at = AttachedAt::parse("2026-01-01T00:00:00Z");
            (Held { volume, attached_at: attached_at.ok(), question: 1 }.into(), NodeCall::Expand)
        }
    }
}

fn round_trip(outcome: Outcome) {
    let reply = Reply { id: 1, outcome };
    assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
}

/// What the caller and the log are told is one line of a bounded length.
fn is_told(call: NodeCall, error: &HelperError) {
    let deadline = Deadline::after(Duration::ZERO);
    let failure = failure(call, &"vol-0123456789abcdef0", &"/k/pods/u", error, deadline);
    let text = failure.text();
    assert!(text.len() <= LONGEST_TEXT && !text.contains(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_inputs::replay::replay;

    #[test]
    fn answers_corpus_is_accepted_as_named() {
        let directory = tempfile::tempdir().unwrap();
        let peer = Peer::new(directory.path());
        replay("answers", 3, |input| peer.answers(input));
    }
}
