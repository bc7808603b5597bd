//! Authentication: the caller, the requested service and Region, and whether the action exists.

use super::{Request, Sim};
use crate::actions;
use crate::iam::{Caller, sts};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Credential, Params, check_time, refuse};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Ec2,
    Sts,
}

impl Sim {
    /// Checks credentials, version and action, and returns the caller. All codes and wordings but
    /// those of InvalidAction are unverified.
    pub(super) fn authenticate(
        &self,
        now: Millis,
        request: &Request,
        params: &Params,
        credential: Option<&Credential>,
        action: &str,
        service: Service,
    ) -> ApiResult<Caller> {
        if action.is_empty() {
            refuse!("MissingAction", "The request must contain the parameter Action");
        }
        let version = match service {
            Service::Ec2 => "2016-11-15",
            Service::Sts => "2011-06-15",
        };
        let given = params.peek("Version").ok_or_else(|| ApiError::missing("Version"))?;
        if given != version {
            refuse!("NoSuchVersion", "The requested version ({given}) of service is not valid.");
        }
        if service == Service::Ec2 && !actions::known(action) {
            return Err(actions::invalid_action(action));
        }
        let c = credential.ok_or_else(ApiError::bad_credentials)?;
        if let (Some(_), Some(date)) = (&request.authorization, &request.date) {
            check_time(date, now)?;
        }
        let (account, region) = (&self.realm.account, &self.realm.region);
        if service == Service::Ec2 && c.region != *region {
            return Err(ApiError::new(
                401,
                "AuthFailure",
                format!(
                    "Credential should be scoped to a valid region, not '{}': account {account} has no such region in the scenario",
                    c.region
                ),
            ));
        }
        Ok(self.iam.caller(c))
    }
}

pub(super) fn service(params: &Params, credential: Option<&Credential>, action: &str) -> Service {
    let by_scope = credential.is_some_and(|c| c.service == "sts");
    let by_version = params.peek("Version") == Some("2011-06-15");
    if by_scope || by_version || action == sts::ACTION { Service::Sts } else { Service::Ec2 }
}
