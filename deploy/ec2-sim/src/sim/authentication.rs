//! Authentication: the caller, the requested service and Region, and whether the action exists.

use super::{Request, Sim};
use crate::actions;
use crate::iam::{Caller, sts};
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::credential::Credential;
use crate::wire::query::Params;
use crate::wire::signature;

/// The requested service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Ec2,
    Sts,
}

impl Sim {
    /// Checks credentials, version and action. Returns the realm's index and the caller; a call
    /// with a web identity has no caller. All codes and wordings but those of InvalidAction are
    /// unverified.
    pub(super) fn authenticate(
        &self,
        now: Millis,
        request: &Request,
        params: &Params,
        credential: Option<&Credential>,
        action: &str,
        service: Service,
    ) -> ApiResult<(usize, Option<Caller>)> {
        if action.is_empty() {
            return Err(ApiError::client(
                "MissingAction",
                "The request must contain the parameter Action",
            ));
        }
        let version = match service {
            Service::Ec2 => "2016-11-15",
            Service::Sts => "2011-06-15",
        };
        match params.peek("Version") {
            Some(v) if v == version => {}
            Some(v) => {
                return Err(ApiError::client(
                    "NoSuchVersion",
                    format!("The requested version ({v}) of service is not valid."),
                ));
            }
            None => {
                return Err(ApiError::client(
                    "MissingParameter",
                    "The request must contain the parameter Version",
                ));
            }
        }
        if service == Service::Ec2 && !actions::known(action) {
            return Err(actions::invalid_action(action));
        }
        let Some(c) = credential else {
            return if action == "AssumeRoleWithWebIdentity" {
                Ok((0, None))
            } else {
                Err(ApiError::bad_credentials())
            };
        };
        if let (Some(authorization), Some(signed)) = (&request.authorization, &request.signed) {
            signature::check(authorization, signed, now)?;
        }
        let token = request
            .session_token
            .as_deref()
            .or_else(|| params.peek("X-Amz-Security-Token"));
        let caller = self.iam.caller(c, token, now).map_err(|e| match service {
            Service::Ec2 => e,
            Service::Sts => sts::of_credentials(&e),
        })?;
        let known = |account: &&String| self.realms.iter().any(|r| r.account == **account);
        let account = caller
            .account
            .as_ref()
            .filter(known)
            .or_else(|| self.keys.get(&c.access_key))
            .unwrap_or(&self.realms[0].account)
            .clone();
        self.realms
            .iter()
            .position(|r| {
                r.account == account && (service == Service::Sts || r.region == c.region)
            })
            .map(|realm| (realm, Some(caller)))
            .ok_or_else(|| {
                ApiError::new(
                    401,
                    "AuthFailure",
                    format!(
                        "Credential should be scoped to a valid region, not '{}': account {account} has no such region in the scenario",
                        c.region
                    ),
                )
            })
    }
}

pub(super) fn service(params: &Params, credential: Option<&Credential>, action: &str) -> Service {
    let by_scope = credential.is_some_and(|c| c.service == "sts");
    let by_version = params.peek("Version") == Some("2011-06-15");
    if by_scope || by_version || sts::ACTIONS.contains(&action) {
        Service::Sts
    } else {
        Service::Ec2
    }
}
