//! A hypervisor's socket with a helper behind it that does what the row says.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebs_csi_wire::{PROTOCOL_WITH_KEY, Proof};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;

const PORT: u32 = 5000;

/// What the hypervisor and the helper behind it do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerBehaviour {
    /// Everything as it should be.
    Good,
    /// The hypervisor closes the connection: nobody listens at the port.
    NobodyListens,
    /// Another program than a hypervisor has the socket.
    OtherAnswer,
    /// The hypervisor's line does not end.
    EndlessLine,
    /// The hypervisor says nothing.
    SilentHypervisor,
    /// The helper says nothing.
    SilentHelper,
    /// The helper closes the connection.
    Closes,
    /// The helper sends half a challenge and says nothing more.
    HalfFrame,
    /// The helper sends half a challenge and closes the connection.
    HalfFrameAndCloses,
    /// The helper has another key.
    WrongKey,
    /// The helper welcomes the agent without a proof.
    MissingProof,
    /// The helper sends the proof of an earlier connection.
    ReplayedProof,
    /// The helper sends what the agent could have sent.
    ReflectedProof,
    /// The proof is that of a helper at another port.
    OtherPort,
    /// The helper does not accept the agent's proof.
    Distrustful,
    /// The helper speaks another version.
    OtherVersion,
}

fn key(byte: u8) -> Key {
    Key::new(&[byte; 32]).unwrap()
}

/// Returns `None` when the agent closes the connection, as it does at its deadline.
async fn line(stream: &mut UnixStream) -> Option<String> {
    let mut line = String::new();
    while !line.ends_with('\n') {
        line.push(char::from(stream.read_u8().await.ok()?));
    }
    Some(line)
}

async fn receive_hello(stream: &mut UnixStream) -> Option<Hello> {
    let length = stream.read_u32_le().await.ok()?;
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    match Request::decode(&payload).unwrap().operation {
        Operation::Hello(hello) => Some(hello),
        other => panic!("{other:?} before the end of the greeting"),
    }
}

async fn send_outcome(stream: &mut UnixStream, outcome: Outcome) {
    let bytes = frame::framed(&Reply { id: 0, outcome }.encode()).unwrap();
    stream.write_all(&bytes).await.unwrap();
}

fn welcome() -> Outcome {
    Outcome::Welcome(Welcome {
        version: PROTOCOL_WITH_KEY,
        release: "0.0.1".to_owned(),
        policy_digest: "0".repeat(64),
        ..Welcome::default()
    })
}

async fn serve_connection(mut stream: UnixStream, row: PeerBehaviour) {
    let Some(connect_line) = line(&mut stream).await else { return };
    assert_eq!(connect_line, "CONNECT 5000\n");
    match row {
        PeerBehaviour::NobodyListens => return,
        PeerBehaviour::OtherAnswer => return stream.write_all(b"HTTP/1.1 400\n").await.unwrap(),
        PeerBehaviour::EndlessLine => {
            stream.write_all(&[b'O'; 64]).await.unwrap();
            return std::future::pending().await;
        }
        PeerBehaviour::SilentHypervisor => return std::future::pending().await,
        _ => stream.write_all(b"OK 1073741824\n").await.unwrap(),
    }
    let Some(Hello {
        oldest: PROTOCOL_WITH_KEY,
        newest: PROTOCOL_WITH_KEY,
        key: KeyStep::Nonce(agent),
    }) = receive_hello(&mut stream).await
    else {
        panic!("no nonce");
    };
    let transcript = Transcript { port: PORT, agent, helper: Nonce([9; 32]) };
    let challenge = |proof| Challenge { nonce: transcript.helper, proof };
    let good = key(7).prove(Side::Helper, &transcript);
    let sent = match row {
        PeerBehaviour::Good | PeerBehaviour::Distrustful => challenge(good),
        PeerBehaviour::WrongKey => challenge(key(8).prove(Side::Helper, &transcript)),
        PeerBehaviour::ReplayedProof => {
            let agent = Nonce([1; 32]);
            challenge(key(7).prove(Side::Helper, &Transcript { agent, ..transcript }))
        }
        // The agent never proves first, so that such a proof cannot be had from it; it must not
        // count either.
        PeerBehaviour::ReflectedProof => challenge(key(7).prove(Side::Agent, &transcript)),
        PeerBehaviour::OtherPort => {
            let port = PORT + 1;
            challenge(key(7).prove(Side::Helper, &Transcript { port, ..transcript }))
        }
        PeerBehaviour::MissingProof => return send_outcome(&mut stream, welcome()).await,
        PeerBehaviour::OtherVersion => {
            return send_outcome(&mut stream, Refusal::Version.into()).await;
        }
        PeerBehaviour::Closes => return,
        PeerBehaviour::SilentHelper => return std::future::pending().await,
        PeerBehaviour::HalfFrame | PeerBehaviour::HalfFrameAndCloses => {
            let outcome = Outcome::Challenge(challenge(good));
            let whole = frame::framed(&Reply { id: 0, outcome }.encode()).unwrap();
            stream.write_all(&whole[..whole.len() / 2]).await.unwrap();
            if row == PeerBehaviour::HalfFrame {
                std::future::pending::<()>().await;
            }
            return;
        }
        other => panic!("{other:?} ended before"),
    };
    send_outcome(&mut stream, Outcome::Challenge(sent)).await;
    match receive_hello(&mut stream).await {
        Some(Hello { key: KeyStep::Proof(proof), .. }) => {
            assert!(
                matches!(row, PeerBehaviour::Good | PeerBehaviour::Distrustful),
                "{row:?}: the agent proved itself to a program without the key"
            );
            assert!(key(7).verifies(Side::Agent, &transcript, &proof));
            assert_ne!(proof, Proof([0; 32]));
            if row == PeerBehaviour::Good {
                send_outcome(&mut stream, welcome()).await;
                std::future::pending::<()>().await;
            }
        }
        Some(other) => panic!("{other:?}"),
        None => {
            assert!(!matches!(row, PeerBehaviour::Good | PeerBehaviour::Distrustful), "{row:?}")
        }
    }
}

