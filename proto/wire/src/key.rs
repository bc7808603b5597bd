//! The key file, and what is computed with the key.
//!
//! A vsock address names a machine and no program, and a port can be taken by another program
//! first. Both sides therefore prove that they read the same key file. HMAC-SHA256 covers the
//! protocol, the side that proves, the port of the helper, and a nonce of each side. A proof of
//! another connection, of the other side or for another port does not fit.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac_sha256::{HMAC, Hash};

use crate::hello::{Nonce, Proof};

/// What every proof begins with.
const PURPOSE: &[u8] = b"ebs-csi mount-helper, protocol 2\n";
/// Bytes in a block of SHA-256: HMAC pads a key to this length, and hashes a longer one.
const BLOCK: usize = 64;
/// Fewest bytes in a key file. An attacker who may ask for a proof can try short keys.
const MIN_KEY_BYTES: usize = 32;
/// Most bytes in a key file.
const MAX_KEY_BYTES: usize = 4096;
/// Permission bits of the group and of others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// The key that both sides have.
pub struct Key([u8; BLOCK]);

/// The side of a connection that makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The node-agent.
    Agent,
    /// The mount-helper.
    Helper,
}

/// What both sides said before they prove the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// The port at which the helper listens. A program at another port cannot pass proofs on.
    pub port: u32,
    /// The agent's nonce.
    pub agent: Nonce,
    /// The helper's nonce.
    pub helper: Nonce,
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The path is a link, a directory or anything else but a file.
    #[error("is a link or no file; give the file itself")]
    NotAFile,
    /// The file belongs to a user that is neither root nor this process's user.
    #[error("belongs to user {0}; give it to the user who reads it")]
    WrongOwner(u32),
    /// The group or others may use the file.
    #[error("has mode {0:04o}: others may use it; set the mode to 0400 and make a new key")]
    TooOpen(u32),
    /// Another file took the path while it was opened.
    #[error("was replaced while it was opened")]
    Replaced,
    /// The number of bytes is out of bounds.
    #[error("has {0} bytes; a key has {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random ones")]
    Length(usize),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.fill(0);
        black_box(&self.0);
    }
}

/// A key file that was opened and checked, and not read yet.
#[derive(Debug)]
pub struct KeyFile(File);

impl KeyFile {
    /// Opens a key file: a regular file of root or of this process's user, that only its owner may
    /// use, of 32 to 4096 bytes.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let path_metadata = std::fs::symlink_metadata(path).map_err(KeyFileError::Unreadable)?;
        // Before the open, which would wait for the writer of a pipe.
        if !path_metadata.is_file() {
            return Err(KeyFileError::NotAFile);
        }
        let file = File::open(path).map_err(KeyFileError::Unreadable)?;
        let file_metadata = file.metadata().map_err(KeyFileError::Unreadable)?;
        if (file_metadata.dev(), file_metadata.ino()) != (path_metadata.dev(), path_metadata.ino())
        {
            return Err(KeyFileError::Replaced);
        }
        let own = std::fs::metadata("/proc/self").map_err(KeyFileError::Unreadable)?;
        if file_metadata.uid() != 0 && file_metadata.uid() != own.uid() {
            return Err(KeyFileError::WrongOwner(file_metadata.uid()));
        }
        if file_metadata.mode() & GROUP_AND_OTHERS != 0 {
            return Err(KeyFileError::TooOpen(file_metadata.mode() & 0o7777));
        }
        check_length(usize::try_from(file_metadata.len()).unwrap_or(usize::MAX))?;
        Ok(Self(file))
    }

    /// Reads the key. Every byte counts, a newline at the end too.
    pub fn read(self) -> Result<Key, KeyFileError> {
        // Reserved at once: a vector that grows leaves copies of the key behind.
        let mut bytes = Vec::with_capacity(MAX_KEY_BYTES + 1);
        self.0
            .take(MAX_KEY_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(KeyFileError::Unreadable)?;
        let key = Key::new(&bytes);
        bytes.fill(0);
        black_box(&bytes);
        key
    }
}

fn check_length(bytes: usize) -> Result<(), KeyFileError> {
    if (MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&bytes) {
        Ok(())
    } else {
        Err(KeyFileError::Length(bytes))
    }
}

