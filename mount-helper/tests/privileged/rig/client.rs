//! The node-agent's end of the socket.
use super::{AGENT, LONG, become_user};
use ebs_csi_wire::{Hello, Operation, Outcome, Reply, Request, frame};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects under another uid. The peer's identity is determined at the connect.
pub(crate) fn connect(socket: &Path, uid: u32) -> UnixStream {
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        if uid != 0 {
            become_user(uid, &[AGENT]);
        }
        UnixStream::connect(&socket).expect("connect")
    })
    .join()
    .expect("thread")
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    next: u64,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LONG * 2)).expect("timeout");
        Self { stream, next: 1 }
    }

    pub(crate) fn greeted(stream: UnixStream) -> Self {
        let mut client = Self::new(stream);
        client.greet();
        client
    }

    /// Sends a hello, which is accepted.
    pub(crate) fn greet(&mut self) {
        let outcome = self.call(Operation::Hello(Hello::OURS), Duration::ZERO);
        assert!(matches!(outcome, Outcome::Welcome(_)), "{outcome:?}");
    }

    pub(crate) fn send(&mut self, operation: Operation, wait: Duration) {
        self.send_as(self.next, operation, wait);
    }

    /// Sends a request with an id of the caller's choice; the caller need not wait for earlier
    /// answers.
    pub(crate) fn send_as(&mut self, id: u64, operation: Operation, wait: Duration) {
        let request = Request { id, wait, operation };
        let frame = frame::framed(&request.encode()).expect("frame");
        self.stream.write_all(&frame).expect("write");
    }

    pub(crate) fn receive(&mut self) -> Option<Outcome> {
        let mut prefix = [0; frame::PREFIX];
        self.stream.read_exact(&mut prefix).ok()?;
        let mut payload = vec![0; u32::from_le_bytes(prefix) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        let reply = Reply::decode(&payload).expect("a reply");
        assert_eq!(reply.id, self.next);
        self.next += 1;
        Some(reply.outcome)
    }

    #[track_caller]
    pub(crate) fn check_cut_off(&mut self) {
        let read = self.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }

    pub(crate) fn call(&mut self, operation: Operation, wait: Duration) -> Outcome {
        self.send(operation, wait);
        self.receive().expect("an answer")
    }
}
