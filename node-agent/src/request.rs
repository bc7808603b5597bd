//! CSI requests, parsed into the helper's checked types. Every INVALID_ARGUMENT of the node service
//! comes from here.
//!
//! The order of the checks is that of the Go driver: missing fields, the capability, the volume
//! context, and then whether the volume can exist.

use std::num::NonZeroU64;

use ebs_csi_policy::flag;
use ebs_csi_policy::format_option::{
    FormatOptions, GivenBy, OptionKind, OptionRow, ROWS, parse_number,
};
use ebs_csi_proto::csi::{self, volume_capability::access_mode::Mode};
use ebs_csi_proto::{AccessMode, AccessType, Capability, CapacityRange, Condition, Failure};
use ebs_csi_wire as wire;
use ebs_csi_wire::path::PathProblem;
use ebs_csi_wire::{FsType, KubeletPath, VolumeId};

mod disk;

use disk::Context;
pub(crate) use disk::Handle;

/// The work of NodePublishVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publishing {
    pub(crate) operation: wire::Operation,
    pub(crate) volume: VolumeId,
    pub(crate) target: KubeletPath,
    /// No other target may have the volume (SINGLE_NODE_SINGLE_WRITER).
    pub(crate) single: bool,
}

/// A volume and one of its paths, for the calls that have no other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeAtPath {
    pub(crate) handle: Handle,
    pub(crate) path: KubeletPath,
}

/// The work of NodeExpandVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Growing {
    pub(crate) place: VolumeAtPath,
    /// The least size of the disk, in bytes.
    pub(crate) required_bytes: Option<NonZeroU64>,
    /// The greatest size of the disk, in bytes.
    pub(crate) limit_bytes: Option<NonZeroU64>,
}

/// Parses NodeStageVolume; returns `None` for a raw block volume, which needs no staging.
/// `legacy_xfs`: see `policy/format-options.toml`.
///
/// # Errors
/// A [`Failure`] that names the field; NOT_FOUND for a volume id that EC2 cannot have issued.
pub(crate) fn stage(
    request: &csi::NodeStageVolumeRequest,
    legacy_xfs: bool,
) -> Result<Option<wire::Stage>, Failure> {
    require("volume_id", &request.volume_id)?;
    require("staging_target_path", &request.staging_target_path)?;
    let handle = Handle::read(&request.volume_id);
    let capability = capability(request.volume_capability.as_ref(), &handle)?;
    let partition = disk::partition(&request.volume_context)?;
    let staging = path("staging_target_path", &request.staging_target_path)?;
    let AccessType::Mount { fs_type, flags } = &capability.kind else {
        handle.volume(&request.volume_id, &request.publish_context)?;
        return Ok(None);
    };
    let fs = file_system(fs_type)?;
    let format = format_options(&request.volume_context, fs, legacy_xfs)?;
    let flags = mount_flags(flags, &[fs], capability.is_read_only())?;
    disk::require_device_path(&request.publish_context)?;
    let volume = handle.volume(&request.volume_id, &request.publish_context)?;
    Ok(Some(wire::Stage {
        disk: disk::read(volume, partition, &request.publish_context)?,
        staging,
        fs,
        read_only: capability.is_read_only(),
        flags,
        format,
    }))
}

/// Parses NodePublishVolume.
pub(crate) fn publish(request: &csi::NodePublishVolumeRequest) -> Result<Publishing, Failure> {
    require("volume_id", &request.volume_id)?;
    require("staging_target_path", &request.staging_target_path)?;
    require("target_path", &request.target_path)?;
    let handle = Handle::read(&request.volume_id);
    let capability = capability(request.volume_capability.as_ref(), &handle)?;
    let partition = disk::partition(&request.volume_context)?;
    let staging = path("staging_target_path", &request.staging_target_path)?;
    let target = path("target_path", &request.target_path)?;
    let read_only = request.readonly || capability.is_read_only();
    let single = capability.mode == AccessMode::SingleNodeSingleWriter;
    let flags = match &capability.kind {
        AccessType::Block => {
            disk::require_device_path(&request.publish_context)?;
            None
        }
        AccessType::Mount { fs_type, flags } => {
            file_system(fs_type)?;
            // The staged file system may have another type than the default: the helper knows it
            // and checks again.
            Some(mount_flags(flags, FsType::ALL, read_only)?)
        }
    };
    let volume = handle.volume(&request.volume_id, &request.publish_context)?;
    let disk = disk::read(volume.clone(), partition, &request.publish_context)?;
    let operation = match flags {
        None => wire::Operation::PublishBlock(wire::PublishBlock {
            disk,
            target: target.clone(),
            read_only,
        }),
        Some(flags) => wire::Operation::PublishFilesystem(wire::PublishFilesystem {
            disk,
            staging,
            target: target.clone(),
            read_only,
            flags,
        }),
    };
    Ok(Publishing { operation, volume, target, single })
}

/// Parses the volume and the path of NodeUnstageVolume and NodeUnpublishVolume.
///
/// # Errors
/// As [`stage`], but an unknown volume is not an error.
pub(crate) fn place(id: &str, field: &str, text: &str) -> Result<VolumeAtPath, Failure> {
    require("volume_id", id)?;
    require(field, text)?;
    Ok(VolumeAtPath { handle: Handle::read(id), path: path(field, text)? })
}

