//! EC2's error answers.

/// An error as a client sees it: code, HTTP status and message. Clients match on all three, so the wording is part of the contract;
/// where no recording of the real service stands behind it, the place that builds it says `unverified`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} ({status}): {message}")]
pub struct ApiError {
    /// EC2's error code.
    pub code: String,
    /// The HTTP status: 400 for nearly everything.
    pub status: u16,
    /// The message.
    pub message: String,
}

/// What an action returns: its XML body's members, or an error.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with an explicit status.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            status,
            message: message.into(),
        }
    }

    /// A client error with status 400.
    pub fn client(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// `InvalidParameterValue`.
    pub fn value(message: impl Into<String>) -> Self {
        Self::client("InvalidParameterValue", message)
    }

    /// `InvalidParameterCombination`.
    pub fn combination(message: impl Into<String>) -> Self {
        Self::client("InvalidParameterCombination", message)
    }

    /// `MissingParameter` with EC2's usual sentence.
    pub fn missing(parameter: &str) -> Self {
        Self::client(
            "MissingParameter",
            format!("The request must contain the parameter {parameter}"),
        )
    }

    /// The answer to a dry run that would have succeeded.
    pub fn dry_run() -> Self {
        Self::new(
            412,
            "DryRunOperation",
            "Request would have succeeded, but DryRun flag is set.",
        )
    }

    /// The answer when a token bucket is empty.
    pub fn throttled() -> Self {
        Self::new(503, "RequestLimitExceeded", "Request limit exceeded.")
    }

    /// The answer to credentials that are nobody's. Status unverified.
    pub fn bad_credentials() -> Self {
        Self::new(
            401,
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
        )
    }

    /// EC2's answer to a session that has ended, and to a request that is too old.
    pub fn expired_credentials() -> Self {
        Self::client("RequestExpired", "Request has expired.")
    }

    /// STS's answer to a web identity that it does not take any more. Status and wording unverified.
    pub fn expired_web_identity() -> Self {
        Self::client(
            "ExpiredTokenException",
            "Token expired: current date/time must be before the expiration date/time",
        )
    }

    /// `InvalidVolume.NotFound` for one id.
    pub fn no_volume(id: &str) -> Self {
        Self::client(
            "InvalidVolume.NotFound",
            format!("The volume '{id}' does not exist."),
        )
    }

    /// `InvalidSnapshot.NotFound` for one id.
    pub fn no_snapshot(id: &str) -> Self {
        Self::client(
            "InvalidSnapshot.NotFound",
            format!("The snapshot '{id}' does not exist."),
        )
    }

    /// `InvalidInstanceID.NotFound` for one id.
    pub fn no_instance(id: &str) -> Self {
        Self::client(
            "InvalidInstanceID.NotFound",
            format!("The instance ID '{id}' does not exist"),
        )
    }
}
