//! A user's claim, and the volume that the driver made for it.

use std::collections::HashMap;

use csi::volume_capability::access_mode::Mode;
use csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use ebs_csi_proto::csi;

/// The access type of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file system of this type, mounted with these flags.
    Filesystem {
        /// `ext4`, `xfs`, or empty for the driver's default.
        kind: String,
        /// Mount flags of the StorageClass.
        flags: Vec<String>,
    },
    /// A raw block device.
    Block,
}

impl Content {
    /// Returns the capability that every call about a volume repeats: one node writes.
    pub fn capability(&self) -> csi::VolumeCapability {
        let access_type = match self {
            Self::Block => AccessType::Block(BlockVolume {}),
            Self::Filesystem { kind, flags } => AccessType::Mount(MountVolume {
                fs_type: kind.clone(),
                mount_flags: flags.clone(),
                ..MountVolume::default()
            }),
        };
        csi::VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(access_type),
        }
    }
}

/// The source of a volume's first content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// No source: a blank volume.
    #[default]
    Blank,
    /// A snapshot, by id.
    Snapshot(String),
    /// Another volume, by id.
    Volume(String),
}

/// A claim for a volume, with the parameters of its class.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Name of the volume (`pvc-…`), the key of idempotency.
    pub name: String,
    /// Minimum size in bytes.
    pub bytes: i64,
    /// Access type.
    pub content: Content,
    /// Source of the first content.
    pub source: Source,
    /// Parameters of the StorageClass.
    pub parameters: HashMap<String, String>,
}

/// Bytes in a GiB.
pub const GIB: i64 = 1 << 30;

impl Claim {
    /// Returns a claim for a file system volume of `gib` GiB.
    pub fn filesystem(name: &str, kind: &str, gib: i64) -> Self {
        Self::new(name, Content::Filesystem { kind: kind.to_owned(), flags: Vec::new() }, gib)
    }

    /// Returns a claim for a raw block volume of `gib` GiB.
    pub fn block(name: &str, gib: i64) -> Self {
        Self::new(name, Content::Block, gib)
    }

    fn new(name: &str, content: Content, gib: i64) -> Self {
        Self {
            name: name.to_owned(),
            bytes: gib.saturating_mul(GIB),
            content,
            source: Source::Blank,
            parameters: HashMap::new(),
        }
    }

    /// Adds a StorageClass parameter.
    #[must_use]
    pub fn parameter(mut self, key: &str, value: &str) -> Self {
        self.parameters.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets a snapshot or another volume as the source.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Returns a volume of this claim that somebody else than the driver made.
    pub fn volume(&self, id: String) -> Volume {
        Volume {
            name: self.name.clone(),
            id,
            bytes: self.bytes,
            context: HashMap::new(),
            topology: HashMap::new(),
            content: self.content.clone(),
        }
    }

    pub(crate) fn content_source(&self) -> Option<csi::VolumeContentSource> {
        use csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
        let kind = match &self.source {
            Source::Blank => return None,
            Source::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
            Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.clone() }),
        };
        Some(csi::VolumeContentSource { r#type: Some(kind) })
    }
}

/// A volume that the driver made, with the data that the orchestrator's objects would store.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Name of the claim.
    pub name: String,
    /// Volume handle (`vol-…`).
    pub id: String,
    /// Size in bytes that the driver reported last.
    pub bytes: i64,
    /// `volume_context`.
    pub context: HashMap<String, String>,
    /// Topology segments of the first accessible topology.
    pub topology: HashMap<String, String>,
    /// Access type.
    pub content: Content,
}

impl Volume {
    /// Returns whether the volume is a raw block device.
    pub fn is_block(&self) -> bool {
        self.content == Content::Block
    }
}
