//! The next step for the reader of a failed call, or what the driver does without the reader.

use crate::error::code::Ec2ErrorKind as Kind;

/// Returns the next step for a kind of error and EC2's code and message; `None` where the message
/// already names it.
pub(super) fn advice(kind: Kind, code: Option<&str>, message: &str) -> Option<&'static str> {
    Some(match kind {
        Kind::Unauthorized => authorization_advice(message),
        Kind::Credential => credential_advice(code),
        Kind::AccountBlocked => {
            "check the account's standing and that the Region is enabled for it"
        }
        Kind::Unreachable => {
            "check the network path and name resolution to the EC2 endpoint, and AWS_REGION and AWS_EC2_ENDPOINT"
        }
        Kind::Throttled => {
            "it is retried; other users of this account and Region share the request quota"
        }
        Kind::VolumeQuota | Kind::IopsQuota | Kind::SnapshotQuota | Kind::ModificationQuota => {
            "raise the EBS quota of this account and Region, or free some of it"
        }
        Kind::SizeOutOfRange => {
            "change the size that capacity_range asks for, or the volume's type"
        }
        Kind::AttachmentLimit => "the instance has no free attachment; use another node",
        Kind::Key => {
            "check that the KMS key is enabled and that its policy lets the controller's role use it"
        }
        Kind::VolumeNotFound | Kind::SnapshotNotFound | Kind::InstanceNotFound => {
            "it was deleted, or is in another account or Region: compare it with what EC2 shows for AWS_REGION"
        }
        Kind::ZoneNotFound => {
            "use a zone of this account (other accounts give their names to other zones; a zone id is the same for all)"
        }
        Kind::MalformedId => "check the id: EC2 has not issued it",
        Kind::InvalidParameter
        | Kind::InvalidCombination
        | Kind::UnknownVolumeType
        | Kind::Unsupported => {
            "correct what the class asks for (a StorageClass cannot be changed: make another), or what the request does"
        }
        Kind::BadPageToken => "list again from the beginning",
        Kind::VolumeInUse => "detach the volume first",
        Kind::SnapshotInUse if message.to_lowercase().contains("fast snapshot restore") => {
            "disable its fast snapshot restores first"
        }
        Kind::SnapshotInUse => "deregister the image that uses the snapshot first",
        Kind::ManagedByBackup => {
            "delete its recovery point in AWS Backup, or set the VolumeSnapshotContent's deletionPolicy to Retain"
        }
        Kind::SnapshotLocked => "wait until the lock ends, or lift it",
        Kind::ModificationRunning => "it is retried when the running modification has ended",
        Kind::ModificationRate => "wait, or leave the volume as it is: it stays usable",
        Kind::ZoneMismatch => "use a node in the volume's zone",
        Kind::TagRefused => {
            "take tags out of the class or --extra-tags, or change the account's tag policy"
        }
        Kind::CopyQuota | Kind::SnapshotsPending => {
            "it is retried when the running ones have ended"
        }
        Kind::SnapshotRate => "it is retried: EC2 takes one snapshot of a volume in 15 s",
        Kind::NoCapacity => {
            "use another zone (volumeBindingMode WaitForFirstConsumer lets the scheduler choose one) or volume type, or wait"
        }
        Kind::TypeNotInZone => "use a volume type that the zone offers, or another zone",
        Kind::NotPermitted => {
            "leave it: an instance boots from it, or another AWS service manages it"
        }
        Kind::ServerError | Kind::NoAnswer | Kind::Unreadable => {
            "it is retried; if it stays, see the AWS Health Dashboard, and the proxy on the way if there is one"
        }
        Kind::IncorrectState
        | Kind::DeviceInUse
        | Kind::TokenMismatch
        | Kind::TokenSpent
        | Kind::TagConflict => "it is retried",
        Kind::Other => "see the error codes of the EC2 API for what it means",
        Kind::AttachmentNotFound
        | Kind::ModificationNotFound
        | Kind::DryRun
        | Kind::Deadline
        | Kind::Unwanted
        | Kind::Stale => return None,
    })
}

/// Returns what to do about an action that a policy refuses (IAM User Guide, "Troubleshoot access
/// denied error messages").
fn authorization_advice(message: &str) -> &'static str {
    if message.contains("explicit deny") {
        return "change the policy that denies it: a deny overrides every policy that allows";
    }
    match message.contains("because no ") && !message.contains("identity-based policy") {
        true => "allow this action in that policy, as well as in the controller's own",
        false => "allow this action in the IAM policy of the controller's role",
    }
}

/// Returns what to do about a credential that AWS refused with this code.
fn credential_advice(code: Option<&str>) -> &'static str {
    match code {
        Some("RequestExpired" | "RequestTimeTooSkewed") => {
            "set this node's clock (NTP): AWS takes a request for 5 minutes; if the clock is right, the session credentials have expired and their source does not renew them"
        }
        Some("ExpiredToken" | "ExpiredTokenException") => {
            "new credentials are fetched and the call is made again; if this stays, their source does not renew them (session keys in a secret never are: use a ServiceAccount role or Pod Identity)"
        }
        Some("SignatureDoesNotMatch" | "IncompleteSignature") => {
            "check that the secret access key belongs to the access key id, that no proxy changes requests, and this node's clock"
        }
        Some("AuthFailure" | "InvalidClientTokenId" | "MissingAuthenticationToken") => {
            "check that the access key or role session exists, is active and belongs to this partition, that the Region is enabled for the account, and this node's clock"
        }
        _ => {
            "check the controller's AWS credentials (ServiceAccount role, Pod Identity association or secret) and the node's clock"
        }
    }
}
