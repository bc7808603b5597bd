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
    /// The secret key is wrong.
    SignatureDoesNotMatch,
    /// The Region is not enabled for the account.
    OptInRequired,
    /// No policy allows the action.
    Unauthorized,
}

impl CallerRefusal {
    /// Returns the error. Statuses and wordings are unverified, except for the expired session and
    /// the missing permission.
    pub fn answer(self, action: &str, caller: &Caller, to_sts: bool) -> ApiError {
        let error = |status, code, words: &str| ApiError::new(status, code, words);
        match self {
            Self::ExpiredToken if to_sts => sts::of_credentials(&ApiError::expired_credentials()),
            Self::ExpiredToken => ApiError::expired_credentials(),
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
            Self::Unauthorized => {
                let who = match caller.arn.as_str() {
                    "" => "arn:aws:iam::111122223333:user/ec2-sim",
                    arn => arn,
                };
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
        }
    }
}
