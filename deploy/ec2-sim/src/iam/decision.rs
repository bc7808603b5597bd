//! The decision about an action, and the statement that decided.

use super::context::Context;
use super::policy::{Document, Effect};
use std::collections::BTreeMap;

/// The statement that decided, and the statement's element that named the action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DecidingElement {
    pub policy: String,
    pub statement: String,
    /// The matching `Action` element of the statement.
    pub element: String,
}

/// The decision of the policies about one action on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Allowed by this statement, the first of those that allow.
    Allowed(DecidingElement),
    /// Denied by this statement; a denial overrides every `Allow`.
    Denied(DecidingElement),
    NotAllowed,
}

/// Evaluates one action on one resource. A denial overrides every `Allow`; an action that no
/// statement allows is not allowed.
pub(crate) fn decide(
    policies: &BTreeMap<String, Document>,
    action: &str,
    resource: &str,
    context: &Context,
) -> Decision {
    let mut allowed = None;
    for (name, document) in policies {
        for (i, s) in document.statement.all().iter().enumerate() {
            let Some(element) = s.matches(action, resource, context) else {
                continue;
            };
            let spoke = || DecidingElement {
                policy: name.clone(),
                statement: s.name(i),
                element: element.to_owned(),
            };
            match s.effect {
                Effect::Deny => return Decision::Denied(spoke()),
                Effect::Allow if allowed.is_none() => allowed = Some(spoke()),
                Effect::Allow => {}
            }
        }
    }
    allowed.map_or(Decision::NotAllowed, Decision::Allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(all: &[(&str, &str, &str)]) -> BTreeMap<String, Document> {
        all.iter()
            .map(|(name, effect, action)| {
                let json = format!(
                    r#"{{"Version":"2012-10-17","Statement":[{{"Sid":"S","Effect":"{effect}","Action":"{action}","Resource":"*"}}]}}"#
                );
                ((*name).to_owned(), serde_json::from_str(&json).expect("policy"))
            })
            .collect()
    }

    #[test]
    fn explicit_deny_wins_and_default_is_deny() {
        let allow = ("a", "Allow", "ec2:*");
        let deny = ("z", "Deny", "ec2:Delete*");
        let c = Context::default();
        let ask = |p: &[(&str, &str, &str)], action: &str| decide(&policies(p), action, "*", &c);
        assert_eq!(ask(&[], "ec2:DeleteVolume"), Decision::NotAllowed);
        assert_eq!(ask(&[deny], "ec2:CreateVolume"), Decision::NotAllowed);
        assert!(
            matches!(ask(&[allow, deny], "ec2:CreateVolume"), Decision::Allowed(s) if s.policy == "a" && s.element == "ec2:*")
        );
        assert!(
            matches!(ask(&[allow, deny], "ec2:DeleteVolume"), Decision::Denied(s) if s.policy == "z")
        );
    }
}
