//! The users and roles of a scenario.

use super::policy::Document;
use super::trust::Trust;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    pub(crate) fn account(&self) -> &str {
        self.arn.split(':').nth(4).unwrap_or("")
    }

    /// Returns the principal's ARN as messages show it: for a role that of a session. A role's
    /// long-lived key has none, and shows as a session of a fixed name.
    pub(crate) fn shown(&self, session: &str) -> String {
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

    pub(crate) fn check(&self) -> Result<(), String> {
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
