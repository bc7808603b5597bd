//! A report of the evaluated actions and the statements that decided.

use super::Principal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The statement that allowed an action: policy, statement, and the matching `Action` element.
pub(super) type Deciding = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Report {
    /// How often an action was allowed and denied, by principal, action and kind of resource.
    evaluated: BTreeMap<(String, String, String), (u64, u64)>,
    /// How often a statement of a principal decided.
    decided: BTreeMap<(String, Deciding), u64>,
}

impl Report {
    pub(super) fn add(
        &mut self,
        principal: &str,
        action: &str,
        resource: &str,
        decided: Option<Deciding>,
    ) {
        let key = (principal.to_owned(), action.to_owned(), kind(resource));
        let (allowed, denied) = self.evaluated.entry(key).or_default();
        match decided {
            Some(by) => {
                *allowed += 1;
                *self.decided.entry((principal.to_owned(), by)).or_default() += 1;
            }
            None => *denied += 1,
        }
    }

    /// Returns the report as JSON. `asked` lists each action with the statements that decided;
    /// `statements` lists each element of each policy with how often the element decided, so that
    /// an unneeded element shows as 0.
    pub(super) fn json(&self, principals: &[Principal]) -> Value {
        let asked: Vec<Value> = self
            .evaluated
            .iter()
            .map(|((principal, action, resource), (allowed, denied))| {
                json!({"principal": principal, "action": action, "resource": resource, "allowed": allowed, "denied": denied})
            })
            .collect();
        let mut statements = Vec::new();
        for p in principals {
            for (policy, document) in &p.policies {
                for (i, s) in document.statement.all().iter().enumerate() {
                    for element in s.action.all() {
                        let by = (policy.clone(), s.name(i), element.clone());
                        let times = self.decided.get(&(p.arn.clone(), by)).unwrap_or(&0);
                        statements.push(json!({"principal": p.arn, "policy": policy, "statement": s.name(i), "element": element, "times": times}));
                    }
                }
            }
        }
        json!({ "asked": asked, "statements": statements })
    }
}

/// Returns a resource's ARN without the id, to keep the report small:
/// `arn:aws:ec2:us-east-1:111122223333:volume/*`.
fn kind(resource: &str) -> String {
    match resource.split_once('/') {
        Some((kind, _)) if resource.starts_with("arn:") => format!("{kind}/*"),
        _ => resource.to_owned(),
    }
}
