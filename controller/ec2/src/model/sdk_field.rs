//! Conversion from the SDK's fields, which are all optional, to values that must be there.

use std::collections::BTreeMap;
use std::fmt;

use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};
use ebs_csi_wire::ids::IdError;

use crate::model::Tags;

/// The error that a field that EC2 always sends is missing or has the wrong shape.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Incomplete(&'static str);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer has no usable {}", self.0)
    }
}

/// Makes a closed list of EC2's words from one row for each, and `Other` for a word that this
/// version does not know.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident { $($(#[$row_doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$row_doc])* $variant,)*
            /// A word that this version does not know.
            Other(String),
        }

        impl $name {
            pub(crate) fn read(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

pub(crate) use words;

pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Incomplete> {
    value.ok_or(Incomplete(field))
}

pub(crate) fn id<T>(
    value: Option<&str>,
    field: &'static str,
    parse: impl Fn(&str) -> Result<T, IdError>,
) -> Result<T, Incomplete> {
    value.and_then(|id| parse(id).ok()).ok_or(Incomplete(field))
}

/// Converts a count; EC2 sends no negative ones.
pub(crate) fn number(value: Option<i32>) -> Option<u32> {
    value.and_then(|n| u32::try_from(n).ok())
}

/// Converts a text; EC2 sends some members empty instead of leaving them out.
pub(crate) fn text(value: Option<&str>) -> Option<String> {
    value.filter(|t| !t.is_empty()).map(str::to_owned)
}

pub(crate) fn tags(tags: &[Tag]) -> BTreeMap<String, String> {
    tags.iter()
        .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
        .collect()
}

pub(crate) fn to_i32(value: u32) -> i32 {
    // EC2's numbers end at i32::MAX. EC2 refuses a value that high with a clear message.
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn sdk_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

pub(crate) fn tag_specifications(kind: ResourceType, tags: &Tags) -> Option<Vec<TagSpecification>> {
    let specification = TagSpecification::builder().resource_type(kind);
    (!tags.is_empty()).then(|| vec![specification.set_tags(Some(sdk_tags(tags))).build()])
}
