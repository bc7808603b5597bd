//! CSI requests, parsed once into types that hold only valid values.

pub(crate) mod group;
pub(crate) mod listing;
pub(crate) mod node_local_handle;
pub mod tags;
pub(crate) mod topology;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use ebs_csi_parameters::{
    FormatKeys, SnapshotParameters, VolumeAttributes, VolumeParameters, WAIT_UNTIL_INITIALIZED,
};
use ebs_csi_policy::flag;
use ebs_csi_proto::csi::{self, volume_content_source::Type as SourceType};
use ebs_csi_proto::{AccessType, Capability, CapacityRange, Condition, Failure, GiB};
use ebs_csi_wire::{FsType, InstanceId, SnapshotId, VolumeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Snapshot(SnapshotId),
    Volume(VolumeId),
}

impl Source {
    /// Returns the source as the response repeats it.
    pub(crate) fn to_wire(&self) -> csi::VolumeContentSource {
        use csi::volume_content_source::{SnapshotSource, VolumeSource};
        csi::VolumeContentSource {
            r#type: Some(match self {
                Self::Snapshot(id) => {
                    SourceType::Snapshot(SnapshotSource { snapshot_id: id.to_string() })
                }
                Self::Volume(id) => SourceType::Volume(VolumeSource { volume_id: id.to_string() }),
            }),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CreateVolume {
    /// The name, which identifies a repeated request.
    pub name: String,
    /// The size to ask EC2 for.
    pub size: GiB,
    /// The sizes that the caller accepts.
    pub range: CapacityRange,
    /// Whether a capability needs the volume attached to several instances.
    pub multi_attach: bool,
    pub class: VolumeParameters,
    pub attributes: VolumeAttributes,
    pub source: Option<Source>,
    /// Where the caller can use the volume.
    pub requirement: Option<csi::TopologyRequirement>,
    /// The place that was chosen from `requirement`.
    pub placement: Option<topology::Placement>,
}

impl CreateVolume {
    /// # Errors
    /// A failure that names the field; a source id that EC2 cannot have issued is "not found".
    pub(crate) fn parse(wire: &csi::CreateVolumeRequest) -> Result<Self, Failure> {
        let name = parse_name(&wire.name)?;
        let capabilities = Capability::parse_all(&wire.volume_capabilities)?;
        let range = parse_range(wire.capacity_range.as_ref())?;
        let size = check_size(range.size_or(GiB::DEFAULT)?)?;
        let class = VolumeParameters::parse(&wire.parameters)?;
        let attributes = VolumeAttributes::parse(&wire.mutable_parameters)?;
        check_mount(&capabilities, &class.format)?;
        let source = match wire.volume_content_source.as_ref().map(|s| s.r#type.as_ref()) {
            None => None,
            Some(None) => return Err(Failure::missing("volume_content_source.type")),
            Some(Some(SourceType::Snapshot(snapshot))) => Some(Source::Snapshot(parse_id(
                "volume_content_source.snapshot.snapshot_id",
                &snapshot.snapshot_id,
            )?)),
            Some(Some(SourceType::Volume(volume))) => Some(Source::Volume(parse_id(
                "volume_content_source.volume.volume_id",
                &volume.volume_id,
            )?)),
        };
        let is_copy = matches!(source, Some(Source::Volume(_)));
        if is_copy && class.encrypted == Some(false) {
            return Err(Failure::invalid(
                "parameters.encrypted",
                "a copy is encrypted as its source is; remove the parameter or set it to \"true\"",
            ));
        }
        let multi_attach = capabilities.iter().any(Capability::needs_multi_attach);
        let request = Self {
            name,
            size,
            range,
            multi_attach,
            placement: match is_copy {
                // A copy is in its source's zone.
                true => None,
                false => topology::choose(wire.accessibility_requirements.as_ref())?,
            },
            class,
            attributes,
            source,
            requirement: wire.accessibility_requirements.clone(),
        };
        if multi_attach && !request.volume_type().eq_ignore_ascii_case("io2") {
            return Err(Failure::invalid(
                "parameters.type",
                format!(
                    "{:?} volumes cannot be attached to several nodes; use io2, or an access mode for one node",
                    request.volume_type()
                ),
            ));
        }
        Ok(request)
    }

