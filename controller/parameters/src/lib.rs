//! The parameters of StorageClasses, VolumeAttributesClasses and VolumeSnapshotClasses.
//!
//! Keys of StorageClasses and VolumeSnapshotClasses are matched in any letter case, keys of
//! VolumeAttributesClasses only as written; values always as written. An unknown key is an error
//! that names the key. One StorageClass may serve thousands of claims, so every error text is the
//! same for the same class.

mod format;
mod snapshot_class;
mod storage_class;
pub mod tag_key;
mod volume_attributes;

use std::collections::HashMap;

use ebs_csi_proto::Failure;
use ebs_csi_template::Fields;

pub use format::FormatKeys;
pub use snapshot_class::{Lock, LockMode, SnapshotClaim, SnapshotParameters, parse_time};
pub use storage_class::{VolumeParameters, WAIT_UNTIL_INITIALIZED};
pub use volume_attributes::VolumeAttributes;

/// The prefix of a key whose value is a tag, `key=value`.
const TAG_SPECIFICATION: &str = "tagSpecification";
/// The prefix of a key whose value is the key of a tag to delete.
const TAG_DELETION: &str = "tagDeletion";

const PVC_NAME: &str = "csi.storage.k8s.io/pvc/name";
const PVC_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
const PV_NAME: &str = "csi.storage.k8s.io/pv/name";

/// The claim that a volume is created for, from the provisioner's `--extra-create-metadata`. Its
/// fields are empty without that flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The name of the PersistentVolumeClaim.
    pub name: String,
    /// The namespace of the PersistentVolumeClaim.
    pub namespace: String,
    /// The name of the PersistentVolume.
    pub volume: String,
}

impl Claim {
    /// Stores the value of one of the three keys; returns `false` for any other key.
    fn accept(&mut self, key: &str, value: &str) -> bool {
        let slot = match key {
            PVC_NAME => &mut self.name,
            PVC_NAMESPACE => &mut self.namespace,
            PV_NAME => &mut self.volume,
            _ => return false,
        };
        value.clone_into(slot);
        true
    }

    /// Fills the empty fields from `other`.
    pub fn or(mut self, other: &Self) -> Self {
        for (mine, theirs) in [
            (&mut self.name, &other.name),
            (&mut self.namespace, &other.namespace),
            (&mut self.volume, &other.volume),
        ] {
            if mine.is_empty() {
                theirs.clone_into(mine);
            }
        }
        self
    }
}

impl Fields for Claim {
    fn field(&self, name: &str) -> Option<&str> {
        match name {
            "PVCName" => Some(&self.name),
            "PVCNamespace" => Some(&self.namespace),
            "PVName" => Some(&self.volume),
            _ => None,
        }
    }

    fn names(&self) -> &'static str {
        ".PVCName, .PVCNamespace and .PVName"
    }
}

/// Returns the entries in the order of their keys, so that the same class is always read in the
/// same order.
fn sorted(entries: &HashMap<String, String>) -> Vec<(&str, &str)> {
    let mut entries: Vec<_> =
        entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    entries.sort_unstable();
    entries
}

fn unknown_key(list: &str, key: &str, known: &str) -> Failure {
    Failure::invalid(
        list,
        format!("{:?} is not a parameter of this driver; known are {known}", truncate(key)),
    )
}

/// Parses a whole number from 0 to 2,147,483,647. Zero means "not given", as in the Go driver.
fn parse_number(list: &str, key: &str, value: &str) -> Result<Option<u32>, Failure> {
    match value.parse::<i32>() {
        Ok(parsed) if parsed >= 0 => Ok(Some(parsed.unsigned_abs()).filter(|n| *n > 0)),
        _ => Err(Failure::invalid(
            &format!("{list}.{key}"),
            format!("{:?} is not a whole number from 0 to {}", truncate(value), i32::MAX),
        )),
    }
}

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

/// Checks the form of a `tagSpecification` value, and returns it unchanged.
fn check_tag(list: &str, key: &str, value: &str) -> Result<String, Failure> {
    match value.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(value.to_owned()),
        _ => Err(Failure::invalid(
            &format!("{list}.{key}"),
            format!(
                "{:?} is not a tag; write it as key=value, for example team=storage (each tag under a key of its own: tagSpecification_1, tagSpecification_2)",
                truncate(value)
            ),
        )),
    }
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
