//! Users and roles whose calls are judged.

use super::policy::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A user or a role with what it may do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// `arn:aws:iam::111122223333:role/NAME` or `…:user/NAME`.
    pub arn: String,
    /// Its long-lived access keys. The sessions of a role are known without.
    #[serde(default)]
    pub access_keys: Vec<String>,
    /// Its tags: `aws:PrincipalTag/KEY`.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Its policies, by name.
    #[serde(default)]
    pub policies: BTreeMap<String, Document>,
    /// Files with more policies, named after the file without its ending; relative to the scenario file, and read with it only.
    #[serde(default, skip_serializing)]
    pub policy_files: Vec<String>,
}

impl Principal {
    /// The account in its ARN.
    pub fn account(&self) -> &str {
        self.arn.split(':').nth(4).unwrap_or("")
    }

    /// Its ARN as messages show it.
    pub fn shown(&self) -> String {
        match self.arn.split_once(":role/") {
            // A key of a role without a session: as a session of that name.
            Some((_, name)) => assumed(self.account(), name, "ec2-sim"),
            None => self.arn.clone(),
        }
    }

    /// Reads `policy_files`, relative to a folder.
    ///
    /// # Errors
    /// When a file cannot be read or is not a policy.
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

    /// Refuses what cannot be a principal.
    ///
    /// # Errors
    /// What is wrong.
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

/// The ARN of a role's session. A role's path is not part of it.
pub(super) fn assumed(account: &str, role: &str, session: &str) -> String {
    let name = role.rsplit('/').next().unwrap_or(role);
    format!("arn:aws:sts::{account}:assumed-role/{name}/{session}")
}
