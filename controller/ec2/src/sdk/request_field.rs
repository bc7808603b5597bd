//! Conversion of the driver's values to the fields of the SDK's requests.

use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};

use crate::model::tags::Tags;

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
