//! A VolumeSnapshotClass's parameters: CreateSnapshot's `parameters`.

use std::collections::HashMap;

use ebs_csi_ec2::Timestamp;
use ebs_csi_proto::Failure;

use super::{TAG_SPECIFICATION, check_tag, parse_number, sorted, truncate, unknown_key};
use crate::request::template::Fields;

const LIST: &str = "parameters";
const KNOWN: &str = "fastSnapshotRestoreAvailabilityZones, outpostArn, lockMode, lockDuration, lockExpirationDate, lockCoolOffPeriod and tagSpecification_N";

/// The most bytes of a list of zones. Its tag records the zones with one byte between two of them,
/// and EC2 takes 256 characters (EC2 user guide, "Tag restrictions"). No region has that many
/// zones.
const MAX_ZONES_LENGTH: usize = 255;

/// The VolumeSnapshot that a snapshot is taken for, from the snapshotter's
/// `--extra-create-metadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SnapshotClaim {
    /// The name of the VolumeSnapshot.
    pub name: String,
    /// The namespace of the VolumeSnapshot.
    pub namespace: String,
    /// The name of the VolumeSnapshotContent.
    pub content: String,
}

impl Fields for SnapshotClaim {
    fn field(&self, name: &str) -> Option<&str> {
        match name {
            "VolumeSnapshotName" => Some(&self.name),
            "VolumeSnapshotNamespace" => Some(&self.namespace),
            "VolumeSnapshotContentName" => Some(&self.content),
            _ => None,
        }
    }

    fn names(&self) -> &'static str {
        ".VolumeSnapshotName, .VolumeSnapshotNamespace and .VolumeSnapshotContentName"
    }
}

/// How a snapshot is locked (EC2 API, LockSnapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockMode {
    /// A user with the permission can remove the lock.
    Governance,
    /// Nobody can remove the lock once the cooling-off period is over.
    Compliance,
}

impl LockMode {
    /// Returns EC2's name of the mode.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Governance => "governance",
            Self::Compliance => "compliance",
        }
    }
}

/// A lock on the new snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    /// `lockMode`.
    pub mode: LockMode,
    /// `lockDuration` in days.
    pub duration_days: Option<u32>,
    /// `lockExpirationDate`, RFC 3339.
    pub expiration: Option<Timestamp>,
    /// `lockCoolOffPeriod` in hours.
    pub cool_off_hours: Option<u32>,
}

/// The parameters of a VolumeSnapshotClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SnapshotParameters {
    /// `fastSnapshotRestoreAvailabilityZones`.
    pub fast_restore_zones: Vec<String>,
    /// `outpostArn`.
    pub outpost: Option<String>,
    /// The lock, when any of its keys is given.
    pub lock: Option<Lock>,
    /// The VolumeSnapshot.
    pub claim: SnapshotClaim,
    /// Values of `tagSpecification_N`, in the order of their keys.
    pub tags: Vec<String>,
}

impl SnapshotParameters {
    /// Reads the parameters. Keys are matched in any letter case.
    ///
    /// # Errors
    /// An unknown key, or an invalid value; the text names the key. All keys of a lock are checked
    /// here, because a snapshot that is taken and then cannot be locked has to be deleted again.
    pub(crate) fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        let (mut mode, mut days, mut expiration, mut hours) = (None, None, None, None);
        for (key_as_written, value) in sorted(parameters) {
            if key_as_written.starts_with(TAG_SPECIFICATION) {
                parsed.tags.push(check_tag(LIST, key_as_written, value)?);
                continue;
            }
            let invalid =
                |reason: String| Failure::invalid(&format!("{LIST}.{key_as_written}"), reason);
            match key_as_written.to_ascii_lowercase().as_str() {
                "fastsnapshotrestoreavailabilityzones" => {
                    parsed.fast_restore_zones = zones(value).ok_or_else(|| {
                        invalid(format!("is a list of zone names with commas between them, of at most {MAX_ZONES_LENGTH} bytes"))
                    })?;
                }
                "outpostarn" => {
                    if !is_arn(value) {
                        return Err(invalid(format!("{:?} is not an ARN", truncate(value))));
                    }
                    parsed.outpost = Some(value.to_owned());
                }
                "lockmode" => {
                    mode = Some(match value {
                        "governance" => LockMode::Governance,
                        "compliance" => LockMode::Compliance,
                        _ => {
                            return Err(invalid(format!(
                                "{:?} is not governance or compliance",
                                truncate(value)
                            )));
                        }
                    });
                }
                "lockduration" => days = parse_number(LIST, key_as_written, value)?,
                "lockexpirationdate" => {
                    expiration = Some(Timestamp::parse(value).ok_or_else(|| {
                        invalid(format!(
                            "{:?} is not a time as RFC 3339 writes it (2030-01-31T00:00:00Z)",
                            truncate(value)
                        ))
                    })?);
                }
                "lockcooloffperiod" => hours = parse_number(LIST, key_as_written, value)?,
                "csi.storage.k8s.io/volumesnapshot/name" => {
                    value.clone_into(&mut parsed.claim.name)
                }
                "csi.storage.k8s.io/volumesnapshot/namespace" => {
                    value.clone_into(&mut parsed.claim.namespace);
                }
                "csi.storage.k8s.io/volumesnapshotcontent/name" => {
                    value.clone_into(&mut parsed.claim.content);
                }
                _ => return Err(unknown_key(LIST, key_as_written, KNOWN)),
            }
        }
        parsed.lock = lock(mode, days, expiration, hours)?;
        // EBS user guide, "Amazon EBS fast snapshot restore": not supported on Outposts.
        if parsed.outpost.is_some() && !parsed.fast_restore_zones.is_empty() {
            return Err(Failure::invalid(
                &format!("{LIST}.fastSnapshotRestoreAvailabilityZones"),
                "is not possible with outpostArn: EC2 has no fast restores of snapshots on an Outpost; keep one of the two",
            ));
        }
        Ok(parsed)
    }
}

