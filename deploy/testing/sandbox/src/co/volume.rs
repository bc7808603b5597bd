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
    /// Access mode.
    pub mode: Mode,
    /// Source of the first content.
    pub source: Source,
    /// Parameters of the StorageClass.
    pub parameters: HashMap<String, String>,
    /// Parameters of the VolumeAttributesClass.
    pub mutable_parameters: HashMap<String, String>,
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
            mode: Mode::SingleNodeWriter,
            source: Source::Blank,
            parameters: HashMap::new(),
            mutable_parameters: HashMap::new(),
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

    pub(crate) fn capability(&self) -> csi::VolumeCapability {
        capability(&self.content, self.mode)
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

fn capability(content: &Content, mode: Mode) -> csi::VolumeCapability {
    let access_type = match content {
        Content::Block => AccessType::Block(BlockVolume {}),
        Content::Filesystem { kind, flags } => AccessType::Mount(MountVolume {
            fs_type: kind.clone(),
            mount_flags: flags.clone(),
            ..MountVolume::default()
        }),
    };
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(access_type),
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
    /// Access mode.
    pub mode: Mode,
}

impl Volume {
    /// Returns the capability that every later call repeats.
    pub fn capability(&self) -> csi::VolumeCapability {
        capability(&self.content, self.mode)
    }

    /// Returns whether the volume is a raw block device.
    pub fn is_block(&self) -> bool {
        self.content == Content::Block
    }
}
