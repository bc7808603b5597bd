//! A VolumeSnapshotClass's parameters: CreateSnapshot's `parameters`.

use std::collections::HashMap;
use std::time::SystemTime;

use ebs_csi_proto::Failure;

use crate::claim::SnapshotClaim;
use crate::row::{Class, Form, Row, Store, read, rows};
use crate::storage_class::TAG_SPECIFICATION;
use crate::truncate;

/// The most bytes of a list of zones. Its tag records the zones with one byte between two of them,
/// and EC2 takes 256 characters (EC2 user guide, "Tag restrictions"). No region has that many
/// zones.
const MAX_ZONES_LENGTH: usize = 255;

const LOCK_DAYS: u32 = 36_500;
const COOL_OFF_HOURS: u32 = 72;

const TABLE: &[(Row, Store<Keys>)] = &[
    (
        Row {
            key: "fastSnapshotRestoreAvailabilityZones",
            form: Form::Text("zones with commas between them, at most 255 bytes"),
            example: "us-east-1a, us-east-1b",
            meaning: "The zones in which EC2 restores the snapshot without loading its blocks first.",
            ..Row::NONE
        },
        |class, given| {
            let zones = zones(given.value).ok_or_else(|| {
                given.invalid(format!("is a list of zone names with commas between them, of at most {MAX_ZONES_LENGTH} bytes"))
            })?;
            class.parameters.fast_restore_zones = zones;
            Ok(())
        },
    ),
    (
        Row {
            key: "outpostArn",
            form: Form::Text("an ARN"),
            default: "the Region",
            example: "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1",
            meaning: "The Outpost that keeps the snapshot; not with fast restores.",
            ..Row::NONE
        },
        |class, given| {
            if !is_arn(given.value) {
                return Err(given.invalid(format!("{:?} is not an ARN", truncate(given.value))));
            }
            class.parameters.outpost = Some(given.value.to_owned());
            Ok(())
        },
    ),
    (
        Row {
            key: "lockMode",
            form: Form::Words(&["governance", "compliance"]),
            default: "no lock",
            go_driver: "EC2 judges the lock, after the snapshot is taken",
            example: "governance",
            example_with: &[("lockDuration", "7")],
            meaning: "Locks the snapshot against deletion; a lock of mode `compliance` can never be lifted.",
        },
        |class, given| {
            class.mode = Some(match given.value {
                "governance" => LockMode::Governance,
                "compliance" => LockMode::Compliance,
                value => {
                    let value = truncate(value);
                    return Err(given.invalid(format!("{value:?} is not governance or compliance")));
                }
            });
            Ok(())
        },
    ),
    (
        Row {
            key: "lockDuration",
            form: Form::Number { most: LOCK_DAYS, unit: "days" },
            example: "7",
            example_with: &[("lockMode", "governance")],
            meaning: "How long the lock stays; a lock has either this or `lockExpirationDate`.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.duration_days = it),
    ),
    (
        Row {
            key: "lockExpirationDate",
            form: Form::Text("a time as RFC 3339 writes it"),
            go_driver: "a date that has passed makes and deletes a snapshot at each retry",
            example: "2030-01-31T00:00:00Z",
            example_with: &[("lockMode", "governance")],
            meaning: "When the lock ends; a date that has passed is refused.",
            ..Row::NONE
        },
        |class, given| {
            let time = parse_time(given.value).ok_or_else(|| {
                given.invalid(format!(
                    "{:?} is not a time as RFC 3339 writes it (2030-01-31T00:00:00Z)",
                    truncate(given.value)
                ))
            })?;
            class.expiration = Some(time);
            Ok(())
        },
    ),
    (
        Row {
            key: "lockCoolOffPeriod",
            form: Form::Number { most: COOL_OFF_HOURS, unit: "hours" },
            default: "none",
            example: "24",
            example_with: &[("lockMode", "compliance"), ("lockDuration", "7")],
            meaning: "How long a lock of mode `compliance` can still be lifted.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.cool_off_hours = it),
    ),
    (
        Row { example: "team={{ .VolumeSnapshotNamespace }}", ..TAG_SPECIFICATION },
        |class, given| given.tag().map(|tag| class.parameters.tags.push(tag)),
    ),
];

/// How a snapshot is locked (EC2 API, LockSnapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// A user with the permission can remove the lock.
    Governance,
    /// Nobody can remove the lock once the cooling-off period is over.
    Compliance,
}

impl LockMode {
    /// Returns EC2's name of the mode.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Governance => "governance",
            Self::Compliance => "compliance",
        }
    }
}

/// A lock on the new snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// `lockMode`.
    pub mode: LockMode,
    /// `lockDuration` in days.
    pub duration_days: Option<u32>,
    /// `lockExpirationDate`, RFC 3339.
    pub expiration: Option<SystemTime>,
    /// `lockCoolOffPeriod` in hours.
    pub cool_off_hours: Option<u32>,
}

/// The parameters of a VolumeSnapshotClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotParameters {
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

/// The keys of a class as they were given.
#[derive(Default)]
struct Keys {
    parameters: SnapshotParameters,
    mode: Option<LockMode>,
    duration_days: Option<u32>,
    expiration: Option<SystemTime>,
    cool_off_hours: Option<u32>,
}

