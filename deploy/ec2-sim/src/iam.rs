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
pub(crate) mod sts;

use crate::wire::api_error::ApiResult;
use crate::wire::credential::Credential;
use context::Context;
use decision::Decision;
use principal::Principal;
use report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The IAM section of a scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setting {
    /// The users and roles. A caller with another access key may do everything.
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
            if !p.access_keys.iter().chain([&p.arn]).all(|k| seen.insert(k.clone())) {
                return Err(format!("principal {}: it, or one of its keys, is there twice", p.arn));
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

/// Principals, and the report of the decisions.
#[derive(Debug)]
pub struct Iam {
    setting: Setting,
    report: RefCell<Report>,
}

impl Iam {
    /// Creates the state with the scenario's principals.
    pub fn new(setting: Setting) -> Self {
        let report = RefCell::new(Report::default());
        Self { setting, report }
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

    /// Returns the caller to whom this credential belongs.
    pub fn caller(&self, credential: &Credential) -> Caller {
        let key = &credential.access_key;
        let known = |p: &Principal| p.access_keys.contains(key);
        let principal = self.setting.principals.iter().position(known);
        let Some(p) = principal.map(|index| &self.setting.principals[index]) else {
            return Caller {
                arn: String::new(),
                user_id: key.clone(),
                account: None,
                principal: None,
                context: Context::default(),
            };
        };
        let mut context = Context::default();
        context
            .tags("aws:PrincipalTag", &p.tags)
            .set("aws:PrincipalArn", p.arn.as_str())
            .set("aws:PrincipalAccount", p.account())
            // The simulator stands for EC2's HTTPS endpoint, whatever protocol its own socket
            // speaks.
            .set("aws:SecureTransport", "true");
        Caller {
            arn: p.shown(),
            user_id: key.clone(),
            account: Some(p.account().to_owned()),
            principal,
            context,
        }
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
        self.report.borrow_mut().add(&p.arn, action, resource, &decision);
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
            Some((decision, context)) => {
                Err(refusal::unauthorized(&caller.arn, action, resource, &decision, &context))
            }
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
}
