//! Identity and access management: callers, their policies, and a report of the decisions.
//!
//! The simulator evaluates identity-based policies of users and roles as IAM does, and trust
//! policies for the tokens of OIDC providers. It does not evaluate resource policies, permission
//! boundaries and service control policies.

pub(crate) mod condition;
pub(crate) mod policy;
mod report;
pub(crate) mod sts;
mod trust;

use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Credential};
use condition::Context;
use policy::Document;
use report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use trust::Trust;

/// The IAM section of a scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IamSetting {
    /// The users and roles. A caller with another access key may do everything.
    pub(crate) principals: Vec<Principal>,
}

impl IamSetting {
    /// Checks that the setting is valid.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for p in &self.principals {
            p.check()?;
            if !p.access_keys.iter().chain([&p.arn]).all(|k| seen.insert(k.clone())) {
                return Err(format!("principal {}: it, or one of its keys, is there twice", p.arn));
            }
        }
        Ok(())
    }
}

/// A user or a role of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Principal {
    /// `arn:aws:iam::111122223333:role/NAME` or `…:user/NAME`.
    pub arn: String,
    #[serde(default)]
    pub(crate) access_keys: Vec<String>,
    /// The principal's tags: `aws:PrincipalTag/KEY`.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub policies: BTreeMap<String, Document>,
    /// Who may assume the role with a token.
    #[serde(default)]
    pub(crate) trust: Option<Trust>,
}

impl Principal {
    fn account(&self) -> &str {
        self.arn.split(':').nth(4).unwrap_or("")
    }

    /// Returns the principal's ARN as messages show it: for a role that of a session. A role's
    /// long-lived key has none, and shows as a session of a fixed name.
    fn shown(&self, session: &str) -> String {
        match self.arn.split_once(":role/") {
            // The ARN of a session leaves out the role's path.
            Some((_, role)) => {
                let name = role.rsplit('/').next().unwrap_or(role);
                let account = self.account();
                format!("arn:aws:sts::{account}:assumed-role/{name}/{session}")
            }
            None => self.arn.clone(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let parts: Vec<&str> = self.arn.splitn(6, ':').collect();
        let good = matches!(parts.as_slice(), ["arn", p, "iam", "", account, name]
            if p.starts_with("aws") && account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit())
                && (name.starts_with("role/") || name.starts_with("user/")));
        if !good {
            return Err(format!(
                "principal {:?}: the arn must be as arn:aws:iam::111122223333:role/NAME or …:user/NAME",
                self.arn
            ));
        }
        for (name, document) in &self.policies {
            document
                .check()
                .map_err(|why| format!("principal {}: policy {name}: {why}", self.arn))?;
        }
        if let Some(trust) = &self.trust {
            trust.check().map_err(|why| format!("principal {}: trust: {why}", self.arn))?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Caller {
    /// The ARN as messages and GetCallerIdentity show it.
    pub arn: String,
    /// The `UserId` of GetCallerIdentity.
    pub(crate) user_id: String,
    /// The caller's account; `None` for an access key of no particular account.
    pub(crate) account: Option<String>,
    /// The principal whose policies apply; `None`: the caller may do everything.
    principal: Option<usize>,
    context: Context,
}

/// A session of a role.
#[derive(Debug)]
struct Session {
    role: String,
    /// The ARN as messages and GetCallerIdentity show it.
    shown: String,
    expires: Millis,
}

#[derive(Debug)]
pub struct Iam {
    setting: IamSetting,
    /// By access key.
    sessions: BTreeMap<String, Session>,
    report: RefCell<Report>,
}

impl Iam {
    pub fn new(setting: IamSetting) -> Self {
        let report = RefCell::new(Report::default());
        Self { setting, sessions: BTreeMap::new(), report }
    }

    /// Replaces the principals and keeps the counters.
    pub fn change(&mut self, setting: IamSetting) -> Result<(), String> {
        setting.check()?;
        self.setting = setting;
        Ok(())
    }

    fn begin_session(&mut self, role: &str, shown: &str, expires: Millis) -> String {
        let key = format!("ASIASIM{:013}", self.sessions.len() + 1);
        let session = Session { role: role.to_owned(), shown: shown.to_owned(), expires };
        self.sessions.insert(key.clone(), session);
        key
    }

    pub(crate) fn caller(&self, credential: &Credential, now: Millis) -> ApiResult<Caller> {
        let key = &credential.access_key;
        let session = self.sessions.get(key);
        if session.is_some_and(|s| s.expires <= now) {
            return Err(ApiError::expired_credentials());
        }
        let known =
            |p: &Principal| p.access_keys.contains(key) || session.is_some_and(|s| s.role == p.arn);
        let principal = self.setting.principals.iter().position(known);
        let Some(p) = principal.map(|index| &self.setting.principals[index]) else {
            return Ok(Caller { user_id: key.clone(), ..Caller::default() });
        };
        let mut context = Context::default();
        context.tags("aws:PrincipalTag", &p.tags);
        Ok(Caller {
            arn: session.map_or_else(|| p.shown("ec2-sim"), |s| s.shown.clone()),
            user_id: key.clone(),
            account: Some(p.account().to_owned()),
            principal,
            context,
        })
    }

    pub(crate) fn allows(
        &self,
        caller: &Caller,
        action: &str,
        resource: &str,
        keys: &Context,
    ) -> bool {
        let Some(principal) = caller.principal else { return true };
        let p = &self.setting.principals[principal];
        let mut context = caller.context.clone();
        context.extend(keys);
        // The first statement that allows the action decides.
        let decided = p.policies.iter().find_map(|(policy, document)| {
            document.statement.all().iter().enumerate().find_map(|(i, s)| {
                let element = s.matches(action, resource, &context)?.to_owned();
                Some((policy.clone(), s.name(i), element))
            })
        });
        let is_allowed = decided.is_some();
        self.report.borrow_mut().add(&p.arn, action, resource, decided);
        is_allowed
    }

    /// Checks that a caller may perform an EC2 action; fails with `UnauthorizedOperation`.
    pub(crate) fn permit(
        &self,
        caller: &Caller,
        action: &str,
        resource: &str,
        keys: &Context,
    ) -> ApiResult<()> {
        match self.allows(caller, action, resource, keys) {
            true => Ok(()),
            false => Err(ApiError::unauthorized(&caller.arn, action, resource)),
        }
    }

    /// Returns whether a caller may do everything, so that no context needs to be built.
    pub(crate) fn unrestricted(caller: &Caller) -> bool {
        caller.principal.is_none()
    }

    /// Returns the evaluated actions and the statements that decided.
    pub fn report(&self) -> Value {
        self.report.borrow().json(&self.setting.principals)
    }
}
