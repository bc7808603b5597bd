//! Refusals before the simulator looks at an action: credentials, clock, account, permission.

use crate::iam::context::Context;
use crate::iam::decision::Decision;
use crate::iam::{Caller, refusal, sts};
use crate::wire::api_error::ApiError;
use serde::{Deserialize, Serialize};

/// Why EC2 or STS refuses a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallerRefusal {
    /// The session has expired.
    ExpiredToken,
    /// The request is too old or too new: the caller's clock is behind or ahead.
    RequestExpired,
    /// The access key does not exist.
    InvalidClientTokenId,
    /// The secret key is wrong.
    SignatureDoesNotMatch,
    /// The Region is not enabled for the account.
    OptInRequired,
    /// The account is blocked.
    Blocked,
    /// The account is new.
    PendingVerification,
    /// No policy allows the action.
    Unauthorized,
    /// STS could not reach the issuer of a web identity.
    IdpCommunicationError,
    /// The web identity's token has expired for STS.
    ExpiredWebIdentity,
}

impl CallerRefusal {
    /// Returns the error. Statuses and wordings are unverified, except for the expired session and
    /// the missing permission.
    pub fn answer(self, action: &str, caller: Option<&Caller>, to_sts: bool) -> ApiError {
        let error = |status, code, words: &str| ApiError::new(status, code, words);
        match self {
            Self::ExpiredToken if to_sts => sts::of_credentials(&ApiError::expired_credentials()),
            Self::ExpiredToken | Self::RequestExpired => ApiError::expired_credentials(),
            Self::InvalidClientTokenId if to_sts => {
                sts::of_credentials(&ApiError::bad_credentials())
            }
            Self::InvalidClientTokenId => ApiError::bad_credentials(),
            Self::SignatureDoesNotMatch => error(
                403,
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
            ),
            Self::OptInRequired => error(
                403,
                "OptInRequired",
                "You are not subscribed to this service. Please go to http://aws.amazon.com to subscribe.",
            ),
            Self::Blocked => error(
                400,
                "Blocked",
                "This account is currently blocked. Please contact aws-verification@amazon.com if you have questions.",
            ),
            Self::PendingVerification => error(
                400,
                "PendingVerification",
                "Your account is currently being verified. Verification normally takes less than 2 hours. Until your account is verified, you may not be able to carry out requests.",
            ),
            Self::Unauthorized => {
                let who = caller
                    .map(|c| c.arn.as_str())
                    .filter(|arn| !arn.is_empty())
                    .unwrap_or("arn:aws:iam::111122223333:user/ec2-sim");
                if to_sts {
                    return refusal::access_denied(who, &format!("sts:{action}"), "*");
                }
                let action = format!("ec2:{action}");
                refusal::unauthorized(
                    who,
                    &action,
                    "*",
                    &Decision::NotAllowed,
                    &Context::default(),
                )
            }
            Self::IdpCommunicationError => error(
                400,
                "IDPCommunicationError",
                "Could not reach the identity provider to verify the incoming identity token",
            ),
            Self::ExpiredWebIdentity => ApiError::expired_web_identity(),
        }
    }
}
