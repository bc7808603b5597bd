//! A call to EC2 that did not do what was asked, in our words.

use std::error::Error as StdError;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use super::action::Action;
use super::code::Ec2ErrorKind;
use super::intact::Truncated;
use super::trail;

/// Whether the request may have had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It never left, or was refused before it was looked at: nothing happened.
    Not,
    /// It left and no usable answer came: it may have happened, or may still happen.
    Maybe,
    /// EC2 answered that it did not do it.
    Answered,
}

/// A failed call. `Display` says what, why, and the next step, with EC2's request id.
#[derive(Clone, Debug)]
pub struct Ec2Error {
    /// What it means.
    pub kind: Ec2ErrorKind,
    /// The action that was called.
    pub action: Action,
    /// EC2's error code, when it gave one.
    pub code: Option<String>,
    /// EC2's message, or ours where EC2 gave none.
    pub message: String,
    /// EC2's id of the request, for AWS support.
    pub request_id: Option<String>,
    /// Whether the effect may have happened.
    pub sent: Sent,
}

impl Ec2Error {
    /// Whether the effect of the call may have happened: look before doing it again.
    pub fn may_have_happened(&self) -> bool {
        self.sent == Sent::Maybe
    }

    /// Whether the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Whether AWS refused who asks, and may not when the credentials are fetched anew.
    pub(crate) fn refuses_the_session(&self) -> bool {
        // EC2 has RequestExpired for a session that has ended, too.
        self.code.as_deref().is_some_and(|code| {
            [
                "ExpiredToken",
                "ExpiredTokenException",
                "RequestExpired",
                "AuthFailure",
                "InvalidClientTokenId",
            ]
            .contains(&code)
        })
    }

    /// Names the endpoint where there was no answer from it.
    pub(crate) fn at(mut self, endpoint: &str) -> Self {
        if matches!(
            self.kind,
            Ec2ErrorKind::Unreachable | Ec2ErrorKind::NoAnswer
        ) {
            self.message = format!("{endpoint}: {}", self.message);
        }
        self
    }

    /// The caller's time ended before the call had its turn.
    pub(crate) fn deadline(action: Action, waited_for: &str) -> Self {
        Self {
            kind: Ec2ErrorKind::Deadline,
            action,
            code: None,
            message: format!("the time for this call ended while it waited for {waited_for}"),
            request_id: None,
            sent: Sent::Not,
        }
    }

    /// When the call's turn came, nobody waited for it any more.
    pub(crate) fn unwanted(action: Action) -> Self {
        Self {
            kind: Ec2ErrorKind::Unwanted,
            action,
            code: None,
            message:
                "it was not sent: nobody waits for it any more; ask again if it is still wanted"
                    .to_owned(),
            request_id: None,
            sent: Sent::Not,
        }
    }

    /// EC2 answered with success, but not with what the action must answer.
    pub(crate) fn unreadable(
        action: Action,
        what: impl Into<String>,
        request_id: Option<&str>,
    ) -> Self {
        Self {
            kind: Ec2ErrorKind::Unreadable,
            action,
            code: None,
            message: what.into(),
            request_id: request_id.map(str::to_owned),
            sent: if action.is_read() {
                Sent::Answered
            } else {
                Sent::Maybe
            },
        }
    }

