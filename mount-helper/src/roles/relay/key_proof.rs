//! The proof of the key over vsock: the peer's nonce, this side's nonce and proof, the peer's
//! proof. Nothing else is read from a peer before that.
use ebs_csi_wire::{Challenge, Hello, Key, KeyStep, Nonce, Side, Transcript};
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
pub(super) struct KeyProof<'k> {
    key: &'k Key,
    port: u32,
    transcript: Option<Transcript>,
    deadline: Instant,
}

impl<'k> KeyProof<'k> {
    /// Begins with a connection at this port.
    pub(super) fn new(key: &'k Key, port: u32) -> Self {
        Self { key, port, transcript: None, deadline: Instant::now() + PROOF_TIME }
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
        let Self { key, port, .. } = *self;
        match (hello.key, &self.transcript) {
            (KeyStep::Nonce(agent), None) => {
                let transcript = Transcript { port, agent, helper: own };
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
    use ebs_csi_wire::Proof;

    const PORT: u32 = 5000;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).expect("a key")
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
        let key = key(7);
        let mut session = KeyProof::new(&key, PORT);
        let Ok(HelloOutcome::Challenge(challenge)) = session.receive_hello(nonce(1)) else {
            panic!("no challenge");
        };
        let transcript = Transcript { port: PORT, agent: Nonce([1; 32]), helper: challenge.nonce };
        assert!(key.verifies(Side::Helper, &transcript, &challenge.proof));
        let agents = key.prove(Side::Agent, &transcript);
        assert_eq!(session.receive_hello(proof(agents)), Ok(HelloOutcome::Proved));
    }

    #[test]
    fn each_connection_gets_another_nonce() {
        let key = key(7);
        let nonces = [(); 2].map(|()| match KeyProof::new(&key, PORT).receive_hello(nonce(1)) {
            Ok(HelloOutcome::Challenge(challenge)) => challenge.nonce,
            other => panic!("{other:?}"),
        });
        assert_ne!(nonces[0], nonces[1]);
    }

    #[test]
    fn every_wrong_proof_ends_the_connection() {
        let (key, elsewhere) = (key(7), key(8));
        let transcript = Transcript { port: PORT, agent: Nonce([1; 32]), helper: OWN };
        let good = key.prove(Side::Agent, &transcript);
        let earlier = Transcript { helper: Nonce([3; 32]), ..transcript };
        for (row, hello, says) in [
            ("right", proof(good), None),
            ("another key", proof(elsewhere.prove(Side::Agent, &transcript)), Some("wrong proof")),
            ("replayed", proof(key.prove(Side::Agent, &earlier)), Some("wrong proof")),
            ("reflected", proof(key.prove(Side::Helper, &transcript)), Some("wrong proof")),
            (
                "passed on from another port",
                proof(key.prove(Side::Agent, &Transcript { port: 5001, ..transcript })),
                Some("wrong proof"),
            ),
            ("missing", Hello::with_key(KeyStep::None), Some("without a key")),
            ("of the version over unix sockets", Hello::OURS, Some("version without a key")),
            ("a nonce again", nonce(1), Some("second nonce")),
        ] {
            let mut session = KeyProof::new(&key, PORT);
            let first = session.receive_hello_with(nonce(1), OWN);
            assert!(matches!(first, Ok(HelloOutcome::Challenge(_))), "{row}");
            match (session.receive_hello_with(hello, OWN), says) {
                (Ok(HelloOutcome::Proved), None) => {}
                (Err(why), Some(says)) => assert!(why.contains(says), "{row}: {why}"),
                other => panic!("{row}: {other:?}"),
            }
        }
        let mut early = KeyProof::new(&key, PORT);
        assert!(early.receive_hello_with(proof(good), OWN).is_err());
    }
}
