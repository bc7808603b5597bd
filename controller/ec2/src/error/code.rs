//! The one table from EC2's error codes to their meanings.
//!
//! Each row cites where the code is documented: E is "Error codes for the Amazon EC2 API", T
//! "Request throttling for the Amazon EC2 API", A the API reference page of the action, X "Request
//! modifications to your EBS volumes", S the AWS STS API reference ("Common errors"), K the AWS KMS
//! key states page as EBS reports them. `text` narrows a row to messages that, in lower case,
//! contain it.

/// The meaning of an answer of EC2, or of the lack of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ec2ErrorKind {
    /// EC2's rate limit refused the call; nothing was done.
    Throttled,
    /// The driver's role lacks a permission.
    Unauthorized,
    /// The credential is missing, wrong or expired, or the clock is off.
    Credential,
    /// The account may not use this Region or is blocked.
    AccountBlocked,
    /// A dry run would have succeeded.
    DryRun,
    /// No such volume.
    VolumeNotFound,
    /// No such snapshot.
    SnapshotNotFound,
    /// No such instance.
    InstanceNotFound,
    /// The volume is not attached to that instance.
    AttachmentNotFound,
    /// The volume was never modified.
    ModificationNotFound,
    /// No such zone for this account.
    ZoneNotFound,
    /// An id that EC2 cannot have issued.
    MalformedId,
    /// A parameter has a value that can never work.
    InvalidParameter,
    /// The volume type does not come in this size.
    SizeOutOfRange,
    /// Parameters that exclude or need each other.
    InvalidCombination,
    /// No such volume type.
    UnknownVolumeType,
    /// Not supported for this resource.
    Unsupported,
    /// The device name is taken on that instance, or is none there.
    DeviceInUse,
    /// The client token was used with other parameters.
    TokenMismatch,
    /// The client token belongs to a resource that is deleted.
    TokenSpent,
    /// A pagination token that is not valid, or not any more.
    BadPageToken,
    /// The volume is attached.
    VolumeInUse,
    /// An image uses the snapshot.
    SnapshotInUse,
    /// The snapshot is locked.
    SnapshotLocked,
    /// AWS Backup manages the snapshot.
    ManagedByBackup,
    /// The resource is in a state that does not allow it now.
    IncorrectState,
    /// The volume is being modified.
    ModificationRunning,
    /// The volume was modified too often recently.
    ModificationRate,
    /// Volume and instance are in different zones.
    ZoneMismatch,
    /// The instance has no attachment slot left.
    AttachmentLimit,
    /// Quota of volumes or of their storage.
    VolumeQuota,
    /// Quota of provisioned IOPS.
    IopsQuota,
    /// Quota of snapshots.
    SnapshotQuota,
    /// Quota of storage under modification.
    ModificationQuota,
    /// Quota of copies in progress.
    CopyQuota,
    /// The resource has all the tags it can have, or a tag policy refuses one.
    TagRefused,
    /// Too many snapshots of this volume, or of this account, at once.
    SnapshotsPending,
    /// Snapshots of this volume were requested too quickly one after the other.
    SnapshotRate,
    /// The zone has no capacity for the volume.
    NoCapacity,
    /// The zone does not offer this volume type.
    TypeNotInZone,
    /// The encryption key cannot be used.
    Key,
    /// EC2 forbids the action for this resource, whatever the permissions (a root volume, a managed
    /// attachment).
    NotPermitted,
    /// Another request is changing the tags at this moment.
    TagConflict,
    /// EC2 failed.
    ServerError,
    /// No connection to EC2.
    Unreachable,
    /// No answer in time, or the connection broke before the answer was complete.
    NoAnswer,
    /// An answer that cannot be understood.
    Unreadable,
    /// The caller's deadline passed while the call waited for its turn.
    Deadline,
    /// Nobody waited for the change any more when its turn came.
    Unwanted,
    /// The facts that the change was decided on were too old when its turn came.
    Stale,
    /// Any other code.
    Other,
}

use Ec2ErrorKind as Kind;