    /// From what the SDK reports.
    pub(crate) fn from_sdk<E>(action: Action, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let raw = error.raw_response();
        let request_id = raw.and_then(request_id);
        let make = |kind, code: Option<&str>, message: String, sent| Self {
            kind,
            action,
            code: code.map(str::to_owned),
            message,
            request_id: request_id.clone(),
            sent,
        };
        if let Some(cause) = find::<CredentialsError>(error) {
            return make(
                Ec2ErrorKind::Credential,
                None,
                credential_text(cause),
                Sent::Not,
            );
        }
        match error {
            SdkError::ServiceError(service) => {
                let status = service.raw().status().as_u16();
                let meta = service.err().meta();
                match meta.code() {
                    Some(code) => {
                        let mut message = meta.message().unwrap_or_default().to_owned();
                        let kind = match Ec2ErrorKind::of(code, &message) {
                            Ec2ErrorKind::Other if status >= 500 => Ec2ErrorKind::ServerError,
                            kind => kind,
                        };
                        if kind == Ec2ErrorKind::Credential
                            && let Some(skew) = service
                                .raw()
                                .headers()
                                .get("date")
                                .and_then(|date| skew(date, SystemTime::now()))
                        {
                            message = format!("{}; {skew}", message.trim());
                        }
                        // A 5xx may come from a layer behind which the change was made.
                        let sent = if kind == Ec2ErrorKind::ServerError {
                            Sent::Maybe
                        } else {
                            Sent::Answered
                        };
                        make(kind, Some(code), message, sent)
                    }
                    None if status >= 500 => make(
                        Ec2ErrorKind::ServerError,
                        None,
                        format!("HTTP status {status} without an EC2 error code"),
                        Sent::Maybe,
                    ),
                    None => make(
                        Ec2ErrorKind::Unreadable,
                        None,
                        format!("HTTP status {status} with a body that is not EC2's"),
                        Sent::Maybe,
                    ),
                }
            }
            SdkError::ResponseError(response) => {
                let status = response.raw().status().as_u16();
                let why = if find::<Truncated>(error).is_some() {
                    "is cut off"
                } else {
                    "cannot be read"
                };
                make(
                    Ec2ErrorKind::Unreadable,
                    None,
                    format!("the answer (HTTP status {status}) {why}"),
                    Sent::Maybe,
                )
            }
            SdkError::TimeoutError(_) => make(
                Ec2ErrorKind::NoAnswer,
                None,
                "no answer in time".to_owned(),
                Sent::Maybe,
            ),
            SdkError::DispatchFailure(failure) => {
                let cause = innermost(error);
                let never_connected = find::<hyper_util::client::legacy::Error>(error)
                    .is_some_and(hyper_util::client::legacy::Error::is_connect)
                    || cause.starts_with("HTTP connect timeout");
                if never_connected {
                    make(Ec2ErrorKind::Unreachable, None, cause, Sent::Not)
                } else if failure.is_user() {
                    make(Ec2ErrorKind::Other, None, cause, Sent::Not)
                } else {
                    make(Ec2ErrorKind::NoAnswer, None, cause, Sent::Maybe)
                }
            }
            // Construction failures, and whatever a later SDK adds before sending.
            _ => make(Ec2ErrorKind::Other, None, innermost(error), Sent::Not),
        }
    }

    /// What the reader can do, or what is done without them. None where the message says it.
    fn next_step(&self) -> Option<&'static str> {
        use Ec2ErrorKind as Kind;
        Some(match self.kind {
            Kind::Unauthorized => "allow this action in the IAM policy of the controller's role",
            Kind::Credential => credential_step(self.code.as_deref()),
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
            Kind::SnapshotInUse => "deregister the image that uses the snapshot first",
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
            | Kind::Unwanted => return None,
        })
    }
}

impl fmt::Display for Ec2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ec2:{}: ", self.action)?;
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }
        f.write_str(bounded(self.message.trim()))?;
        if let Some(step) = self.next_step() {
            write!(f, "; {step}")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request id {id})")?;
        }
        Ok(())
    }
}

impl StdError for Ec2Error {}

/// An authorization failure carries kilobytes of encoded detail, which no event or status should hold.
fn bounded(message: &str) -> &str {
    let cut = message
        .find(" Encoded authorization failure message")
        .unwrap_or(message.len());
    let message = &message[..cut];
    match message.char_indices().nth(600) {
        Some((end, _)) => &message[..end],
        None => message,
    }
}

