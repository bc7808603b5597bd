//! A refusal together with the helper's observation.

mod features;
mod refusal;
mod signature;

use std::fmt;

use crate::codec::Wire;
use crate::malformed::Malformed;
use crate::{KubeletPath, MountFlag, pb};

pub use features::{Features, KernelVersion, largest_block};
pub use refusal::Refusal;
pub use signature::{ContentState, Signature};

/// A refused request, and the observation behind the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub reason: Refusal,
    /// The observation; `None` when the reason says everything, and from a helper of the previous
    /// release.
    pub seen: Option<Observation>,
}

/// The helper's observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The disk has content with a signature.
    Content {
        /// The kind of content.
        signature: Signature,
        /// The state of the content.
        state: ContentState,
    },
    /// The disk has bytes that are neither zero nor part of any known format.
    UnknownBytes {
        /// Offset of the first such byte, in bytes from the start of the disk.
        at: u64,
    },
    /// The volume, or the mount that blocks it, is mounted here.
    MountedAt(KubeletPath),
    /// The size of the disk, in bytes.
    DiskBytes(u64),
    /// Files of the volume are open in another mount namespace.
    Copied,
    /// This mount flag is not allowed, or the kernel does not accept it.
    MountFlag(MountFlag),
    /// Features of the file system that are lacking.
    Lacking {
        /// The features.
        features: Features,
        /// The kernel that lacks them; `None` when the checker does.
        kernel: Option<KernelVersion>,
    },
}

impl Refused {
    /// Creates a refusal with an observation.
    pub const fn because(reason: Refusal, seen: Observation) -> Self {
        Self { reason, seen: Some(seen) }
    }
}

impl From<Refusal> for Refused {
    fn from(reason: Refusal) -> Self {
        Self { reason, seen: None }
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { signature, state } => {
                let what = signature.describe();
                match state {
                    ContentState::Sound => write!(f, "found {what} on the disk"),
                    ContentState::Damaged => write!(f, "found {what} on the disk, damaged"),
                    ContentState::Unfinished => {
                        write!(f, "found {what} on the disk that was never finished")
                    }
                    ContentState::CutOff => {
                        write!(f, "found {what} that is larger than its disk")
                    }
                }
            }
            Self::UnknownBytes { at } => {
                write!(f, "found unknown bytes at offset {at} of the disk")
            }
            Self::MountedAt(path) => write!(f, "found a mount at {path}"),
            Self::DiskBytes(bytes) => write!(f, "found a disk of {bytes} bytes"),
            Self::Lacking { features, kernel } => {
                let what = Signature::from(features.fs).describe();
                match kernel {
                    Some(kernel) => write!(f, "{kernel} lacks what {what} needs: {features}"),
                    None => write!(f, "the checker lacks what {what} needs: {features}"),
                }
            }
            Self::MountFlag(flag) => write!(f, "found the mount flag {:?}", flag.to_string()),
            Self::Copied => f.write_str(
                "found files of the volume open in another mount namespace: a container that mounts / or /var/lib of the node \
                 without mount propagation has a copy of its mount, which lasts until the files are closed or the container ends",
            ),
        }
    }
}

impl Wire for Refused {
    type Pb = pb::Refused;

    fn read(wire: pb::Refused) -> Result<Self, Malformed> {
        use pb::refused::Seen;
        let seen = match wire.seen {
            None => None,
            Some(Seen::Content(content)) => Some(Observation::Content {
                signature: Signature::from_wire(content.signature)?,
                state: ContentState::from_wire(content.state)?,
            }),
            Some(Seen::UnknownAt(at)) => Some(Observation::UnknownBytes { at }),
            Some(Seen::MountedAt(path)) => Some(Observation::MountedAt(KubeletPath::parse(&path)?)),
            Some(Seen::DiskBytes(bytes)) => Some(Observation::DiskBytes(bytes)),
            Some(Seen::Copied(_)) => Some(Observation::Copied),
            Some(Seen::Features(lacking)) => {
                let (features, kernel) = Wire::read(lacking)?;
                Some(Observation::Lacking { features, kernel })
            }
            Some(Seen::MountFlag(flag)) => Some(Observation::MountFlag(MountFlag::read(flag)?)),
        };
        Ok(Self { reason: Refusal::from_wire(wire.reason)?, seen })
    }

    fn write(&self) -> pb::Refused {
        use pb::refused::Seen;
        let seen = self.seen.as_ref().map(|seen| match seen {
            Observation::Content { signature, state } => Seen::Content(pb::Content {
                signature: signature.to_wire(),
                state: state.to_wire(),
            }),
            Observation::UnknownBytes { at } => Seen::UnknownAt(*at),
            Observation::MountedAt(path) => Seen::MountedAt(path.to_string()),
            Observation::DiskBytes(bytes) => Seen::DiskBytes(*bytes),
            Observation::Copied => Seen::Copied(true),
            Observation::Lacking { features, kernel } => {
                Seen::Features((*features, *kernel).write())
            }
            Observation::MountFlag(flag) => Seen::MountFlag(flag.write()),
        });
        pb::Refused { reason: self.reason.to_wire(), seen }
    }
}
