//! The keys of the driver's own tags, and the tags of a class: `key=value`, whose value is a
//! template.

use ebs_csi_proto::{DRIVER_NAME, Failure};
use ebs_csi_template::{Fields, TemplateError, check, render};

/// The key for the name of the CreateVolume request, by which an unfinished create is found again.
pub const VOLUME_NAME: &str = "CSIVolumeName";
/// The key for the name of the CreateSnapshot request.
pub const SNAPSHOT_NAME: &str = "CSIVolumeSnapshotName";
/// The key whose value is `true` on everything that this driver created; IAM policies compare it.
pub const CLUSTER: &str = "ebs.csi.aws.com/cluster";
/// The key for the cluster's id; cluster-scoped IAM policies compare it.
pub const CLUSTER_NAME: &str = "ebs.csi.aws.com/cluster-name";
/// The key for `iopsPerGB`, so that a later resize keeps the ratio.
pub const IOPS_PER_GIB: &str = "ebs.csi.aws.com/IOPSPerGb";
/// The key whose value is `true` when a resize may raise the IOPS by the ratio.
pub const RAISE_IOPS_ON_MODIFY: &str = "ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify";
/// The key for the name of the claim; volumes of the in-tree driver have it, too.
pub const CLAIM_NAME: &str = "kubernetes.io/created-for/pvc/name";

/// The key for the zones in which a snapshot's fast restores are to be enabled.
pub const PROMISED_FAST_RESTORES: &str = "ebs.csi.aws.com/fast-restore-zones";
/// The key for how a snapshot is to be locked.
pub const PROMISED_LOCK: &str = "ebs.csi.aws.com/lock";
/// The key for what was asked for when snapshots of several volumes were taken: how many, and a
/// digest of the volumes and parameters. Their [`SNAPSHOT_NAME`] is the group's id.
pub const GROUP_SNAPSHOT: &str = "ebs.csi.aws.com/group-snapshot";

/// Returns whether a tag is reserved for the driver, so that users cannot set or delete it.
pub fn is_reserved(key: &str) -> bool {
    [VOLUME_NAME, SNAPSHOT_NAME, CLUSTER_NAME].contains(&key)
        || key.starts_with("kubernetes.io")
        || key.strip_prefix(DRIVER_NAME).is_some_and(|rest| rest.starts_with('/'))
}

/// Checks a tag as far as that is possible without a claim.
///
/// # Errors
/// A tag that is not `key=value` or is reserved, or a template that cannot be parsed.
pub fn check_tag(list: &str, specification: &str) -> Result<(), Failure> {
    read(list, specification, check).map(drop)
}

/// Returns the key of a tag, and its value with the fields of a claim.
///
/// # Errors
/// A tag that is not `key=value` or is reserved, or whose template fails.
pub fn render_tag(
    list: &str,
    specification: &str,
    fields: &dyn Fields,
) -> Result<(String, String), Failure> {
    let (key, value) = read(list, specification, |value| render(value, fields))?;
    Ok((key.to_owned(), value))
}

fn read<'a, T>(
    list: &str,
    specification: &'a str,
    read_value: impl FnOnce(&str) -> Result<T, TemplateError>,
) -> Result<(&'a str, T), Failure> {
    let refuse = |why: String| Failure::invalid(&format!("{list}.tagSpecification"), why);
    let Some((key, value)) = specification.split_once('=') else {
        return Err(refuse(format!("{specification:?} is not key=value")));
    };
    if is_reserved(key) {
        return Err(refuse(format!("the tag {key:?} is the driver's own; use another key")));
    }
    let value = read_value(value).map_err(|why| refuse(format!("{specification:?}: {why}")))?;
    Ok((key, value))
}