/// The codes of a kind, with a text that narrows them. The first row that matches wins.
static TABLE: &[(Kind, &str, &[&str])] = &[
    // T, and the codes with which other AWS front ends report the same.
    (
        Kind::Throttled,
        "",
        &[
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "ProvisionedThroughputExceededException",
            "TransactionInProgressException",
            "BandwidthLimitExceeded",
            "LimitExceededException",
            "SlowDown",
            "PriorRequestNotComplete",
            "EC2ThrottledException",
        ],
    ),
    // E, common client errors; S.
    (Kind::DryRun, "", &["DryRunOperation"]),
    (Kind::Unauthorized, "", &["UnauthorizedOperation", "AccessDenied", "AccessDeniedException"]),
    (
        Kind::Credential,
        "",
        &[
            "AuthFailure",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "InvalidClientTokenId",
            "ExpiredToken",
            "ExpiredTokenException",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "InvalidIdentityToken",
        ],
    ),
    (Kind::AccountBlocked, "", &["OptInRequired", "Blocked", "PendingVerification"]),
    // E, not found.
    (Kind::VolumeNotFound, "", &["InvalidVolume.NotFound", "InvalidVolumeID.NotFound"]),
    (Kind::SnapshotNotFound, "", &["InvalidSnapshot.NotFound"]),
    (Kind::InstanceNotFound, "", &["InvalidInstanceID.NotFound"]),
    (Kind::AttachmentNotFound, "", &["InvalidAttachment.NotFound"]),
    (Kind::ModificationNotFound, "", &["InvalidVolumeModification.NotFound"]),
    (Kind::ZoneNotFound, "", &["InvalidZone.NotFound"]),
    // E, malformed.
    (
        Kind::MalformedId,
        "",
        &[
            "InvalidVolumeID.Malformed",
            "InvalidSnapshotID.Malformed",
            "InvalidInstanceID.Malformed",
            "InvalidID",
        ],
    ),
    (Kind::MalformedId, "is malformed", &["InvalidParameterValue"]),
    (Kind::MalformedId, "expected: 'vol-", &["InvalidParameterValue"]),
    (Kind::MalformedId, "expected: 'snap-", &["InvalidParameterValue"]),
    (Kind::MalformedId, "expected: 'i-", &["InvalidParameterValue"]),
    // A (AttachVolume): only the message distinguishes these from other bad values. The driver
    // chose the name, so it tries another.
    (Kind::DeviceInUse, "already in use", &["InvalidParameterValue"]),
    (Kind::DeviceInUse, "not a valid ebs device name", &["InvalidParameterValue"]),
    // A (DeleteSnapshot).
    (Kind::ManagedByBackup, "aws backup", &["InvalidParameterValue"]),
    (Kind::BadPageToken, "pagination token", &["InvalidParameterValue"]),
    // The limits of each type grow from time to time, so EC2's answer decides, not a table here.
    (Kind::SizeOutOfRange, "too large for volume type", &["InvalidParameterValue"]),
    (Kind::SizeOutOfRange, "the volume size is invalid for", &["InvalidParameterValue"]),
    (Kind::BadPageToken, "", &["InvalidNextToken", "InvalidPaginationToken"]),
    // E, parameters.
    (
        Kind::InvalidParameter,
        "",
        &[
            "InvalidParameterValue",
            "InvalidParameter",
            "InvalidInstanceType",
            "InvalidParameterDependency",
            "MissingParameter",
            "UnknownParameter",
            "MalformedQueryString",
            "ValidationError",
            "InvalidTagKey.Malformed",
        ],
    ),
    (Kind::InvalidCombination, "", &["InvalidParameterCombination"]),
    (Kind::UnknownVolumeType, "", &["UnknownVolumeType"]),
    (Kind::Unsupported, "", &["UnsupportedOperation", "Unsupported", "InvalidAction"]),
    (Kind::ZoneMismatch, "", &["InvalidVolume.ZoneMismatch"]),
    // E, idempotency.
    (Kind::TokenSpent, "already been deleted", &["IdempotentParameterMismatch"]),
    (Kind::TokenMismatch, "", &["IdempotentParameterMismatch"]),
    // E, state.
    (Kind::VolumeInUse, "", &["VolumeInUse"]),
    (Kind::SnapshotInUse, "", &["InvalidSnapshot.InUse"]),
    (Kind::SnapshotLocked, "", &["SnapshotLocked"]),
    (Kind::IncorrectState, "", &["IncorrectState", "IncorrectInstanceState"]),
    (Kind::ModificationRunning, "", &["IncorrectModificationState"]),
    (Kind::NotPermitted, "", &["OperationNotPermitted"]),
    // X.
    (Kind::ModificationRate, "", &["VolumeModificationRateExceeded"]),
    (Kind::ModificationQuota, "", &["VolumeModificationSizeLimitExceeded"]),
    // E, limits.
    (Kind::AttachmentLimit, "", &["AttachmentLimitExceeded"]),
    (Kind::VolumeQuota, "", &["VolumeLimitExceeded"]),
    (Kind::IopsQuota, "", &["MaxIOPSLimitExceeded", "VolumeIOPSLimit"]),
    (Kind::SnapshotQuota, "", &["SnapshotLimitExceeded"]),
    (Kind::CopyQuota, "", &["CopyVolumesLimitExceeded"]),
    (
        Kind::SnapshotsPending,
        "",
        &["PendingSnapshotLimitExceeded", "ConcurrentSnapshotLimitExceeded"],
    ),
    (Kind::SnapshotRate, "", &["SnapshotCreationPerVolumeRateExceeded"]),
    (Kind::TagRefused, "", &["TagLimitExceeded", "TagPolicyViolation"]),
    (Kind::TagConflict, "", &["ConcurrentTagAccess"]),
    (Kind::NoCapacity, "", &["InsufficientVolumeCapacity", "InsufficientCapacity"]),
    (Kind::TypeNotInZone, "", &["VolumeTypeNotAvailableInZone"]),
    // E and K.
    (
        Kind::Key,
        "",
        &["EncryptedVolumesNotSupported", "CustomerKeyHasBeenRevoked", "InvalidKmsKeyId"],
    ),
    // E, server errors.
    (
        Kind::ServerError,
        "",
        &[
            "InternalError",
            "InternalFailure",
            "ServerInternal",
            "ServiceUnavailable",
            "Unavailable",
            "RequestTimeout",
            "RequestTimeoutException",
            "RetryableError",
        ],
    ),
];

