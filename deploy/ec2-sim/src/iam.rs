//! Identity and access: who calls, what their policies say, and what was asked.
//!
//! Identity-based policies of users and roles are judged as IAM judges them; resource policies, permission boundaries, service control
//! policies and trust policies are not.

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
    /// Everything: permissions are not what the test is about.
    #[default]
    Allow,
    /// Nothing: their credentials are not valid.
    Refuse,
}

/// The scenario's part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setting {
    /// Access keys and roles that no principal has.
    pub unknown: Unknown,
    /// Users and roles.
    pub principals: Vec<Principal>,
}

impl Setting {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first thing that is wrong.
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

/// Who makes a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// As messages and GetCallerIdentity show it.
    pub arn: String,
    /// `UserId` of GetCallerIdentity.
    pub user_id: String,
    /// Their account; `None` for the key of nobody in particular.
    pub account: Option<String>,
    /// The principal whose policies count; `None`: may do everything.
    principal: Option<usize>,
    context: Context,
}

/// Principals, sessions, and what was asked.
#[derive(Debug)]
pub struct Iam {
    setting: Setting,
    seed: u64,
    /// Sessions that were issued before are expired.
    not_before: Option<Millis>,
    expired_keys: BTreeSet<String>,
    expired_web_identities: BTreeSet<String>,
    report: RefCell<Report>,
}

impl Iam {
    /// With the scenario's principals.
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

    /// Replaces the principals; counts stay.
    ///
    /// # Errors
    /// When the new ones cannot be used: then the old ones stay.
    pub fn change(&mut self, setting: Setting) -> Result<(), String> {
        setting.check()?;
        self.setting = setting;
        Ok(())
    }

    /// The principals.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// All sessions that were issued until now are expired.
    pub fn expire_sessions(&mut self, now: Millis) {
        self.not_before = Some(now);
    }

    /// An access key is expired (`true`) or good again.
    pub fn expire_key(&mut self, key: &str, expired: bool) {
        if expired {
            self.expired_keys.insert(key.to_owned());
        } else {
            self.expired_keys.remove(key);
        }
    }

    /// A web identity's token is expired (`true`) or good again.
    pub fn expire_web_identity(&mut self, token: &str, expired: bool) {
        if expired {
            self.expired_web_identities.insert(token.to_owned());
        } else {
            self.expired_web_identities.remove(token);
        }
    }

    /// Whether a web identity's token can be used.
    pub fn takes_web_identity(&self, token: &str) -> bool {
        !self.expired_web_identities.contains(token)
    }

    /// The token of a new session.
    pub fn seal(&self, session: &Session) -> String {
        session.seal(self.seed)
    }

    /// Whether a role can be assumed at all.
    pub fn has_role(&self, arn: &str) -> bool {
        self.setting.unknown == Unknown::Allow
            || self.setting.principals.iter().any(|p| p.arn == arn)
    }

    /// Who makes a call with this credential.
    ///
    /// # Errors
    /// `AuthFailure` for a key that is nobody's where that is refused, `RequestExpired` for what has expired.
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

    /// Adds what is known of the principal.
    fn about(&self, mut caller: Caller, index: usize) -> Caller {
        let p = &self.setting.principals[index];
        let mut context = Context::default();
        context
            .tags("aws:PrincipalTag", &p.tags)
            .set("aws:PrincipalArn", p.arn.as_str())
            .set("aws:PrincipalAccount", p.account())
            // The simulator stands for EC2's HTTPS endpoint, whatever its own socket speaks.
            .set("aws:SecureTransport", "true")
            .extend(&caller.context);
        caller.context = context;
        caller
    }

    /// Judges one action on one resource; `None` for a caller who may do everything.
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

    /// Whether a caller may do something in EC2.
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

    /// Whether a caller may do something in STS.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn permit_sts(&self, caller: &Caller, action: &str, resource: &str) -> ApiResult<()> {
        match self.judge(caller, action, resource, &Context::default()) {
            None | Some((Decision::Allowed(_), _)) => Ok(()),
            Some(_) => Err(refusal::access_denied(&caller.arn, action, resource)),
        }
    }

    /// Whether a caller may use a key, as EC2 asks on their behalf. Nobody is told: the consequences come later.
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

    /// Whether a caller may do everything: nothing needs to be put together for a judgement.
    pub fn unrestricted(caller: &Caller) -> bool {
        caller.principal.is_none()
    }

    /// What was asked, and which statements answered.
    pub fn report(&self) -> Value {
        self.report.borrow().json(&self.setting.principals)
    }

    /// Forgets what was asked.
    pub fn reset_report(&mut self) {
        self.report.borrow_mut().reset();
    }
}
