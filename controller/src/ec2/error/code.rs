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
    /// The device name is taken on that instance.
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

struct CodeKind {
    code: &'static str,
    text: &'static str,
    kind: Ec2ErrorKind,
}

const fn row(code: &'static str, kind: Ec2ErrorKind) -> CodeKind {
    CodeKind { code, text: "", kind }
}

const fn row_with(code: &'static str, text: &'static str, kind: Ec2ErrorKind) -> CodeKind {
    CodeKind { code, text, kind }
}

use Ec2ErrorKind as Kind;

/// The first row that matches wins.
static TABLE: &[CodeKind] = &[
    // T, and the codes with which other AWS front ends report the same.
    row("RequestLimitExceeded", Kind::Throttled),
    row("Throttling", Kind::Throttled),
    row("ThrottlingException", Kind::Throttled),
    row("ThrottledException", Kind::Throttled),
    row("RequestThrottled", Kind::Throttled),
    row("RequestThrottledException", Kind::Throttled),
    row("TooManyRequestsException", Kind::Throttled),
    row("ProvisionedThroughputExceededException", Kind::Throttled),
    row("TransactionInProgressException", Kind::Throttled),
    row("BandwidthLimitExceeded", Kind::Throttled),
    row("LimitExceededException", Kind::Throttled),
    row("SlowDown", Kind::Throttled),
    row("PriorRequestNotComplete", Kind::Throttled),
    row("EC2ThrottledException", Kind::Throttled),
    // E, common client errors; S.
    row("DryRunOperation", Kind::DryRun),
    row("UnauthorizedOperation", Kind::Unauthorized),
    row("AccessDenied", Kind::Unauthorized),
    row("AccessDeniedException", Kind::Unauthorized),
    row("AuthFailure", Kind::Credential),
    row("SignatureDoesNotMatch", Kind::Credential),
    row("IncompleteSignature", Kind::Credential),
    row("MissingAuthenticationToken", Kind::Credential),
    row("InvalidClientTokenId", Kind::Credential),
    row("ExpiredToken", Kind::Credential),
    row("ExpiredTokenException", Kind::Credential),
    row("RequestExpired", Kind::Credential),
    row("RequestTimeTooSkewed", Kind::Credential),
    row("InvalidIdentityToken", Kind::Credential),
    row("OptInRequired", Kind::AccountBlocked),
    row("Blocked", Kind::AccountBlocked),
    row("PendingVerification", Kind::AccountBlocked),
    // E, not found.
    row("InvalidVolume.NotFound", Kind::VolumeNotFound),
    row("InvalidVolumeID.NotFound", Kind::VolumeNotFound),
    row("InvalidSnapshot.NotFound", Kind::SnapshotNotFound),
    row("InvalidInstanceID.NotFound", Kind::InstanceNotFound),
    row("InvalidAttachment.NotFound", Kind::AttachmentNotFound),
    row("InvalidVolumeModification.NotFound", Kind::ModificationNotFound),
    row("InvalidZone.NotFound", Kind::ZoneNotFound),
    // E, malformed.
    row("InvalidVolumeID.Malformed", Kind::MalformedId),
    row("InvalidSnapshotID.Malformed", Kind::MalformedId),
    row("InvalidInstanceID.Malformed", Kind::MalformedId),
    row("InvalidID", Kind::MalformedId),
    row_with("InvalidParameterValue", "is malformed", Kind::MalformedId),
    row_with("InvalidParameterValue", "expected: 'vol-", Kind::MalformedId),
    row_with("InvalidParameterValue", "expected: 'snap-", Kind::MalformedId),
    row_with("InvalidParameterValue", "expected: 'i-", Kind::MalformedId),
    // A (AttachVolume): only the message distinguishes this from other bad values.
    row_with("InvalidParameterValue", "already in use", Kind::DeviceInUse),
    row_with("InvalidParameterValue", "pagination token", Kind::BadPageToken),
    // The limits of each type grow from time to time, so EC2's answer decides, not a table here.
    row_with("InvalidParameterValue", "too large for volume type", Kind::SizeOutOfRange),
    row_with("InvalidParameterValue", "the volume size is invalid for", Kind::SizeOutOfRange),
    row("InvalidNextToken", Kind::BadPageToken),
    row("InvalidPaginationToken", Kind::BadPageToken),
    // E, parameters.
    row("InvalidParameterValue", Kind::InvalidParameter),
    row("InvalidParameter", Kind::InvalidParameter),
    row("InvalidInstanceType", Kind::InvalidParameter),
    row("InvalidParameterDependency", Kind::InvalidParameter),
    row("MissingParameter", Kind::InvalidParameter),
    row("UnknownParameter", Kind::InvalidParameter),
    row("MalformedQueryString", Kind::InvalidParameter),
    row("ValidationError", Kind::InvalidParameter),
    row("InvalidTagKey.Malformed", Kind::InvalidParameter),
    row("InvalidParameterCombination", Kind::InvalidCombination),
    row("UnknownVolumeType", Kind::UnknownVolumeType),
    row("UnsupportedOperation", Kind::Unsupported),
    row("Unsupported", Kind::Unsupported),
    row("InvalidAction", Kind::Unsupported),
    row("InvalidVolume.ZoneMismatch", Kind::ZoneMismatch),
    // E, idempotency.
    row_with("IdempotentParameterMismatch", "already been deleted", Kind::TokenSpent),
    row("IdempotentParameterMismatch", Kind::TokenMismatch),
    // E, state.
    row("VolumeInUse", Kind::VolumeInUse),
    row("InvalidSnapshot.InUse", Kind::SnapshotInUse),
    row("SnapshotLocked", Kind::SnapshotLocked),
    row("IncorrectState", Kind::IncorrectState),
    row("IncorrectInstanceState", Kind::IncorrectState),
    row("IncorrectModificationState", Kind::ModificationRunning),
    row("OperationNotPermitted", Kind::NotPermitted),
    // X.
    row("VolumeModificationRateExceeded", Kind::ModificationRate),
    row("VolumeModificationSizeLimitExceeded", Kind::ModificationQuota),
    // E, limits.
    row("AttachmentLimitExceeded", Kind::AttachmentLimit),
    row("VolumeLimitExceeded", Kind::VolumeQuota),
    row("MaxIOPSLimitExceeded", Kind::IopsQuota),
    row("VolumeIOPSLimit", Kind::IopsQuota),
    row("SnapshotLimitExceeded", Kind::SnapshotQuota),
    row("CopyVolumesLimitExceeded", Kind::CopyQuota),
    row("PendingSnapshotLimitExceeded", Kind::SnapshotsPending),
    row("ConcurrentSnapshotLimitExceeded", Kind::SnapshotsPending),
    row("SnapshotCreationPerVolumeRateExceeded", Kind::SnapshotRate),
    row("TagLimitExceeded", Kind::TagRefused),
    row("TagPolicyViolation", Kind::TagRefused),
    row("ConcurrentTagAccess", Kind::TagConflict),
    row("InsufficientVolumeCapacity", Kind::NoCapacity),
    row("InsufficientCapacity", Kind::NoCapacity),
    row("VolumeTypeNotAvailableInZone", Kind::TypeNotInZone),
    // E and K.
    row("EncryptedVolumesNotSupported", Kind::Key),
    row("CustomerKeyHasBeenRevoked", Kind::Key),
    row("InvalidKmsKeyId", Kind::Key),
    // E, server errors.
    row("InternalError", Kind::ServerError),
    row("InternalFailure", Kind::ServerError),
    row("ServerInternal", Kind::ServerError),
    row("ServiceUnavailable", Kind::ServerError),
    row("Unavailable", Kind::ServerError),
    row("RequestTimeout", Kind::ServerError),
    row("RequestTimeoutException", Kind::ServerError),
    row("RetryableError", Kind::ServerError),
];