/// A hypervisor's socket. The first connections do what the row says, the later ones are good.
struct Hypervisor {
    directory: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl Hypervisor {
    fn start(row: PeerBehaviour) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("vm.sock")).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // An agent tries again for 1.5 s where nobody listens.
                let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
                let again = matches!(
                    row,
                    PeerBehaviour::NobodyListens
                        | PeerBehaviour::OtherAnswer
                        | PeerBehaviour::EndlessLine
                );
                let row = if first || again { row } else { PeerBehaviour::Good };
                tokio::spawn(serve_connection(stream, row));
            }
        });
        Self { directory, connections }
    }

    fn target(&self) -> Target {
        let file = self.directory.path().join("key");
        if !file.exists() {
            std::fs::write(&file, [7; 32]).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
        }
        let address = format!("hvsock://{}/vm.sock:{PORT}", self.directory.path().display());
        Target::read(&address, Some(&file)).unwrap()
    }
}

fn deadline_in_a_minute() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[tokio::test]
async fn unproved_helper_is_left_and_next_greeting_works() {
    let rows = [
        (PeerBehaviour::SilentHypervisor, "silent"),
        (PeerBehaviour::SilentHelper, "silent"),
        (PeerBehaviour::Closes, "lost"),
        (PeerBehaviour::HalfFrame, "silent"),
        (PeerBehaviour::HalfFrameAndCloses, "foreign"),
        (PeerBehaviour::WrongKey, "unproved"),
        (PeerBehaviour::MissingProof, "foreign"),
        (PeerBehaviour::ReplayedProof, "unproved"),
        (PeerBehaviour::ReflectedProof, "unproved"),
        (PeerBehaviour::OtherPort, "unproved"),
        (PeerBehaviour::Distrustful, "lost"),
        (PeerBehaviour::OtherVersion, "refused"),
    ];
    let tasks = rows.map(|(row, label)| {
        tokio::spawn(async move {
            let hypervisor = Hypervisor::start(row);
            let target = hypervisor.target();
            let error = Connection::open(&target, deadline_in_a_minute()).await.unwrap_err();
            assert_eq!(error.label(), label, "{row:?}: {error:?}");
            let connection = Connection::open(&target, deadline_in_a_minute()).await.unwrap();
            assert_eq!(connection.welcome.version, PROTOCOL_WITH_KEY, "{row:?}");
            assert_eq!(hypervisor.connections.load(Ordering::Relaxed), 2);
        })
    });
    for row in tasks {
        row.await.unwrap();
    }
}

#[tokio::test]
async fn refused_or_foreign_hypervisor_counts_as_no_listener() {
    let rows =
        [PeerBehaviour::NobodyListens, PeerBehaviour::OtherAnswer, PeerBehaviour::EndlessLine];
    let tasks = rows.map(|row| {
        tokio::spawn(async move {
            let hypervisor = Hypervisor::start(row);
            let error = Connection::open(&hypervisor.target(), deadline_in_a_minute()).await;
            let error = error.unwrap_err();
            assert_eq!(error.label(), "down", "{row:?}: {error:?}");
            assert!(hypervisor.connections.load(Ordering::Relaxed) > 1);
        })
    });
    for row in tasks {
        row.await.unwrap();
    }
}
