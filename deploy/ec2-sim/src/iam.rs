//! Identity and access management: callers, their policies, and a report of the decisions.
//!
//! The simulator evaluates identity-based policies of users and roles as IAM does. It does not
//! evaluate resource policies, permission boundaries, service control policies and trust policies.

mod condition;
pub(crate) mod context;
pub(crate) mod decision;
mod pattern;
pub mod policy;
mod principal;
pub(crate) mod refusal;
mod report;
mod session;
pub(crate) mod sts;

use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::credential::Credential;
use context::Context;
use decision::Decision;
use principal::Principal;
use report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use session::Session;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What callers without a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// They may do everything: the test is not about permissions.
    #[default]
    Allow,
    /// They may do nothing: their credentials are not valid.
    Refuse,
}

/// The IAM section of a scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setting {
    /// The treatment of access keys and roles that belong to no principal.
    pub unknown: Unknown,
    /// The users and roles.
    pub principals: Vec<Principal>,
}

impl Setting {
    /// Checks that the setting is valid.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for p in &self.principals {
            p.check()?;
            if !p.policy_files.is_empty() {
                return Err(format!(
                    "principal {}: policy_files are read with a scenario file only; give the documents as policies",
                    p.arn
                ));
            }
            if !p
                .access_keys
                .iter()
                .chain([&p.arn])
                .all(|k| seen.insert(k.clone()))
            {
                return Err(format!(
                    "principal {}: it, or one of its keys, is there twice",
                    p.arn
                ));
            }
        }
        Ok(())
    }
}

/// The caller of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// The ARN as messages and GetCallerIdentity show it.
    pub arn: String,
    /// The `UserId` of GetCallerIdentity.
    pub user_id: String,
    /// The caller's account; `None` for an access key of no particular account.
    pub account: Option<String>,
    /// The principal whose policies apply; `None`: the caller may do everything.
    principal: Option<usize>,
    context: Context,
}

/// Principals, sessions, and the report of the decisions.
#[derive(Debug)]
pub struct Iam {
    setting: Setting,
    seed: u64,
    /// Sessions issued at this time or earlier are expired.
    not_before: Option<Millis>,
    expired_keys: BTreeSet<String>,
    expired_web_identities: BTreeSet<String>,
    report: RefCell<Report>,
}

impl Iam {
    /// Creates the state with the scenario's principals.
    pub fn new(setting: Setting, seed: u64) -> Self {
        Self {
            setting,
            seed,
            not_before: None,
            expired_keys: BTreeSet::new(),
            expired_web_identities: BTreeSet::new(),
            report: RefCell::new(Report::default()),
        }
    }

    /// Replaces the principals and keeps the counters.
    ///
    /// # Errors
    /// Fails if the new principals are invalid; the old ones then stay.
    pub fn change(&mut self, setting: Setting) -> Result<(), String> {
        setting.check()?;
        self.setting = setting;
        Ok(())
    }

    /// Returns the setting with the principals.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Expires all sessions issued until now.
    pub fn expire_sessions(&mut self, now: Millis) {
        self.not_before = Some(now);
    }

    /// Marks an access key as expired (`true`) or as valid again.
    pub fn expire_key(&mut self, key: &str, expired: bool) {
        if expired {
            self.expired_keys.insert(key.to_owned());
        } else {
            self.expired_keys.remove(key);
        }
    }

    /// Marks a web identity's token as expired (`true`) or as valid again.
    pub fn expire_web_identity(&mut self, token: &str, expired: bool) {
        if expired {
            self.expired_web_identities.insert(token.to_owned());
        } else {
            self.expired_web_identities.remove(token);
        }
    }

    /// Returns whether a web identity's token is valid.
    pub fn takes_web_identity(&self, token: &str) -> bool {
        !self.expired_web_identities.contains(token)
    }

    /// Returns the session token of a new session.
    pub fn seal(&self, session: &Session) -> String {
        session.seal(self.seed)
    }

    /// Returns whether a role can be assumed at all.
    pub fn has_role(&self, arn: &str) -> bool {
        self.setting.unknown == Unknown::Allow
            || self.setting.principals.iter().any(|p| p.arn == arn)
    }