impl Ec2ErrorKind {
    /// Returns what a code and its message mean.
    pub fn of(code: &str, message: &str) -> Self {
        let lower = message.to_lowercase();
        TABLE
            .iter()
            .find(|row| row.code == code && lower.contains(row.text))
            .map_or_else(|| Self::of_unlisted_code(code), |row| row.kind)
    }

    fn of_unlisted_code(code: &str) -> Self {
        // EC2 passes on the codes of KMS (`KMSInvalidStateException`, `KMS.NotFoundException`): K.
        if code.starts_with("KMS") { Self::Key } else { Self::Other }
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
        let rows = [
            (
                "InvalidParameterValue",
                "Invalid value '/dev/xvdb' for unixDevice. Attachment point /dev/xvdb is already in use",
                Kind::DeviceInUse,
            ),
            ("InvalidParameterValue", "The volume ID 'bad' is malformed", Kind::MalformedId),
            (
                "InvalidParameterValue",
                "Value (bad) for parameter volumes is invalid. Expected: 'vol-...'.",
                Kind::MalformedId,
            ),
            (
                "InvalidParameterValue",
                "Volume iops of 99 is too low; minimum is 100.",
                Kind::InvalidParameter,
            ),
            (
                "InvalidParameterValue",
                "Volume of 65537GiB is too large for volume type gp3; maximum is 65536GiB",
                Kind::SizeOutOfRange,
            ),
            (
                "InvalidParameterValue",
                "The volume size is invalid for io1 volumes: 1 GiB. io1 volumes must be at least 4 GiB in size.",
                Kind::SizeOutOfRange,
            ),
            ("InvalidParameterValue", "Unable to parse pagination token", Kind::BadPageToken),
            (
                "IdempotentParameterMismatch",
                "The client token 'T' is associated with resource 'vol-1' which has already been deleted. Please use a different client token.",
                Kind::TokenSpent,
            ),
            (
                "IdempotentParameterMismatch",
                "Parameters on this idempotent request are inconsistent with parameters used in previous request(s).",
                Kind::TokenMismatch,
            ),
            ("KMSInvalidStateException", "", Kind::Key),
            ("NeverHeardOf", "", Kind::Other),
        ];
        for (code, message, want) in rows {
            assert_eq!(Kind::of(code, message), want, "{code}: {message}");
        }
    }

    #[test]
    fn no_row_is_hidden_by_an_earlier_one() {
        for (index, row) in TABLE.iter().enumerate() {
            let hidden = TABLE[..index]
                .iter()
                .any(|earlier| earlier.code == row.code && row.text.contains(earlier.text));
            assert!(!hidden, "{} {:?} can never match", row.code, row.text);
        }
    }
}