impl Ec2ErrorKind {
    /// Returns what a code and its message mean.
    pub fn of(code: &str, message: &str) -> Self {
        let lower = message.to_lowercase();
        let mut rows = TABLE.iter();
        match rows.find(|(_, text, codes)| codes.contains(&code) && lower.contains(text)) {
            Some((kind, ..)) => *kind,
            // EC2 passes on the codes of KMS (`KMSInvalidStateException`, `KMS.NotFoundException`):
            // K.
            None if code.starts_with("KMS") => Self::Key,
            None => Self::Other,
        }
    }

    /// Returns whether the same call may succeed a little later, although nobody changes anything.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Throttled
                | Self::ServerError
                | Self::Unreachable
                | Self::NoAnswer
                | Self::Unreadable
                | Self::TagConflict
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_tell_one_invalid_parameter_from_another() {
        const VALUE: &str = "InvalidParameterValue";
        const TOKEN: &str = "IdempotentParameterMismatch";
        let in_use = "Invalid value '/dev/xvdb' for unixDevice. Attachment point /dev/xvdb is already in use";
        let no_device = "Value (/dev/sdk1) for parameter device is invalid. /dev/sdk1 is not a valid EBS device name.";
        let backup = "This snapshot is managed by the AWS Backup service and cannot be deleted via EC2 APIs.";
        let not_a_volume = "Value (bad) for parameter volumes is invalid. Expected: 'vol-...'.";
        let large = "Volume of 65537GiB is too large for volume type gp3; maximum is 65536GiB";
        let small = "The volume size is invalid for io1 volumes: 1 GiB. io1 volumes must be at least 4 GiB in size.";
        let spent = "The client token 'T' is associated with resource 'vol-1' which has already been deleted. Please use a different client token.";
        let mismatch = "Parameters on this idempotent request are inconsistent with parameters used in previous request(s).";
        let rows = [
            (VALUE, in_use, Kind::DeviceInUse),
            (VALUE, no_device, Kind::DeviceInUse),
            (VALUE, backup, Kind::ManagedByBackup),
            (VALUE, "The volume ID 'bad' is malformed", Kind::MalformedId),
            (VALUE, not_a_volume, Kind::MalformedId),
            (VALUE, "Volume iops of 99 is too low; minimum is 100.", Kind::InvalidParameter),
            (VALUE, large, Kind::SizeOutOfRange),
            (VALUE, small, Kind::SizeOutOfRange),
            (VALUE, "Unable to parse pagination token", Kind::BadPageToken),
            (TOKEN, spent, Kind::TokenSpent),
            (TOKEN, mismatch, Kind::TokenMismatch),
            ("KMSInvalidStateException", "", Kind::Key),
            ("NeverHeardOf", "", Kind::Other),
        ];
        for (code, message, want) in rows {
            assert_eq!(Kind::of(code, message), want, "{code}: {message}");
        }
    }

    #[test]
    fn no_row_is_hidden_by_an_earlier_one() {
        let of_row = |(_, text, codes): &(_, &'static str, &'static [&'static str])| {
            codes.iter().map(|code| (*code, *text)).collect::<Vec<_>>()
        };
        let rows: Vec<(&str, &str)> = TABLE.iter().flat_map(of_row).collect();
        for (index, (code, text)) in rows.iter().enumerate() {
            let mut earlier = rows[..index].iter();
            let hidden = earlier.any(|(other, part)| other == code && text.contains(part));
            assert!(!hidden, "{code} {text:?} can never match");
        }
    }
}
