//! Volume capabilities, parsed once. One table lists what is supported, for the controller and the
//! node.

use crate::csi::volume_capability::{AccessType as WireType, access_mode::Mode};
use crate::csi::{self};
use crate::failure::{Condition, Failure};

/// How many nodes may use the volume, and how (CSI `VolumeCapability.AccessMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Read and write on one node.
    SingleNodeWriter,
    /// Read only on one node.
    SingleNodeReaderOnly,
    /// Read and write by one workload on one node (`ReadWriteOncePod`).
    SingleNodeSingleWriter,
    /// Read and write by several workloads on one node.
    SingleNodeMultiWriter,
    /// Read and write on several nodes; raw block on io2 alone.
    MultiNodeMultiWriter,
}

/// How the workload sees the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessType {
    /// A raw block device.
    Block,
    /// A mounted file system.
    Mount {
        /// The file system as given; empty means the driver's default.
        fs_type: String,
        /// Mount flags as given.
        flags: Vec<String>,
    },
}

/// A supported capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// How many nodes may use the volume, and whether to write.
    pub mode: AccessMode,
    /// Block or file system.
    pub kind: AccessType,
}

impl Capability {
    /// Parses a capability and checks it against the table of what this driver supports.
    ///
    /// # Errors
    /// [`Condition::MissingField`] without an access type or mode; [`Condition::Unsupported`] for a
    /// combination outside the table.
    pub fn parse(wire: &csi::VolumeCapability) -> Result<Self, Failure> {
        let kind = match &wire.access_type {
            Some(WireType::Block(_)) => AccessType::Block,
            Some(WireType::Mount(mount)) => AccessType::Mount {
                fs_type: mount.fs_type.clone(),
                flags: mount.mount_flags.clone(),
            },
            None => return Err(Failure::missing("volume_capability.access_type")),
        };
        let wire_mode = wire
            .access_mode
            .as_ref()
            .ok_or_else(|| Failure::missing("volume_capability.access_mode"))?;
        let mode = match (wire_mode.mode(), &kind) {
            (Mode::SingleNodeWriter, _) => AccessMode::SingleNodeWriter,
            (Mode::SingleNodeReaderOnly, _) => AccessMode::SingleNodeReaderOnly,
            (Mode::SingleNodeSingleWriter, _) => AccessMode::SingleNodeSingleWriter,
            (Mode::SingleNodeMultiWriter, _) => AccessMode::SingleNodeMultiWriter,
            (Mode::MultiNodeMultiWriter, AccessType::Block) => AccessMode::MultiNodeMultiWriter,
            (Mode::MultiNodeMultiWriter, AccessType::Mount { .. }) => {
                return Err(Failure::new(
                    Condition::Unsupported,
                    "volume_capability.access_mode: MULTI_NODE_MULTI_WRITER is offered for raw block volumes only; \
                     use volumeMode Block on an io2 volume, or SINGLE_NODE_WRITER",
                ));
            }
            (other, _) => {
                return Err(Failure::new(
                    Condition::Unsupported,
                    format!(
                        "volume_capability.access_mode: {} is not offered; use SINGLE_NODE_WRITER, SINGLE_NODE_SINGLE_WRITER, \
                         SINGLE_NODE_MULTI_WRITER, SINGLE_NODE_READER_ONLY, or MULTI_NODE_MULTI_WRITER with block access",
                        other.as_str_name()
                    ),
                ));
            }
        };
        Ok(Self { mode, kind })
    }

    /// Parses the capabilities of a request.
    ///
    /// # Errors
    /// As [`Capability::parse`], and [`Condition::MissingField`] for an empty list.
    pub fn parse_all(wire: &[csi::VolumeCapability]) -> Result<Vec<Self>, Failure> {
        if wire.is_empty() {
            return Err(Failure::missing("volume_capabilities"));
        }
        wire.iter().map(Self::parse).collect()
    }

    /// Returns whether the volume must be attachable to several nodes.
    pub fn needs_multi_attach(&self) -> bool {
        self.mode == AccessMode::MultiNodeMultiWriter
    }

    /// Returns whether nothing may be written through this capability.
    pub fn is_read_only(&self) -> bool {
        self.mode == AccessMode::SingleNodeReaderOnly
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::volume_capability::{AccessMode as WireMode, BlockVolume, MountVolume};

    fn wire(mode: Mode, block: bool) -> csi::VolumeCapability {
        csi::VolumeCapability {
            access_type: Some(if block {
                WireType::Block(BlockVolume {})
            } else {
                WireType::Mount(MountVolume::default())
            }),
            access_mode: Some(WireMode { mode: mode as i32 }),
        }
    }

    #[test]
    fn only_supported_access_modes_are_accepted() {
        let rows = [
            (Mode::SingleNodeWriter, true, true),
            (Mode::SingleNodeReaderOnly, true, true),
            (Mode::SingleNodeSingleWriter, true, true),
            (Mode::SingleNodeMultiWriter, true, true),
            (Mode::MultiNodeMultiWriter, true, false),
            (Mode::MultiNodeReaderOnly, false, false),
            (Mode::MultiNodeSingleWriter, false, false),
            (Mode::Unknown, false, false),
        ];
        for (mode, block, mount) in rows {
            assert_eq!(Capability::parse(&wire(mode, true)).is_ok(), block, "{mode:?} block");
            assert_eq!(Capability::parse(&wire(mode, false)).is_ok(), mount, "{mode:?} mount");
        }
    }

    #[test]
    fn capability_without_type_or_mode_names_missing_field() {
        let mut no_type = wire(Mode::SingleNodeWriter, true);
        no_type.access_type = None;
        let mut no_mode = wire(Mode::SingleNodeWriter, true);
        no_mode.access_mode = None;
        for (given, field) in [(no_type, "access_type"), (no_mode, "access_mode")] {
            let failure = Capability::parse(&given).unwrap_err();
            assert_eq!(failure.condition(), Condition::MissingField);
            assert!(failure.text().contains(field), "{failure}");
        }
        assert!(Capability::parse_all(&[]).is_err());
    }
}
