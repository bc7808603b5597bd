//! The users and roles whose calls are evaluated.

use super::policy::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A user or a role with its policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// `arn:aws:iam::111122223333:role/NAME` or `…:user/NAME`.
    pub arn: String,
    /// The long-lived access keys of the principal. Sessions of a role are recognized without being
    /// listed here.
    #[serde(default)]
    pub access_keys: Vec<String>,
    /// The principal's tags: `aws:PrincipalTag/KEY`.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The principal's policies, by name.
    #[serde(default)]
    pub policies: BTreeMap<String, Document>,
    /// Files with more policies, each named after the file without its extension. Paths are
    /// relative to the scenario file; they are read only with a scenario file.
    #[serde(default, skip_serializing)]
    pub policy_files: Vec<String>,
}

impl Principal {
    /// Returns the account in the principal's ARN.
    pub fn account(&self) -> &str {
        self.arn.split(':').nth(4).unwrap_or("")
    }

    /// Returns the principal's ARN as messages show it.
    pub fn shown(&self) -> String {
        match self.arn.split_once(":role/") {
            // A role's long-lived key has no session, so it shows as a session of this name.
            Some((_, name)) => assumed(self.account(), name, "ec2-sim"),
            None => self.arn.clone(),
        }
    }

    /// Reads `policy_files`, relative to a folder.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is not a policy.
    pub fn read_files(&mut self, folder: &Path) -> Result<(), String> {
        for file in std::mem::take(&mut self.policy_files) {
            let path = folder.join(&file);
            let bad = |e: String| format!("policy file {}: {e}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|e| bad(e.to_string()))?;
            let document = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
            let name = path
                .file_stem()
                .unwrap_or(path.as_os_str())
                .to_string_lossy();
            if self.policies.insert(name.into_owned(), document).is_some() {
                return Err(bad("there is another policy of that name".to_owned()));
            }
        }
        Ok(())
    }

    /// Checks that the principal is valid.
    ///
    /// # Errors
    /// Returns the problem.
    pub fn check(&self) -> Result<(), String> {
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
        Ok(())
    }
}

/// Returns the ARN of a role's session. The ARN leaves out the role's path.
pub(super) fn assumed(account: &str, role: &str, session: &str) -> String {
    let name = role.rsplit('/').next().unwrap_or(role);
    format!("arn:aws:sts::{account}:assumed-role/{name}/{session}")
}