    /// Returns the type to request: the VolumeAttributesClass's, otherwise the StorageClass's,
    /// otherwise gp3.
    pub(crate) fn volume_type(&self) -> &str {
        self.attributes
            .volume_type
            .as_deref()
            .or(self.class.volume_type.as_deref())
            .unwrap_or("gp3")
    }
}

/// Checks the file system, its format options and the mount options of each capability before a
/// volume is created that no node could mount.
fn check_mount(capabilities: &[Capability], keys: &FormatKeys) -> Result<(), Failure> {
    for capability in capabilities {
        match &capability.kind {
            AccessType::Block => keys.check_for_block()?,
            AccessType::Mount { fs_type, flags } => {
                let fs = file_system(fs_type)?;
                keys.check_for(fs)?;
                flag::parse(flags, &[fs], capability.is_read_only()).map_err(|error| {
                    Failure::invalid("volume_capability.mount.mount_flags", error)
                })?;
            }
        }
    }
    Ok(())
}

fn file_system(name: &str) -> Result<FsType, Failure> {
    if name.is_empty() {
        return Ok(FsType::Ext4);
    }
    FsType::parse(name).map_err(|error| Failure::invalid("volume_capability.mount.fs_type", error))
}

/// The common part of ControllerPublishVolume and ControllerUnpublishVolume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub volume: VolumeId,
    pub node: InstanceId,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} at node {}", self.volume, self.node)
    }
}

/// What a publish asks for besides the attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishOptions {
    pub capability: Capability,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publish {
    pub pair: Pair,
    pub options: PublishOptions,
    /// Whether to wait until a restored volume has all its data.
    pub wait_until_initialized: bool,
}

impl Publish {
    /// # Errors
    /// A failure that names the field; an id that EC2 cannot have issued is "not found".
    pub(crate) fn parse(wire: &csi::ControllerPublishVolumeRequest) -> Result<Self, Failure> {
        let volume = require("volume_id", &wire.volume_id)?;
        let node = require("node_id", &wire.node_id)?;
        let capability =
            wire.volume_capability.as_ref().ok_or_else(|| Failure::missing("volume_capability"))?;
        let options =
            PublishOptions { capability: Capability::parse(capability)?, read_only: wire.readonly };
        Ok(Self {
            options,
            pair: Pair {
                volume: parse_id("volume_id", volume)?,
                node: InstanceId::parse(node).map_err(|e| {
                    let condition = match is_hyperpod(node) {
                        true => Condition::Unsupported,
                        false => Condition::NotFound,
                    };
                    Failure::new(condition, format!("node_id: {e}"))
                })?,
            },
            wait_until_initialized: wire
                .volume_context
                .get(WAIT_UNTIL_INITIALIZED)
                .is_some_and(|value| value == "true"),
        })
    }
}

/// Reads ControllerUnpublishVolume; `None` when the volume or node cannot exist, so that nothing is
/// attached.
///
/// # Errors
/// An empty field, or a node that exists outside of EC2, whose attachments cannot be seen.
pub(crate) fn parse_unpublish(
    wire: &csi::ControllerUnpublishVolumeRequest,
) -> Result<Option<Pair>, Failure> {
    let volume = require("volume_id", &wire.volume_id)?;
    let node = require("node_id", &wire.node_id)?;
    match (VolumeId::parse(volume), InstanceId::parse(node)) {
        (Ok(volume), Ok(node)) => Ok(Some(Pair { volume, node })),
        (Ok(volume), Err(_)) if is_hyperpod(node) => Err(Failure::new(
            Condition::Unsupported,
            format!(
                "node_id: {node} is a SageMaker HyperPod node, which this driver does not support, and {volume} may be attached there; \
                 detach it by sagemaker:DetachClusterNodeVolume, then take the finalizer off the VolumeAttachment"
            ),
        )),
        _ => Ok(None),
    }
}

/// Returns whether a node is one of SageMaker HyperPod, whose volumes another driver attached.
fn is_hyperpod(node: &str) -> bool {
    node.starts_with("hyperpod-")
}

