//! The decision about an action, and the statement that decided.

use super::context::Context;
use super::policy::Document;
use std::collections::BTreeMap;

/// The statement that allowed an action, and the statement's element that named the action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DecidingElement {
    pub policy: String,
    pub statement: String,
    /// The matching `Action` element of the statement.
    pub element: String,
}

/// Returns the first statement that allows an action on a resource; `None`: the action is not
/// allowed.
pub(crate) fn decide(
    policies: &BTreeMap<String, Document>,
    action: &str,
    resource: &str,
    context: &Context,
) -> Option<DecidingElement> {
    policies.iter().find_map(|(policy, document)| {
        document.statement.all().iter().enumerate().find_map(|(i, s)| {
            Some(DecidingElement {
                policy: policy.clone(),
                statement: s.name(i),
                element: s.matches(action, resource, context)?.to_owned(),
            })
        })
    })
}
