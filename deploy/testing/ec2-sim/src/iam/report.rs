//! A report of the evaluated actions and the statements that decided.

use super::Principal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The statement that allowed an action, and the statement's element that named the action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DecidingElement {
    pub(super) policy: String,
    pub(super) statement: String,
    /// The matching `Action` element of the statement.
    pub(super) element: String,
}

/// Counts by principal, action and kind of resource.
#[derive(Debug, Default)]
pub(super) struct Report {
    evaluated: BTreeMap<(String, String, String), Count>,
}

#[derive(Debug, Default)]
struct Count {
    allowed: u64,
    denied: u64,
    by: BTreeMap<DecidingElement, u64>,
}

impl Report {
    pub(super) fn add(
        &mut self,
        principal: &str,
        action: &str,
        resource: &str,
        decided: Option<DecidingElement>,
    ) {
        let key = (principal.to_owned(), action.to_owned(), kind(resource));
        let count = self.evaluated.entry(key).or_default();
        match decided {
            Some(s) => {
                count.allowed += 1;
                *count.by.entry(s).or_default() += 1;
            }
            None => count.denied += 1,
        }
    }

    /// Returns the report as JSON. `asked` lists each action with the statements that decided;
    /// `statements` lists each element of each policy with how often the element decided, so that
    /// an unneeded element shows as 0.
    pub(super) fn json(&self, principals: &[Principal]) -> Value {
        let asked: Vec<Value> = self
            .evaluated
            .iter()
            .map(|((principal, action, resource), c)| {
                json!({"principal": principal, "action": action, "resource": resource, "allowed": c.allowed, "denied": c.denied})
            })
            .collect();
        let mut statements = Vec::new();
        for p in principals {
            for (policy, document) in &p.policies {
                for (i, s) in document.statement.all().iter().enumerate() {
                    let statement = s.name(i);
                    for element in s.action.all() {
                        let times = self.times(&p.arn, policy, &statement, element);
                        statements.push(json!({"principal": p.arn, "policy": policy, "statement": statement, "element": element, "times": times}));
                    }
                }
            }
        }
        json!({ "asked": asked, "statements": statements })
    }

    fn times(&self, principal: &str, policy: &str, statement: &str, element: &str) -> u64 {
        self.evaluated
            .iter()
            .filter(|((p, ..), _)| p == principal)
            .flat_map(|(_, c)| &c.by)
            .filter(|(s, _)| s.policy == policy && s.statement == statement && s.element == element)
            .map(|(_, times)| times)
            .sum()
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
