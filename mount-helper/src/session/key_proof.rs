//! The proof of the key over vsock: the peer's nonce, this side's nonce and proof, the peer's
//! proof. Nothing else is read from a peer before that.
use crate::session::listener::Vsock;
use ebs_csi_wire::{Challenge, Hello, KeyStep, Nonce, Side, Transcript};
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::{Duration, Instant};

/// Longest time for a peer to prove the key after it has connected.
const PROOF_TIME: Duration = Duration::from_secs(3);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HelloOutcome {
    /// The peer gets this.
    Challenge(Challenge),
    /// The peer has the key.
    Proved,
}

/// A peer that has not proved the key yet.
#[derive(Debug)]
pub(super) struct KeyProof<'b> {
    vsock: &'b Vsock,
    transcript: Option<Transcript>,
    deadline: Instant,
}

impl<'b> KeyProof<'b> {
    /// Begins with a connection at this port.
    pub(super) fn new(vsock: &'b Vsock) -> Self {
        Self { vsock, transcript: None, deadline: Instant::now() + PROOF_TIME }
    }

    /// Returns until when the peer must have proved the key.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes the peer's next Hello. The error says why the connection ends.
    pub(super) fn receive_hello(&mut self, hello: Hello) -> Result<HelloOutcome, &'static str> {
        let mut nonce = [0; 32];
        // The kernel fills a buffer of up to 256 bytes at once.
        if getrandom(&mut nonce, GetRandomFlags::empty()) != Ok(nonce.len()) {
            return Err("no random bytes");
        }
        self.receive_hello_with(hello, Nonce(nonce))
    }

    fn receive_hello_with(
        &mut self,
        hello: Hello,
        own: Nonce,
    ) -> Result<HelloOutcome, &'static str> {
        if Hello::with_key(KeyStep::None).common(hello).is_none() {
            return Err("a hello of a version without a key");
        }
        let key = &self.vsock.key;
        match (hello.key, &self.transcript) {
            (KeyStep::Nonce(agent), None) => {
                let transcript = Transcript { port: self.vsock.port, agent, helper: own };
                let proof = key.prove(Side::Helper, &transcript);
                self.transcript = Some(transcript);
                Ok(HelloOutcome::Challenge(Challenge { nonce: own, proof }))
            }
            (KeyStep::Proof(proof), Some(transcript))
                if key.verifies(Side::Agent, transcript, &proof) =>
            {
                Ok(HelloOutcome::Proved)
            }
            (KeyStep::Proof(_), Some(_)) => Err("a wrong proof of the key"),
            (KeyStep::Proof(_), None) => Err("a proof of the key before a nonce"),
            (KeyStep::None, _) => Err("a hello without a key"),
            (KeyStep::Nonce(_), Some(_)) => Err("a second nonce"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::{Key, Proof};
    use std::sync::Arc;

    fn vsock(key: u8) -> Vsock {
        let key = Arc::new(Key::new(&[key; 32]).expect("a key"));
        Vsock { port: 5000, peers: Vec::new(), key }
    }

    fn nonce(byte: u8) -> Hello {
        Hello::with_key(KeyStep::Nonce(Nonce([byte; 32])))
    }

    fn proof(proof: Proof) -> Hello {
        Hello::with_key(KeyStep::Proof(proof))
    }

    const OWN: Nonce = Nonce([2; 32]);

    #[test]
    fn both_sides_prove_the_key() {
        let vsock = vsock(7);
        let mut session = KeyProof::new(&vsock);
        let Ok(HelloOutcome::Challenge(challenge)) = session.receive_hello(nonce(1)) else {
            panic!("no challenge");
        };
        let transcript = Transcript { port: 5000, agent: Nonce([1; 32]), helper: challenge.nonce };
        assert!(vsock.key.verifies(Side::Helper, &transcript, &challenge.proof));
        let agents = vsock.key.prove(Side::Agent, &transcript);
        assert_eq!(session.receive_hello(proof(agents)), Ok(HelloOutcome::Proved));
    }

    #[test]
    fn each_connection_gets_another_nonce() {
        let vsock = vsock(7);
        let nonces = [(); 2].map(|()| match KeyProof::new(&vsock).receive_hello(nonce(1)) {
            Ok(HelloOutcome::Challenge(challenge)) => challenge.nonce,
            other => panic!("{other:?}"),
        });
        assert_ne!(nonces[0], nonces[1]);
    }

    #[test]
    fn every_wrong_proof_ends_the_connection() {
        let (vsock, elsewhere) = (vsock(7), vsock(8));
        let transcript = Transcript { port: 5000, agent: Nonce([1; 32]), helper: OWN };
        let good = vsock.key.prove(Side::Agent, &transcript);
        let earlier = Transcript { helper: Nonce([3; 32]), ..transcript };
        for (row, hello, says) in [
            ("right", proof(good), None),
            (
                "another key",
                proof(elsewhere.key.prove(Side::Agent, &transcript)),
                Some("wrong proof"),
            ),
            ("replayed", proof(vsock.key.prove(Side::Agent, &earlier)), Some("wrong proof")),
            ("reflected", proof(vsock.key.prove(Side::Helper, &transcript)), Some("wrong proof")),
            (
                "passed on from another port",
                proof(vsock.key.prove(Side::Agent, &Transcript { port: 5001, ..transcript })),
                Some("wrong proof"),
            ),
            ("missing", Hello::with_key(KeyStep::None), Some("without a key")),
            ("of the version over unix sockets", Hello::OURS, Some("version without a key")),
            ("a nonce again", nonce(1), Some("second nonce")),
        ] {
            let mut session = KeyProof::new(&vsock);
            let first = session.receive_hello_with(nonce(1), OWN);
            assert!(matches!(first, Ok(HelloOutcome::Challenge(_))), "{row}");
            match (session.receive_hello_with(hello, OWN), says) {
                (Ok(HelloOutcome::Proved), None) => {}
                (Err(why), Some(says)) => assert!(why.contains(says), "{row}: {why}"),
                other => panic!("{row}: {other:?}"),
            }
        }
        let mut early = KeyProof::new(&vsock);
        assert!(early.receive_hello_with(proof(good), OWN).is_err());
    }
}
