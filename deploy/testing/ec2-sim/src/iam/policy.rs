//! Policy documents, as IAM accepts them.

use super::condition::{Context, Operator, matches_action, matches_with_variables};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// One value or several.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// A list of values.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Returns all values.
    pub fn all(&self) -> &[T] {
        match self {
            Self::One(t) => std::slice::from_ref(t),
            Self::Many(t) => t,
        }
    }
}

/// Implemented by hand, so that an error describes the problem with the value instead of saying
/// that no variant matches.
impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        if value.is_array() {
            serde_json::from_value(value).map(Self::Many)
        } else {
            serde_json::from_value(value).map(Self::One)
        }
        .map_err(D::Error::custom)
    }
}

/// The conditions of a statement: operator, key, values.
pub(super) type Conditions = BTreeMap<String, BTreeMap<String, OneOrMany<String>>>;

pub(super) fn hold(conditions: &Conditions, context: &Context) -> bool {
    conditions.iter().all(|(operator, keys)| {
        Operator::parse(operator)
            .is_some_and(|o| keys.iter().all(|(key, wanted)| o.holds(key, wanted.all(), context)))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Effect {
    /// Allows the action. A document with `Deny` is refused.
    Allow,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Statement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    pub(crate) effect: Effect,
    pub action: OneOrMany<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<OneOrMany<String>>,
    /// Resources to which the statement does not apply, in place of `resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_resource: Option<OneOrMany<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) condition: Conditions,
}

/// A policy document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Document {
    /// The policy language version, `2012-10-17`.
    pub(crate) version: String,
    /// The document's statements.
    pub statement: OneOrMany<Statement>,
}

impl Document {
    /// Checks that IAM would accept the document and that the simulator can evaluate it.
    pub fn check(&self) -> Result<(), String> {
        if self.version != "2012-10-17" {
            return Err(format!("Version {:?} must be \"2012-10-17\"", self.version));
        }
        for (i, s) in self.statement.all().iter().enumerate() {
            let name = s.name(i);
            s.check().map_err(|why| format!("statement {name}: {why}"))?;
        }
        Ok(())
    }

    /// Returns whether a statement allows an action on a resource, with these condition keys.
    pub fn allows(&self, action: &str, resource: &str, keys: &[(&str, &str)]) -> bool {
        let mut context = Context::default();
        for (key, value) in keys {
            context.set(key, *value);
        }
        self.statement.all().iter().any(|s| s.matches(action, resource, &context).is_some())
    }
}

impl Statement {
    /// Returns the statement's `Sid`, or its number counted from 1.
    pub fn name(&self, index: usize) -> String {
        self.sid.clone().unwrap_or_else(|| format!("#{}", index + 1))
    }

    fn check(&self) -> Result<(), String> {
        let is_bad = |a: &&String| *a != "*" && a.split(':').filter(|p| !p.is_empty()).count() != 2;
        if let Some(bad) = self.action.all().iter().find(is_bad) {
            return Err(format!("{bad:?} is not an action such as \"ec2:CreateVolume\""));
        }
        if self.resource.is_some() == self.not_resource.is_some() {
            return Err("it needs either Resource or NotResource".to_owned());
        }
        for (operator, keys) in &self.condition {
            if Operator::parse(operator).is_none() {
                return Err(format!("the condition operator {operator:?} is not known"));
            }
            if let Some((key, _)) = keys.iter().find(|(_, v)| v.all().is_empty()) {
                return Err(format!("the condition key {key:?} has no value"));
            }
        }
        Ok(())
    }

    /// Returns the element because of which the statement applies to the request, or `None` if the
    /// statement does not apply.
    pub fn matches(&self, action: &str, resource: &str, context: &Context) -> Option<&str> {
        let mut actions = self.action.all().iter();
        let element = actions.find(|p| matches_action(p, action))?;
        let is_among = |list: &OneOrMany<String>| {
            list.all().iter().any(|p| matches_with_variables(p, resource, context))
        };
        let is_listed = self.resource.as_ref().is_some_and(is_among)
            || self.not_resource.as_ref().is_some_and(|list| !is_among(list));
        (is_listed && hold(&self.condition, context)).then_some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(json: &str) -> Result<Document, String> {
        let d: Document = serde_json::from_str(json).map_err(|e| e.to_string())?;
        d.check().map(|()| d)
    }

    #[test]
    fn invalid_or_unsupported_policy_documents_are_refused() {
        let statement = |s: &str| {
            format!(r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow",{s}}}]}}"#)
        };
        let on = |condition: &str| {
            statement(&format!(r#""Action":"ec2:*","Resource":"*","Condition":{{{condition}}}"#))
        };
        for (json, words) in [
            (r#"{"Version":"2008-10-17","Statement":[]}"#.to_owned(), "2012-10-17"),
            (r#"{"Version":"2012-10-17","Statment":[]}"#.to_owned(), "unknown field"),
            (statement(r#""Resource":"*""#), "missing field"),
            (statement(r#""Action":"ec2:*""#), "either Resource or NotResource"),
            (statement(r#""Action":"ec2:*","Resource":"*","NotResource":"a""#), "either Resource"),
            (statement(r#""Action":"CreateVolume","Resource":"*""#), "is not an action"),
            (on(r#""StringIs":{"a":"b"}"#), "operator \"StringIs\""),
            (on(r#""Bool":{"a":[]}"#), "has no value"),
            (on("").replace("Allow", "Deny"), "Deny"),
        ] {
            let e = document(&json).expect_err(&json);
            assert!(e.contains(words), "{json}: {e}");
        }
    }

    #[test]
    fn statement_applies_only_when_all_elements_match() {
        let d = document(
            r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":["ec2:CreateVolume","ec2:Copy*"],
                "Resource":"arn:*:ec2:*:*:volume/*","Condition":{"StringEquals":{"aws:RequestTag/x":"true"},"Null":{"aws:RequestTag/y":"true"}}}}"#,
        )
        .expect("document");
        let s = &d.statement.all()[0];
        let mut c = Context::default();
        let volume = "arn:aws:ec2:us-east-1:111122223333:volume/*";
        assert_eq!(s.matches("ec2:CreateVolume", volume, &c), None);
        c.set("aws:RequestTag/x", "true");
        assert_eq!(s.matches("ec2:CreateVolume", volume, &c), Some("ec2:CreateVolume"));
        assert_eq!(s.matches("ec2:CopyVolumes", volume, &c), Some("ec2:Copy*"));
        assert_eq!(s.matches("ec2:DeleteVolume", volume, &c), None);
        assert_eq!(s.matches("ec2:CreateVolume", "arn:aws:ec2:us-east-1::snapshot/s", &c), None);
        c.set("aws:RequestTag/y", "");
        assert_eq!(s.matches("ec2:CreateVolume", volume, &c), None);
        let mut other = s.clone();
        (other.resource, other.not_resource) = (None, other.resource);
        c = Context::default();
        c.set("aws:RequestTag/x", "true");
        assert_eq!(other.matches("ec2:CreateVolume", volume, &c), None);
        let snapshot = "arn:aws:ec2:us-east-1::snapshot/s";
        assert_eq!(other.matches("ec2:CreateVolume", snapshot, &c), Some("ec2:CreateVolume"));
    }
}