    /// Returns the caller to whom this credential belongs.
    ///
    /// # Errors
    /// `AuthFailure` for an unknown key where unknown keys are refused, `RequestExpired` for an
    /// expired credential.
    pub fn caller(
        &self,
        credential: &Credential,
        token: Option<&str>,
        now: Millis,
    ) -> ApiResult<Caller> {
        if self.expired_keys.contains(&credential.access_key) {
            return Err(ApiError::expired_credentials());
        }
        let session = token.and_then(|t| Session::open(self.seed, t));
        let index = |f: &dyn Fn(&Principal) -> bool| self.setting.principals.iter().position(f);
        let caller = if let Some(s) = session {
            if s.access_key != credential.access_key {
                return Err(ApiError::bad_credentials());
            }
            if s.until <= now || self.not_before.is_some_and(|t| s.issued <= t) {
                return Err(ApiError::expired_credentials());
            }
            let account = s.role.split(':').nth(4).unwrap_or("").to_owned();
            let role = s.role.rsplit('/').next().unwrap_or("");
            let mut context = Context::default();
            context.tags("aws:PrincipalTag", &s.tags);
            Caller {
                arn: principal::assumed(&account, role, &s.name),
                user_id: format!("{}:{}", s.role_id, s.name),
                account: Some(account),
                principal: index(&|p| p.arn == s.role),
                context,
            }
        } else if let Some(i) = index(&|p| p.access_keys.contains(&credential.access_key)) {
            let p = &self.setting.principals[i];
            Caller {
                arn: p.shown(),
                user_id: credential.access_key.clone(),
                account: Some(p.account().to_owned()),
                principal: Some(i),
                context: Context::default(),
            }
        } else {
            Caller {
                arn: String::new(),
                user_id: credential.access_key.clone(),
                account: None,
                principal: None,
                context: Context::default(),
            }
        };
        match caller.principal {
            None if self.setting.unknown == Unknown::Refuse => Err(ApiError::bad_credentials()),
            None => Ok(caller),
            Some(i) => Ok(self.about(caller, i)),
        }
    }

    /// Adds the principal's condition keys to the caller.
    fn about(&self, mut caller: Caller, index: usize) -> Caller {
        let p = &self.setting.principals[index];
        let mut context = Context::default();
        context
            .tags("aws:PrincipalTag", &p.tags)
            .set("aws:PrincipalArn", p.arn.as_str())
            .set("aws:PrincipalAccount", p.account())
            // The simulator stands for EC2's HTTPS endpoint, whatever protocol its own socket
            // speaks.
            .set("aws:SecureTransport", "true")
            .extend(&caller.context);
        caller.context = context;
        caller
    }

    /// Evaluates one action on one resource. Returns `None` for a caller who may do everything.
    fn judge(
        &self,
        caller: &Caller,
        action: &str,
        resource: &str,
        about: &Context,
    ) -> Option<(Decision, Context)> {
        let p = &self.setting.principals[caller.principal?];
        let mut context = caller.context.clone();
        context.extend(about);
        let decision = decision::decide(&p.policies, action, resource, &context);
        self.report
            .borrow_mut()
            .add(&p.arn, action, resource, &decision);
        Some((decision, context))
    }

    /// Checks that a caller may perform an EC2 action.
    ///
    /// # Errors
    /// `UnauthorizedOperation`.
    pub fn permit(
        &self,
        caller: &Caller,
        action: &str,
        resource: &str,
        about: &Context,
    ) -> ApiResult<()> {
        match self.judge(caller, action, resource, about) {
            None | Some((Decision::Allowed(_), _)) => Ok(()),
            Some((decision, context)) => Err(refusal::unauthorized(
                &caller.arn,
                action,
                resource,
                &decision,
                &context,
            )),
        }
    }

    /// Checks that a caller may perform an STS action.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn permit_sts(&self, caller: &Caller, action: &str, resource: &str) -> ApiResult<()> {
        match self.judge(caller, action, resource, &Context::default()) {
            None | Some((Decision::Allowed(_), _)) => Ok(()),
            Some(_) => Err(refusal::access_denied(&caller.arn, action, resource)),
        }
    }

    /// Returns whether a caller may use a key when EC2 asks on the caller's behalf. The reply does
    /// not show a refusal; its consequences come later.
    pub fn may_use_key(
        &self,
        caller: &Caller,
        action: &str,
        key_arn: &str,
        about: &Context,
    ) -> bool {
        !matches!(
            self.judge(caller, action, key_arn, about),
            Some((Decision::Denied(_) | Decision::NotAllowed, _))
        )
    }

    /// Returns whether a caller may do everything, so that no context needs to be built.
    pub fn unrestricted(caller: &Caller) -> bool {
        caller.principal.is_none()
    }

    /// Returns the evaluated actions and the statements that decided.
    pub fn report(&self) -> Value {
        self.report.borrow().json(&self.setting.principals)
    }

    /// Resets the report.
    pub fn reset_report(&mut self) {
        self.report.borrow_mut().reset();
    }
}