/// Reads the id of a deletion; `None` when the id cannot exist, so that there is nothing to delete.
pub(crate) fn parse_delete<T: FromStr>(field: &str, value: &str) -> Result<Option<T>, Failure> {
    Ok(require(field, value)?.parse().ok())
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expand {
    pub volume: VolumeId,
    /// The volume's new size; `None` when the caller requests none.
    pub size: Option<GiB>,
    /// Whether the volume is used as a raw block device, so that the node has nothing to grow.
    pub block: bool,
}

impl Expand {
    pub(crate) fn parse(wire: &csi::ControllerExpandVolumeRequest) -> Result<Self, Failure> {
        let volume = require("volume_id", &wire.volume_id)?;
        let range =
            wire.capacity_range.as_ref().ok_or_else(|| Failure::missing("capacity_range"))?;
        node_local_handle::refuse("volume_id", volume, "be expanded")?;
        let range = CapacityRange::parse(range)?;
        let block = match &wire.volume_capability {
            Some(capability) => Capability::parse(capability)?.kind == AccessType::Block,
            None => false,
        };
        let size = match range.required.0 {
            0 => None,
            _ => Some(check_size(range.size_or(GiB::DEFAULT)?)?),
        };
        Ok(Self { volume: parse_id("volume_id", volume)?, size, block })
    }
}

pub(crate) fn parse_modify(
    volume: &str,
    parameters: &HashMap<String, String>,
) -> Result<(VolumeId, VolumeAttributes), Failure> {
    let volume = require("volume_id", volume)?;
    node_local_handle::refuse("volume_id", volume, "be modified")?;
    let attributes = VolumeAttributes::parse(parameters)?;
    Ok((parse_id("volume_id", volume)?, attributes))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateSnapshot {
    /// The name, which identifies a repeated request.
    pub name: String,
    pub volume: VolumeId,
    pub class: SnapshotParameters,
}

impl CreateSnapshot {
    /// # Errors
    /// A failure that names the field; a volume id that EC2 cannot have issued is "not found".
    pub(crate) fn parse(wire: &csi::CreateSnapshotRequest) -> Result<Self, Failure> {
        let name = parse_name(&wire.name)?;
        let volume = require("source_volume_id", &wire.source_volume_id)?;
        node_local_handle::refuse("source_volume_id", volume, "have snapshots")?;
        Ok(Self {
            name,
            volume: parse_id("source_volume_id", volume)?,
            class: SnapshotParameters::parse(&wire.parameters)?,
        })
    }
}

/// Parses a boolean like Go's `strconv.ParseBool`, which the Go driver uses for flags and tags.
pub(crate) fn parse_go_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Returns the value of a field that must not be empty.
pub(crate) fn require<'a>(field: &str, value: &'a str) -> Result<&'a str, Failure> {
    if value.is_empty() {
        return Err(Failure::missing(field));
    }
    Ok(value)
}

/// The longest value of a tag, in characters (Tag, EC2 API reference).
const MAX_TAG_VALUE: usize = 256;

/// Reads the name of a volume or snapshot, which becomes the value of a tag.
fn parse_name(name: &str) -> Result<String, Failure> {
    match require("name", name)?.chars().nth(MAX_TAG_VALUE) {
        None => Ok(name.to_owned()),
        Some(_) => {
            let why =
                format!("is longer than {MAX_TAG_VALUE} characters, which a tag of EC2 holds");
            Err(Failure::invalid("name", why))
        }
    }
}

/// Parses the id of a resource. An id that EC2 cannot have issued belongs to none.
///
/// # Errors
/// An empty field; [`Condition::NotFound`].
pub(crate) fn parse_id<T>(field: &str, value: &str) -> Result<T, Failure>
where
    T: FromStr<Err: fmt::Display>,
{
    require(field, value)?
        .parse()
        .map_err(|e| Failure::new(Condition::NotFound, format!("{field}: {e}")))
}

/// The largest size of any volume type (64 TiB; EBS volume types page). EC2 checks the limits of a
/// single type or zone.
const MAX_SIZE: GiB = GiB(65_536);

fn check_size(size: GiB) -> Result<GiB, Failure> {
    if size > MAX_SIZE {
        return Err(Failure::new(
            Condition::CapacityOutOfRange,
            format!(
                "capacity_range.required_bytes: {size} are asked for, and no EBS volume is larger than {MAX_SIZE}; ask for less, or use several volumes"
            ),
        ));
    }
    Ok(size)
}

fn parse_range(wire: Option<&csi::CapacityRange>) -> Result<CapacityRange, Failure> {
    wire.map_or_else(|| Ok(CapacityRange::default()), CapacityRange::parse)
}

#[cfg(test)]
mod tests;