impl Key {
    /// Makes a key of the bytes of a key file.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyFileError> {
        check_length(bytes.len())?;
        let mut key = [0; BLOCK];
        if bytes.len() > BLOCK {
            let hash = Hash::hash(bytes);
            key[..hash.len()].copy_from_slice(&hash);
        } else {
            key[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(Self(key))
    }

    /// Returns the proof of one side.
    #[must_use]
    pub fn prove(&self, side: Side, transcript: &Transcript) -> Proof {
        Proof(self.mac(side, transcript).finalize())
    }

    /// Returns whether the proof is that of this side with this key. The time that this takes does
    /// not depend on the proof.
    #[must_use]
    pub fn verifies(&self, side: Side, transcript: &Transcript, proof: &Proof) -> bool {
        self.mac(side, transcript).finalize_verify(&proof.0)
    }

    fn mac(&self, side: Side, transcript: &Transcript) -> HMAC {
        let mut mac = HMAC::new(self.0);
        mac.update(PURPOSE);
        // Each part has a fixed length, so two transcripts never give the same bytes.
        mac.update(match side {
            Side::Agent => b"agent \n",
            Side::Helper => b"helper\n",
        });
        mac.update(transcript.port.to_le_bytes());
        mac.update(transcript.agent.0);
        mac.update(transcript.helper.0);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const TRANSCRIPT: Transcript =
        Transcript { port: 5000, agent: Nonce([1; 32]), helper: Nonce([2; 32]) };

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).unwrap()
    }

    #[test]
    fn proof_fits_only_its_key_side_and_transcript() {
        let proof = key(7).prove(Side::Agent, &TRANSCRIPT);
        assert!(key(7).verifies(Side::Agent, &TRANSCRIPT, &proof));
        let swapped =
            Transcript { agent: TRANSCRIPT.helper, helper: TRANSCRIPT.agent, ..TRANSCRIPT };
        let of = |agent, helper| Transcript {
            agent: Nonce([agent; 32]),
            helper: Nonce([helper; 32]),
            ..TRANSCRIPT
        };
        let mut flipped = proof;
        flipped.0[31] ^= 1;
        for (why, fits) in [
            ("another key", key(8).verifies(Side::Agent, &TRANSCRIPT, &proof)),
            ("reflected", key(7).verifies(Side::Helper, &TRANSCRIPT, &proof)),
            ("nonces swapped", key(7).verifies(Side::Agent, &swapped, &proof)),
            (
                "another port",
                key(7).verifies(Side::Agent, &Transcript { port: 5001, ..TRANSCRIPT }, &proof),
            ),
            ("replayed to the helper", key(7).verifies(Side::Agent, &of(1, 3), &proof)),
            ("replayed to the agent", key(7).verifies(Side::Agent, &of(3, 2), &proof)),
            ("one bit", key(7).verifies(Side::Agent, &TRANSCRIPT, &flipped)),
            ("zeros", key(7).verifies(Side::Agent, &TRANSCRIPT, &Proof([0; 32]))),
        ] {
            assert!(!fits, "{why}");
        }
    }

    /// A key of 131 bytes 0xaa is that of test case 6 in RFC 4231, whose MAC is over another text.
    #[test]
    fn long_keys_are_hashed_as_hmac_does() {
        let ours = Key::new(&[0xaa; 131]).unwrap();
        let mut mac = HMAC::new(ours.0);
        mac.update(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(mac.finalize()[..4], [0x60, 0xe4, 0x31, 0x59]);
    }

    #[test]
    fn unusable_key_file_names_its_fault() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, bytes: &[u8], mode: u32| {
            std::fs::write(path(name), bytes).unwrap();
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("good", &[7; 32], 0o400);
        write("written", &[7; 32], 0o600);
        write("empty", &[], 0o400);
        write("short", &[7; 31], 0o400);
        write("long", &[7; MAX_KEY_BYTES + 1], 0o400);
        write("group", &[7; 32], 0o440);
        write("world", &[7; 32], 0o404);
        std::os::unix::fs::symlink("good", path("link")).unwrap();
        for name in ["good", "written"] {
            assert!(KeyFile::open(&path(name)).and_then(KeyFile::read).is_ok(), "{name}");
        }
        for (name, says) in [
            ("missing", "cannot be read"),
            ("empty", "has 0 bytes"),
            ("short", "has 31 bytes"),
            ("long", "has 4097 bytes"),
            ("group", "mode 0440"),
            ("world", "mode 0404"),
            ("link", "is a link"),
            (".", "is a link or no file"),
        ] {
            let error = KeyFile::open(&path(name)).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn debug_output_shows_no_key() {
        assert_eq!(format!("{:?}", key(7)), "Key(..)");
    }
}
