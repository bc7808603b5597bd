//! A failed call to EC2, in the driver's terms.

pub(super) mod code;

use std::error::Error as StdError;
use std::fmt;

use super::calls::Action;
use code::Ec2ErrorKind;

/// Whether the request may have had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The request never left, or was refused before it was processed: nothing happened.
    Not,
    /// The request left and no usable answer came: the effect may have happened, or may still
    /// happen.
    Maybe,
    /// EC2 answered that the request had no effect.
    Answered,
}

/// A failed call. `Display` names what failed, why, the next step, and EC2's request id.
#[derive(Clone, Debug)]
pub struct Ec2Error {
    /// The meaning of the failure.
    pub kind: Ec2ErrorKind,
    /// The action that was called.
    pub action: Action,
    /// EC2's error code, when it gave one.
    pub code: Option<String>,
    /// EC2's message, or the driver's where EC2 gave none.
    pub message: String,
    /// EC2's id of the request, for AWS support.
    pub request_id: Option<String>,
    /// Whether the effect may have happened.
    pub sent: Sent,
}

impl Ec2Error {
    /// Creates an error without a code and a request id of EC2.
    pub fn new(kind: Ec2ErrorKind, action: Action, sent: Sent, message: impl Into<String>) -> Self {
        Self { kind, action, code: None, message: message.into(), request_id: None, sent }
    }

    /// Returns whether the call may have had its effect, so that the caller must look before
    /// repeating it.
    pub fn may_have_happened(&self) -> bool {
        self.sent == Sent::Maybe
    }

    /// Returns the error of an attempt that followed others. `unclear` says that an earlier attempt
    /// may have had its effect.
    pub(crate) fn after(mut self, unclear: bool) -> Self {
        if unclear && !self.action.is_read() {
            self.sent = Sent::Maybe;
        }
        self
    }

    /// Returns whether the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Returns whether AWS refused the credentials and may accept newly fetched ones.
    pub(crate) fn refuses_credentials(&self) -> bool {
        // EC2 also returns RequestExpired for a session that has ended.
        matches!(
            self.code.as_deref(),
            Some(
                "ExpiredToken"
                    | "ExpiredTokenException"
                    | "RequestExpired"
                    | "AuthFailure"
                    | "InvalidClientTokenId"
            )
        )
    }

    /// Adds the endpoint to the message where the endpoint did not answer.
    pub(crate) fn with_endpoint(mut self, endpoint: &str) -> Self {
        if matches!(self.kind, Ec2ErrorKind::Unreachable | Ec2ErrorKind::NoAnswer) {
            self.message = format!("{endpoint}: {}", self.message);
        }
        self
    }

    /// Creates the error for a caller's deadline that passed before the call had its turn.
    pub(crate) fn deadline_passed(action: Action, waited_for: &str) -> Self {
        let text = format!("the time for this call ended while it waited for {waited_for}");
        Self::new(Ec2ErrorKind::Deadline, action, Sent::Not, text)
    }

    /// Creates the error for a call that nobody waited for when its turn came.
    pub(crate) fn unwanted(action: Action) -> Self {
        let text = "it was not sent: nobody waits for it any more; ask again if it is still wanted";
        Self::new(Ec2ErrorKind::Unwanted, action, Sent::Not, text)
    }

    /// Creates the error for a call whose facts were too old when its turn came.
    pub(crate) fn stale(action: Action) -> Self {
        let text = "it was not sent: the facts for it are too old";
        Self::new(Ec2ErrorKind::Stale, action, Sent::Not, text)
    }

    /// Creates the error for a success of EC2 whose body lacks what the action must answer.
    pub(crate) fn unreadable(action: Action, what: impl Into<String>) -> Self {
        let sent = if action.is_read() { Sent::Answered } else { Sent::Maybe };
        Self::new(Ec2ErrorKind::Unreadable, action, sent, what)
    }
}

impl fmt::Display for Ec2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ec2:{}: ", self.action)?;
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }
        let message = shorten(self.message.trim());
        match advice(self.kind, self.code.as_deref(), message) {
            // EC2's messages end in a full stop.
            Some(step) => write!(f, "{}; {step}", message.trim_end_matches('.'))?,
            None => f.write_str(message)?,
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request id {id})")?;
        }
        Ok(())
    }
}

impl StdError for Ec2Error {}

/// Returns the next step for a kind of error and EC2's code and message; `None` where the message
/// already names it.
fn advice(kind: Ec2ErrorKind, code: Option<&str>, message: &str) -> Option<&'static str> {
    use Ec2ErrorKind as Kind;

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