fn lock(
    mode: Option<LockMode>,
    duration_days: Option<u32>,
    expiration: Option<Timestamp>,
    cool_off_hours: Option<u32>,
) -> Result<Option<Lock>, Failure> {
    let refuse = |key: &str, reason: &str| Err(Failure::invalid(&format!("{LIST}.{key}"), reason));
    let Some(mode) = mode else {
        if duration_days.is_some() || expiration.is_some() || cool_off_hours.is_some() {
            return refuse(
                "lockMode",
                "is needed with the other lock keys; use governance or compliance",
            );
        }
        return Ok(None);
    };
    if duration_days.is_some() == expiration.is_some() {
        return refuse(
            "lockDuration",
            "a lock needs one of lockDuration and lockExpirationDate, and not both",
        );
    }
    if duration_days.is_some_and(|days| days > 36_500) {
        return refuse("lockDuration", "is from 1 to 36500 days");
    }
    if cool_off_hours.is_some() && mode == LockMode::Governance {
        return refuse("lockCoolOffPeriod", "is for lockMode compliance only");
    }
    if cool_off_hours.is_some_and(|hours| hours > 72) {
        return refuse("lockCoolOffPeriod", "is from 1 to 72 hours");
    }
    Ok(Some(Lock { mode, duration_days, expiration, cool_off_hours }))
}

fn zones(value: &str) -> Option<Vec<String>> {
    let zones: Vec<_> = value.replace(' ', "").split(',').map(str::to_owned).collect();
    let fits = zones.join(" ").len() <= MAX_ZONES_LENGTH;
    (fits && zones.iter().all(|zone| !zone.is_empty())).then_some(zones)
}

/// `arn:partition:service:region:account:resource`.
fn is_arn(value: &str) -> bool {
    let parts: Vec<_> = value.splitn(6, ':').collect();
    matches!(parts[..], ["arn", partition, service, _, _, resource] if !partition.is_empty() && !service.is_empty() && !resource.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<SnapshotParameters, Failure> {
        let map = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        SnapshotParameters::parse(&map)
    }

    #[test]
    fn snapshot_class_keys_parse_in_mixed_case() {
        let parsed = parse(&[
            ("outpostARN", "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1"),
            ("lockMode", "compliance"),
            ("lockDuration", "7"),
            ("lockCoolOffPeriod", "24"),
            ("csi.storage.k8s.io/volumesnapshot/name", "s"),
            ("tagSpecification_1", "a={{ .VolumeSnapshotName }}"),
        ])
        .unwrap();
        assert!(parsed.outpost.is_some());
        let fast = parse(&[("FastSnapshotRestoreAvailabilityZones", "us-east-1a, us-east-1b")]);
        assert_eq!(fast.unwrap().fast_restore_zones, ["us-east-1a", "us-east-1b"]);
        let lock = parsed.lock.unwrap();
        assert_eq!(lock.mode, LockMode::Compliance);
        assert_eq!((lock.duration_days, lock.cool_off_hours), (Some(7), Some(24)));
        let tag = crate::request::template::render(&parsed.tags[0], &parsed.claim);
        assert_eq!(tag.unwrap(), "a=s");
        let expiration = ("lockExpirationDate", "2030-01-31T00:00:00Z");
        assert!(parse(&[("lockMode", "governance"), expiration]).is_ok());
    }

    #[test]
    fn invalid_parameter_is_refused_with_key_or_reason() {
        let many = "us-east-1a,".repeat(24) + "b";
        let rows: [(&[(&str, &str)], &str); 13] = [
            (&[("nosuch", "1")], "nosuch"),
            (&[("fastSnapshotRestoreAvailabilityZones", &many)], "at most 255 bytes"),
            (&[("fastSnapshotRestoreAvailabilityZones", "")], "fastSnapshot"),
            (&[("fastSnapshotRestoreAvailabilityZones", "a,,b")], "fastSnapshot"),
            (&[("outpostArn", "op-1")], "outpostArn"),
            (&[("lockMode", "soft")], "lockMode"),
            (&[("lockDuration", "7")], "lockMode"),
            (&[("lockMode", "governance")], "lockDuration"),
            (
                &[("lockMode", "governance"), ("lockDuration", "1"), ("lockCoolOffPeriod", "1")],
                "lockCoolOffPeriod",
            ),
            (&[("lockMode", "governance"), ("lockDuration", "40000")], "36500"),
            (&[("lockMode", "governance"), ("lockExpirationDate", "soon")], "lockExpirationDate"),
            (&[("lockDuration", "x")], "lockDuration"),
            (
                &[("tagSpecification_2", "team")],
                "tagSpecification_2: \"team\" is not a tag; write it as key=value",
            ),
        ];
        for (entries, word) in rows {
            let failure = parse(entries).unwrap_err();
            assert!(failure.text().contains(word), "{entries:?}: {failure}");
        }
    }
}
