//! The job that the broker sends to a runner.

use prost::Message as _;

use crate::malformed::Malformed;
use crate::{FormatOption, FsType, pb};

/// One run of a tool: the tool, and the values that the policy's table leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The number of the tool in the policy's table.
    pub tool: u8,
    /// The file system.
    pub fs: FsType,
    /// Identifier of the file system, when the tool makes one.
    pub uuid: [u8; 16],
    /// Options of the file system, when the tool makes one. Not checked.
    pub format: Vec<FormatOption>,
    /// The time that the tool writes into the file system, in seconds since 1970.
    pub time: u64,
    /// Longest run time, in seconds, where the policy would allow more.
    pub deadline: u64,
}

impl Job {
    /// Encodes the wire message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = pb::Job {
            tool: self.tool.into(),
            fs_type: self.fs.to_wire(),
            uuid: self.uuid.to_vec(),
            format: self.format.clone(),
            time: self.time,
            deadline_seconds: self.deadline,
        };
        wire.encode_to_vec()
    }

    /// Decodes a wire message. The runner does not trust the broker.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that no correct broker sends.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let invalid = |field| Malformed::Invalid { field };
        let wire = pb::Job::decode(bytes).map_err(|_| Malformed::NotProtobuf)?;
        Ok(Self {
            tool: u8::try_from(wire.tool).map_err(|_| invalid("tool"))?,
            fs: FsType::from_wire(wire.fs_type)?,
            uuid: wire.uuid.try_into().map_err(|_| invalid("uuid"))?,
            format: wire.format,
            time: wire.time,
            deadline: wire.deadline_seconds,
        })
    }
}