/// Parses the volume and the path of NodeGetVolumeStats and NodeExpandVolume.
///
/// # Errors
/// As [`stage`]; NOT_FOUND also for a relative path, where no volume can be.
pub(crate) fn look_up(id: &str, text: &str) -> Result<VolumeAtPath, Failure> {
    require("volume_id", id)?;
    require("volume_path", text)?;
    let handle = Handle::read(id);
    if handle == Handle::Unknown {
        return Err(disk::unknown(id));
    }
    match KubeletPath::parse(text) {
        Ok(path) => Ok(VolumeAtPath { handle, path }),
        Err(error) if error.problem() == PathProblem::NotAbsolute => Err(Failure::new(
            Condition::NotFound,
            format!("volume_path: volume {} is not at {text:?}: {error}", shortened(id)),
        )),
        Err(error) => Err(Failure::invalid("volume_path", error)),
    }
}

/// Parses NodeGetVolumeHealth: the places where the volume should be, the published one first.
pub(crate) fn health(
    request: &csi::NodeGetVolumeHealthRequest,
) -> Result<Vec<VolumeAtPath>, Failure> {
    require("volume_id", &request.volume_id)?;
    let handle = Handle::read(&request.volume_id);
    if handle == Handle::Unknown {
        return Err(disk::unknown(&request.volume_id));
    }
    [
        ("volume_publish_path", &request.volume_publish_path),
        ("staging_target_path", &request.staging_target_path),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(field, text)| Ok(VolumeAtPath { handle: handle.clone(), path: path(field, text)? }))
    .collect()
}

/// Parses NodeExpandVolume.
///
/// # Errors
/// As [`look_up`], and OUT_OF_RANGE for a capacity range that contains no size.
pub(crate) fn expand(request: &csi::NodeExpandVolumeRequest) -> Result<Growing, Failure> {
    require("volume_id", &request.volume_id)?;
    require("volume_path", &request.volume_path)?;
    if let Some(wire) = &request.volume_capability {
        capability(Some(wire), &Handle::read(&request.volume_id))?;
    }
    let range = match &request.capacity_range {
        Some(range) => CapacityRange::parse(range)?,
        None => CapacityRange::default(),
    };
    Ok(Growing {
        place: look_up(&request.volume_id, &request.volume_path)?,
        required_bytes: NonZeroU64::new(range.required.0),
        limit_bytes: range.limit.and_then(|limit| NonZeroU64::new(limit.0)),
    })
}

fn require(field: &str, value: &str) -> Result<(), Failure> {
    if value.is_empty() {
        return Err(Failure::missing(field));
    }
    Ok(())
}

fn path(field: &str, text: &str) -> Result<KubeletPath, Failure> {
    KubeletPath::parse(text).map_err(|error| Failure::invalid(field, error))
}

fn capability(
    given: Option<&csi::VolumeCapability>,
    handle: &Handle,
) -> Result<Capability, Failure> {
    let wire = given.ok_or_else(|| Failure::missing("volume_capability"))?;
    let several_nodes =
        wire.access_mode.is_some_and(|mode| mode.mode() == Mode::MultiNodeMultiWriter);
    if *handle == Handle::NodeLocal && several_nodes {
        // The handle stands for another volume on each node, so the nodes share nothing.
        let mut here = wire.clone();
        here.access_mode =
            Some(csi::volume_capability::AccessMode { mode: Mode::SingleNodeMultiWriter as i32 });
        return Capability::parse(&here);
    }
    Capability::parse(wire)
}

fn file_system(name: &str) -> Result<FsType, Failure> {
    if name.is_empty() {
        return Ok(FsType::Ext4);
    }
    FsType::parse(name).map_err(|error| Failure::invalid("volume_capability.mount.fs_type", error))
}

/// Parses the mount flags for one of `file_systems`.
fn mount_flags(
    strings: &[String],
    file_systems: &[FsType],
    read_only: bool,
) -> Result<Vec<wire::MountFlag>, Failure> {
    flag::parse(strings, file_systems, read_only).map_err(|error| {
        let advice = "remove it from the StorageClass or PersistentVolume";
        Failure::invalid("volume_capability.mount.mount_flags", format!("{error}; {advice}"))
    })
}

/// Parses the options of a new file system, whose keys the controller writes in lower case, and
/// checks them against the file system.
fn format_options(
    volume_context: &Context,
    fs: FsType,
    legacy_xfs: bool,
) -> Result<Vec<wire::FormatOption>, Failure> {
    let value = |row: &OptionRow| {
        let text = volume_context.get(row.context_key).map_or("", String::as_str);
        let (value, fault) = match (row.given_by, row.kind) {
            (GivenBy::LegacyXfsFlag, _) => return Ok(legacy_xfs.into()),
            (GivenBy::StorageClass, _) if text.is_empty() => return Ok(0),
            (GivenBy::StorageClass, OptionKind::Number) => {
                (parse_number(text), "not a positive number")
            }
            (GivenBy::StorageClass, OptionKind::Switch) => {
                (text.parse::<bool>().ok().map(u64::from), "neither true nor false")
            }
        };
        value.ok_or_else(|| {
            Failure::invalid(
                &format!("volume_context.{}", row.context_key),
                format!("{:?} is {fault}; correct it in the StorageClass", shortened(text)),
            )
        })
    };
    let given =
        ROWS.iter().map(|row| Ok(row.with(value(row)?))).collect::<Result<Vec<_>, Failure>>()?;
    FormatOptions::check(&given, fs)
        .map(|options| options.to_wire())
        .map_err(|error| Failure::invalid("volume_context", error))
}

/// Shortens a text for an error message.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
