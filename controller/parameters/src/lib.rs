//! The parameters of StorageClasses, VolumeAttributesClasses and VolumeSnapshotClasses.
//!
//! Each class has a table with a row for each key ([`Row`]): the parser reads what the table holds,
//! and `deploy/docs/parameters.md` and the lists of the chart are generated from it. The rows of
//! format options are those of `policy/format-options.toml`. Keys of
//! StorageClasses and VolumeSnapshotClasses are matched in any letter case, keys of
//! VolumeAttributesClasses only as written; values always as written. An unknown key is an error
//! that names the key. One StorageClass may serve thousands of claims, so every error text is the
//! same for the same class.

mod claim;
mod format;
mod row;
mod snapshot_class;
mod storage_class;
pub mod tag;
mod volume_attributes;

use ebs_csi_proto::Failure;

pub use claim::{Claim, SnapshotClaim};
pub use format::FormatKeys;
pub use row::{Form, Row};
pub use snapshot_class::{Lock, LockMode, SnapshotParameters, parse_time};
pub use storage_class::{VolumeParameters, WAIT_UNTIL_INITIALIZED};
pub use tag::{check_tag, render_tag};
pub use volume_attributes::VolumeAttributes;

/// Parses a boolean; an empty value is false. The Go driver reads every other value as false, so
/// that `encrypted: "True"` makes a volume that is not encrypted.
fn parse_boolean(list: &str, key: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        _ => Err(Failure::invalid(
            &format!("{list}.{key}"),
            format!("{:?} is neither \"true\" nor \"false\"", truncate(value)),
        )),
    }
}

/// Returns the start of a user's value for an error text, limited in length.
fn truncate(text: &str) -> String {
    text.chars().take(128).collect()
}

/// Refuses `iops` and `iopsPerGB` in one class.
fn refuse_both_iops(list: &str, iops: Option<u32>, per_gib: Option<u32>) -> Result<(), Failure> {
    if iops.is_some() && per_gib.is_some() {
        return Err(Failure::invalid(
            list,
            "iops and iopsPerGB exclude each other; keep one of them",
        ));
    }
    Ok(())
}
