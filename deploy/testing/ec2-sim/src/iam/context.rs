//! The request context that IAM evaluates: condition keys with their values.

use std::collections::BTreeMap;

/// Condition keys and their values. Names are compared case-insensitively, as in IAM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    values: BTreeMap<String, Vec<String>>,
}

impl Context {
    pub fn set(&mut self, key: &str, value: impl Into<String>) -> &mut Self {
        self.set_all(key, vec![value.into()])
    }

    /// Sets a key that has several values, such as `aws:TagKeys`. Without values, the request does
    /// not have the key.
    pub(crate) fn set_all(&mut self, key: &str, values: Vec<String>) -> &mut Self {
        if !values.is_empty() {
            self.values.insert(key.to_ascii_lowercase(), values);
        }
        self
    }

    pub fn tags<'a>(
        &mut self,
        prefix: &str,
        tags: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> &mut Self {
        for (key, value) in tags {
            self.set(&format!("{prefix}/{key}"), value.as_str());
        }
        self
    }

    pub fn extend(&mut self, other: &Self) -> &mut Self {
        for (k, v) in &other.values {
            self.values.insert(k.clone(), v.clone());
        }
        self
    }

    /// Returns a key's values; empty if the request does not have the key.
    pub fn get(&self, key: &str) -> &[String] {
        self.values.get(&key.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.contains_key(&key.to_ascii_lowercase())
    }
}