fn credential_text(error: &CredentialsError) -> String {
    let tried = "environment, profile, web identity, container and instance metadata were tried";
    match error {
        CredentialsError::CredentialsNotLoaded(_) => {
            format!("no AWS credentials were found: {tried}")
        }
        CredentialsError::ProviderTimedOut(_) => {
            format!("the AWS credential provider did not answer in time: {tried}")
        }
        other => format!(
            "AWS credentials could not be loaded from {}",
            innermost(other)
        ),
    }
}

/// What to do about a credential that AWS refuses, by AWS's code.
fn credential_step(code: Option<&str>) -> &'static str {
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

/// By how much this node's clock differs from AWS's, in words, when that is enough to refuse a signature; `date` is the answer's header.
fn skew(date: &str, now: SystemTime) -> Option<String> {
    let theirs = DateTime::from_str(date, Format::HttpDate).ok()?.secs();
    let ours = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let ahead = i64::try_from(ours).ok()? - theirs;
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.abs() >= 240).then(|| {
        format!(
            "this node's clock is {} minutes {way} AWS's",
            (ahead.abs() + 30) / 60
        )
    })
}

/// The id is a header of every answer; bodies of errors repeat it.
fn request_id(raw: &HttpResponse) -> Option<String> {
    if let Some(id) = trail::request_id(raw) {
        return Some(id.to_owned());
    }
    let body = std::str::from_utf8(raw.body().bytes()?).ok()?;
    ["RequestID>", "RequestId>", "requestId>"]
        .iter()
        .find_map(|tag| {
            let rest = body.split_once(&format!("<{tag}"))?.1;
            Some(rest.split_once('<')?.0.to_owned())
        })
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The last cause says most: "connection refused" rather than "dispatch failure".
pub(crate) fn innermost(error: &dyn StdError) -> String {
    let mut last = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !text.is_empty() && text != "a timeout occurred" {
            last = text;
        }
        next = error.source();
    }
    last
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
    fn the_text_says_what_why_next_step_and_request_id() {
        let text = error(Ec2ErrorKind::Unauthorized, "You are not authorized.").to_string();
        for part in [
            "ec2:CreateVolume",
            "Code",
            "You are not authorized.",
            "IAM policy",
            "id-1",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_refused_credential_comes_with_what_to_do_about_it() {
        for (code, word) in [
            ("RequestExpired", "clock"),
            ("ExpiredToken", "fetched"),
            ("SignatureDoesNotMatch", "secret access key"),
            ("AuthFailure", "active"),
            ("InvalidIdentityToken", "ServiceAccount role"),
        ] {
            let mut refused = error(Ec2ErrorKind::of(code, ""), "No.");
            refused.code = Some(code.to_owned());
            let text = refused.to_string();
            for part in [code, word, "No.", "id-1"] {
                assert!(text.contains(part), "{code}: {text}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_wrong_is_told_by_how_much() {
        let now = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for (date, want) in [
            ("Sun, 09 Sep 2001 01:46:40 GMT", None),
            ("Sun, 09 Sep 2001 01:44:00 GMT", None),
            ("Sun, 09 Sep 2001 01:29:40 GMT", Some("17 minutes ahead of")),
            ("Sun, 09 Sep 2001 02:46:40 GMT", Some("60 minutes behind")),
            ("yesterday", None),
        ] {
            let text = skew(date, now);
            match want {
                None => assert_eq!(text, None, "{date}"),
                Some(want) => assert!(text.is_some_and(|text| text.contains(want)), "{date}"),
            }
        }
    }

    #[test]
    fn the_encoded_part_of_an_authorization_failure_is_left_out() {
        let long = format!(
            "Denied. Encoded authorization failure message: {}",
            "x".repeat(5000)
        );
        let text = error(Ec2ErrorKind::Unauthorized, &long).to_string();
        assert!(text.contains("Denied.") && text.len() < 300, "{text}");
    }
}