impl Class for Keys {
    const LIST: &'static str = "parameters";
    const ANY_CASE: bool = true;

    fn table() -> impl Iterator<Item = (Row, Store<Self>)> {
        let claim: Store<Self> = |class, given| {
            class.parameters.claim.store(given);
            Ok(())
        };
        TABLE.iter().copied().chain(SnapshotClaim::ROWS.map(|row| (row, claim)))
    }
}

impl SnapshotParameters {
    /// Returns the row of each key.
    #[must_use]
    pub fn rows() -> Vec<Row> {
        rows::<Keys>()
    }

    /// Reads the parameters. Keys are matched in any letter case.
    ///
    /// # Errors
    /// An unknown key, or an invalid value; the text names the key. All keys of a lock are checked
    /// here, because a snapshot that is taken and then cannot be locked has to be deleted again.
    pub fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let keys = read::<Keys>(parameters)?;
        let lock = keys.lock()?;
        // EBS user guide, "Amazon EBS fast snapshot restore": not supported on Outposts.
        if keys.parameters.outpost.is_some() && !keys.parameters.fast_restore_zones.is_empty() {
            return Err(refusal(
                "fastSnapshotRestoreAvailabilityZones",
                "is not possible with outpostArn: EC2 has no fast restores of snapshots on an Outpost; keep one of the two",
            ));
        }
        Ok(Self { lock, ..keys.parameters })
    }
}

fn refusal(key: &str, reason: &str) -> Failure {
    Failure::invalid(&format!("{}.{key}", Keys::LIST), reason)
}

impl Keys {
    fn lock(&self) -> Result<Option<Lock>, Failure> {
        let Self { mode, duration_days, expiration, cool_off_hours, .. } = *self;
        let Some(mode) = mode else {
            if duration_days.is_some() || expiration.is_some() || cool_off_hours.is_some() {
                return Err(refusal(
                    "lockMode",
                    "is needed with the other lock keys; use governance or compliance",
                ));
            }
            return Ok(None);
        };
        if duration_days.is_some() == expiration.is_some() {
            return Err(refusal(
                "lockDuration",
                "a lock needs one of lockDuration and lockExpirationDate, and not both",
            ));
        }
        if cool_off_hours.is_some() && mode == LockMode::Governance {
            return Err(refusal("lockCoolOffPeriod", "is for lockMode compliance only"));
        }
        Ok(Some(Lock { mode, duration_days, expiration, cool_off_hours }))
    }
}

fn zones(value: &str) -> Option<Vec<String>> {
    let zones: Vec<_> = value.replace(' ', "").split(',').map(str::to_owned).collect();
    let fits = zones.join(" ").len() <= MAX_ZONES_LENGTH;
    (fits && zones.iter().all(|zone| !zone.is_empty())).then_some(zones)
}

/// Parses a time as RFC 3339 writes it. `None` also for a date alone, and for a time without offset
/// or without the minutes of its offset, which prost-types would parse.
#[must_use]
pub fn parse_time(text: &str) -> Option<SystemTime> {
    let offset = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let has_offset = matches!(offset, "Z" | "z") || offset.get(3..4) == Some(":");
    let time = text.parse::<prost_types::Timestamp>().ok().filter(|_| has_offset)?;
    SystemTime::try_from(time).ok()
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
        let tag = ebs_csi_template::render(&parsed.tags[0], &parsed.claim);
        assert_eq!(tag.unwrap(), "a=s");
        let expiration = ("lockExpirationDate", "2030-01-31T00:00:00Z");
        assert!(parse(&[("lockMode", "governance"), expiration]).is_ok());
    }

    #[test]
    fn times_parse_as_rfc_3339_writes_them() {
        let seconds = |text| {
            parse_time(text)
                .map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64())
        };
        for (text, expected) in [
            ("2030-01-31T00:00:00Z", Some(1_896_048_000.0)),
            ("2030-01-31T00:00:00.5Z", Some(1_896_048_000.5)),
            ("2030-01-31T01:00:00+01:00", Some(1_896_048_000.0)),
            ("2030-01-30T22:30:00-01:30", Some(1_896_048_000.0)),
            ("2030-01-31", None),
            ("2030-01-31T00:00Z", None),
            ("2030-01-31T00:00:00", None),
            ("2030-01-31T01:00:00+01", None),
            ("2030-02-30T00:00:00Z", None),
            ("2030-01-31T00:00:00Zzz", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_parameter_is_refused_with_key_or_reason() {
        let many = "us-east-1a,".repeat(24) + "b";
        let rows: [(&[(&str, &str)], &str); 17] = [
            (&[("nosuch", "1")], "nosuch"),
            (&[("nosuch", "1")], "lockCoolOffPeriod and tagSpecification_N"),
            (&[("LockMode", "governance"), ("lockMode", "compliance")], "lockmode is given twice"),
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
            (
                &[
                    ("lockMode", "governance"),
                    ("lockDuration", "7"),
                    ("lockExpirationDate", "2030-01-31T01:00:00+01:00"),
                ],
                "not both",
            ),
            (
                &[
                    ("outpostArn", "arn:aws:outposts:us-east-1:111122223333:outpost/op-0a"),
                    ("fastSnapshotRestoreAvailabilityZones", "us-east-1a"),
                ],
                "keep one of the two",
            ),
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
