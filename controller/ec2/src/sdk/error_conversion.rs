//! Converts what the SDK reports to an [`Ec2Error`]: whether the request was sent, what EC2
//! answered, and why the answer could not be read.

use std::error::Error as StdError;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::calls::Action;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::sdk::interceptors::{self, Truncated};

impl Ec2Error {
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
        if let Some(cause) = find_cause::<CredentialsError>(error) {
            return make(Ec2ErrorKind::Credential, None, credential_text(cause), Sent::Not);
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
                                .and_then(|date| describe_clock_skew(date, SystemTime::now()))
                        {
                            message = format!("{}; {skew}", message.trim());
                        }
                        // A 5xx may come from a proxy or load balancer after the change was made
                        // behind it.
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
                let why = if find_cause::<Truncated>(error).is_some() {
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
            SdkError::TimeoutError(_) => {
                make(Ec2ErrorKind::NoAnswer, None, "no answer in time".to_owned(), Sent::Maybe)
            }
            SdkError::DispatchFailure(failure) => {
                let cause = innermost(error);
                let never_connected = find_cause::<hyper_util::client::legacy::Error>(error)
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
            // Failures of building the request, and whatever a later SDK adds before sending.
            _ => make(Ec2ErrorKind::Other, None, innermost(error), Sent::Not),
        }
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
        other => format!("AWS credentials could not be loaded from {}", innermost(other)),
    }
}

/// Describes by how much this node's clock differs from AWS's, when that is enough to refuse a
/// signature. `date` is the header of the answer.
fn describe_clock_skew(date: &str, now: SystemTime) -> Option<String> {
    let theirs = DateTime::from_str(date, Format::HttpDate).ok()?.secs();
    let ours = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let ahead = i64::try_from(ours).ok()? - theirs;
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.abs() >= 240).then(|| {
        format!("this node's clock is {} minutes {direction} AWS's", (ahead.abs() + 30) / 60)
    })
}

/// Returns EC2's request id. It is a header of every answer, and error bodies repeat it.
fn request_id(raw: &HttpResponse) -> Option<String> {
    if let Some(id) = interceptors::request_id(raw) {
        return Some(id.to_owned());
    }
    let body = std::str::from_utf8(raw.body().bytes()?).ok()?;
    ["RequestID>", "RequestId>", "requestId>"].iter().find_map(|tag| {
        let rest = body.split_once(&format!("<{tag}"))?.1;
        Some(rest.split_once('<')?.0.to_owned())
    })
}

fn find_cause<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns the last cause, which is the most specific: "connection refused" rather than "dispatch
/// failure".
pub fn innermost(error: &dyn StdError) -> String {
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

    #[test]
    fn large_clock_skew_is_reported_in_minutes() {
        let now = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for (date, want) in [
            ("Sun, 09 Sep 2001 01:46:40 GMT", None),
            ("Sun, 09 Sep 2001 01:44:00 GMT", None),
            ("Sun, 09 Sep 2001 01:29:40 GMT", Some("17 minutes ahead of")),
            ("Sun, 09 Sep 2001 02:46:40 GMT", Some("60 minutes behind")),
            ("yesterday", None),
        ] {
            let text = describe_clock_skew(date, now);
            match want {
                None => assert_eq!(text, None, "{date}"),
                Some(want) => assert!(text.is_some_and(|text| text.contains(want)), "{date}"),
            }
        }
    }
}