/// Cuts the message to a usable length. An authorization failure carries kilobytes of encoded
/// detail, which no event or status should hold.
fn shorten(message: &str) -> &str {
    let cut = message.find(" Encoded authorization failure message").unwrap_or(message.len());
    let message = &message[..cut];
    match message.char_indices().nth(600) {
        Some((end, _)) => &message[..end],
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: Ec2ErrorKind, message: &str) -> Ec2Error {
        Ec2Error {
            kind,
            action: Action::CreateVolume,
            code: Some("Code".to_owned()),
            message: message.to_owned(),
            request_id: Some("id-1".to_owned()),
            sent: Sent::Answered,
        }
    }

    #[test]
    fn error_text_has_action_cause_advice_request_id() {
        let text = error(Ec2ErrorKind::Unauthorized, "You are not authorized.").to_string();
        for part in ["ec2:CreateVolume", "Code", "You are not authorized;", "IAM policy", "id-1"] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// What the controller's own policy allows does not help where another policy refuses.
    #[test]
    fn authorization_advice_follows_policy_that_refuses() {
        for (why, advice) in [
            ("with an explicit deny in a service control policy", "overrides every policy"),
            ("with an explicit deny in an identity-based policy", "overrides every policy"),
            ("because no service control policy allows the ec2:AttachVolume action", "as well"),
            ("because no permissions boundary allows the ec2:AttachVolume action", "as well"),
            (
                "because no identity-based policy allows the ec2:AttachVolume action",
                "IAM policy of",
            ),
            ("", "IAM policy of"),
        ] {
            let text =
                error(Ec2ErrorKind::Unauthorized, &format!("You are not, {why}.")).to_string();
            assert!(text.contains(advice), "{text}");
        }
    }

    #[test]
    fn snapshot_in_use_names_what_may_use_it() {
        let image = "The snapshot snap-1 is currently in use by ami-1";
        let restores = "The snapshot is in use by fast snapshot restore";
        for (message, advice) in [(image, "deregister the image"), (restores, "disable its fast")] {
            let text = error(Ec2ErrorKind::SnapshotInUse, message).to_string();
            assert!(text.contains(advice), "{text}");
        }
    }

    #[test]
    fn advice_follows_message_without_double_punctuation() {
        let text = error(Ec2ErrorKind::IncorrectState, "The volume is being copied. ").to_string();
        assert!(text.contains("being copied; it is retried"), "{text}");
        let text = error(Ec2ErrorKind::DryRun, "It would have succeeded.").to_string();
        assert!(text.contains("succeeded. ("), "{text}");
    }

    #[test]
    fn refused_credential_error_gives_next_step() {
        for (code, word) in [
            ("RequestExpired", "NTP"),
            ("ExpiredToken", "fetched"),
            ("SignatureDoesNotMatch", "secret access key"),
            ("AuthFailure", "active"),
            ("InvalidIdentityToken", "ServiceAccount role"),
        ] {
            let mut refused = error(Ec2ErrorKind::of(code, ""), "No.");
            refused.code = Some(code.to_owned());
            let text = refused.to_string();
            for part in [code, word, "No;", "id-1"] {
                assert!(text.contains(part), "{code}: {text}");
            }
        }
    }

    #[test]
    fn encoded_authorization_message_is_left_out() {
        let long = format!("Denied. Encoded authorization failure message: {}", "x".repeat(5000));
        let text = error(Ec2ErrorKind::Unauthorized, &long).to_string();
        assert!(text.contains("Denied;") && text.len() < 300, "{text}");
    }

    #[test]
    fn only_unanswered_change_may_have_happened() {
        let mut failed = error(Ec2ErrorKind::NoAnswer, "");
        for (sent, may_have) in [(Sent::Not, false), (Sent::Maybe, true), (Sent::Answered, false)] {
            failed.sent = sent;
            assert_eq!(failed.may_have_happened(), may_have, "{sent:?}");
        }
    }

    #[test]
    fn earlier_unclear_attempt_leaves_change_unclear() {
        for (action, unclear, sent) in [
            (Action::CreateVolume, false, Sent::Answered),
            (Action::CreateVolume, true, Sent::Maybe),
            (Action::DescribeVolumes, true, Sent::Answered),
        ] {
            let mut failed = error(Ec2ErrorKind::Other, "");
            failed.action = action;
            assert_eq!(failed.after(unclear).sent, sent, "{action} {unclear}");
        }
    }

    #[test]
    fn transient_kinds_are_those_that_retries_help() {
        for (code, transient) in [
            ("RequestLimitExceeded", true),
            ("ServiceUnavailable", true),
            ("ConcurrentTagAccess", true),
            ("IncorrectState", false),
            ("UnauthorizedOperation", false),
        ] {
            let kind = Ec2ErrorKind::of(code, "");
            assert_eq!(error(kind, "").is_transient(), transient, "{code}");
        }
    }

    #[test]
    fn ended_session_is_refused_other_errors_not() {
        let mut failed = error(Ec2ErrorKind::Credential, "");
        for (code, refused) in [
            (Some("ExpiredToken"), true),
            (Some("RequestExpired"), true),
            (Some("SignatureDoesNotMatch"), false),
            (None, false),
        ] {
            failed.code = code.map(str::to_owned);
            assert_eq!(failed.refuses_credentials(), refused, "{code:?}");
        }
    }
}
