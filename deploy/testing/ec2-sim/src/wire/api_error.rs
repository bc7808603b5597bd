//! EC2's error replies.

/// An error as a client sees it: code, HTTP status and message. Clients match on all three, so the
/// wording is part of the contract. Where no recording of the real service supports the wording,
/// the code that builds the error says `unverified`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} ({status}): {message}")]
pub(crate) struct ApiError {
    pub code: String,
    /// The HTTP status, which is 400 for almost every error.
    pub status: u16,
    pub message: String,
}

/// The result of an action: the members of the XML body, or an error.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// Returns from the function with an error of status 400: its code, its message as in `format!`.
macro_rules! refuse {
    ($code:expr, $($message:tt)+) => {
        return Err($crate::wire::ApiError::client($code, format!($($message)+)))
    };
}
pub(crate) use refuse;

/// Returns from the function with `InvalidParameterValue` and a message as in `format!`.
macro_rules! refuse_value {
    ($($message:tt)+) => {
        return Err($crate::wire::ApiError::value(format!($($message)+)))
    };
}
pub(crate) use refuse_value;

/// Returns from the function with `InvalidParameterCombination` and a message as in `format!`.
macro_rules! refuse_combination {
    ($($message:tt)+) => {
        return Err($crate::wire::ApiError::combination(format!($($message)+)))
    };
}
pub(crate) use refuse_combination;

impl ApiError {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), status, message: message.into() }
    }

    /// Creates a client error with status 400.
    pub(crate) fn client(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::client("InvalidParameterValue", message)
    }

    pub(crate) fn combination(message: impl Into<String>) -> Self {
        Self::client("InvalidParameterCombination", message)
    }

    /// Creates a `MissingParameter` with EC2's usual sentence.
    pub(crate) fn missing(parameter: &str) -> Self {
        let message = format!("The request must contain the parameter {parameter}");
        Self::client("MissingParameter", message)
    }

    pub(crate) fn dry_run() -> Self {
        Self::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
    }

    /// Returns the error for an empty token bucket.
    pub(crate) fn throttled() -> Self {
        Self::new(503, "RequestLimitExceeded", "Request limit exceeded.")
    }

    /// Returns the error for unknown credentials. Status unverified.
    pub(crate) fn bad_credentials() -> Self {
        let message = "AWS was not able to validate the provided access credentials";
        Self::new(401, "AuthFailure", message)
    }

    /// Returns EC2's error for a caller without permission: the caller, the action, the resource,
    /// the reason, and a message for `sts:DecodeAuthorizationMessage`, which nobody can decode.
    pub(crate) fn unauthorized(who: &str, action: &str, resource: &str) -> Self {
        // A refusal of a call that concerns no particular resource names no resource and has no
        // encoded message.
        let (on, end) = match resource {
            "*" => (String::new(), ""),
            _ => {
                let end = ". Encoded authorization failure message: 00";
                (format!(" on resource: {resource}"), end)
            }
        };
        let message = format!(
            "You are not authorized to perform this operation. User: {who} is not authorized to perform: {action}{on} because no identity-based policy allows the {action} action{end}"
        );
        Self::new(403, "UnauthorizedOperation", message)
    }

    /// Returns EC2's error for an expired session and for a request that is too old.
    pub(crate) fn expired_credentials() -> Self {
        Self::client("RequestExpired", "Request has expired.")
    }

    pub(crate) fn no_volume(id: &str) -> Self {
        Self::no_volumes(&[id])
    }

    /// Returns `InvalidVolume.NotFound`. The wording for several ids is unverified.
    pub(crate) fn no_volumes(ids: &[&str]) -> Self {
        let message = match ids {
            [id] => format!("The volume '{id}' does not exist."),
            ids => format!("The volumes '{}' do not exist.", ids.join(", ")),
        };
        Self::client("InvalidVolume.NotFound", message)
    }

    /// Returns `InvalidSnapshot.NotFound` for the first of several ids.
    pub(crate) fn no_snapshots(ids: &[&str]) -> Self {
        Self::no_snapshot(ids.first().unwrap_or(&""))
    }

    pub(crate) fn no_snapshot(id: &str) -> Self {
        Self::client("InvalidSnapshot.NotFound", format!("The snapshot '{id}' does not exist."))
    }

    pub(crate) fn no_instance(id: &str) -> Self {
        Self::no_instances(&[id])
    }

    /// Returns `InvalidInstanceID.NotFound`. The wording for several ids is unverified.
    pub(crate) fn no_instances(ids: &[&str]) -> Self {
        let message = match ids {
            [id] => format!("The instance ID '{id}' does not exist"),
            ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
        };
        Self::client("InvalidInstanceID.NotFound", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_principal_action_and_particular_resource() {
        for (action, resource, message) in [
            (
                "ec2:CreateVolume",
                "arn:aws:ec2:r:1:volume/*",
                "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:CreateVolume on resource: arn:aws:ec2:r:1:volume/* because no identity-based policy allows the ec2:CreateVolume action. Encoded authorization failure message: 00",
            ),
            (
                "ec2:DescribeVolumes",
                "*",
                "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:DescribeVolumes because no identity-based policy allows the ec2:DescribeVolumes action",
            ),
        ] {
            let e = ApiError::unauthorized("u", action, resource);
            assert_eq!((e.status, e.code.as_str()), (403, "UnauthorizedOperation"));
            assert_eq!(e.message, message);
        }
    }
}
