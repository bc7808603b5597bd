//! Tags of resources.

use std::collections::BTreeMap;

/// Tags to put on a resource, sorted, so that equal requests have equal bytes.
pub type Tags = BTreeMap<String, String>;

/// The tags that mark volumes as a cluster's own: one key that must be present, and one tag with
/// its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTags {
    /// The key that every volume of this driver has.
    pub key: &'static str,
    /// The tag that names the owner.
    pub owner: (String, String),
}

impl OwnTags {
    /// Returns whether these tags hold both.
    pub fn are_on(&self, tags: &Tags) -> bool {
        tags.contains_key(self.key) && tags.get(&self.owner.0) == Some(&self.owner.1)
    }
}
