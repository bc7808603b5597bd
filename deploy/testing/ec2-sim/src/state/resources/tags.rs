//! Tags and their limits.

use crate::wire::{ApiError, ApiResult, Params, refuse, refuse_value};
use std::collections::BTreeMap;

pub(crate) type Tags = BTreeMap<String, String>;

/// The tags of rows that have none.
pub(crate) static NO_TAGS: Tags = Tags::new();

const MAX_TAGS: usize = 50;

/// Reads `TagSpecification.N` for a new resource of the given type.
pub(crate) fn parse_specifications(params: &Params, resource: &str) -> ApiResult<Tags> {
    let mut tags = Tags::new();
    for spec in params.structures("TagSpecification") {
        let kind = params
            .text(&format!("{spec}ResourceType"))
            .ok_or_else(|| ApiError::missing("TagSpecification.ResourceType"))?;
        if kind != resource {
            refuse_value!("'{kind}' is not a valid taggable resource type for this operation.");
        }
        tags.extend(parse_tags(params, &format!("{spec}Tag"))?);
    }
    check(&tags)?;
    Ok(tags)
}

/// Reads `NAME.N.Key` and `NAME.N.Value`. An absent value is empty.
pub(crate) fn parse_tags(params: &Params, name: &str) -> ApiResult<Tags> {
    let pairs = parse_pairs(params, name)?;
    Ok(pairs.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect())
}

/// Reads `NAME.N.Key` and `NAME.N.Value`, which may be absent; refuses a tag without a key.
pub(crate) fn parse_pairs(params: &Params, name: &str) -> ApiResult<Vec<(String, Option<String>)>> {
    let pair = |prefix: String| {
        let value = params.raw(&format!("{prefix}Value")).map(str::to_owned);
        Some((params.text(&format!("{prefix}Key"))?.to_owned(), value))
    };
    let pairs: Option<Vec<_>> = params.structures(name).into_iter().map(pair).collect();
    pairs.ok_or_else(|| ApiError::value("Tag key must have a value"))
}

/// Checks the length of keys and values (at most 127 and 256 characters), the reserved prefix, and
/// the limit of 50 tags. Wordings unverified.
pub(crate) fn check(tags: &Tags) -> ApiResult<()> {
    for (key, value) in tags {
        if key.to_lowercase().starts_with("aws:") {
            refuse_value!(
                "Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use"
            );
        }
        if key.chars().count() > 127 {
            refuse_value!("Tag key exceeds the maximum length of 127 characters: {key}");
        }
        if value.chars().count() > 256 {
            refuse_value!("Tag value exceeds the maximum length of 256 characters: key {key}");
        }
    }
    if tags.len() > MAX_TAGS {
        refuse!("TagLimitExceeded", "More than {MAX_TAGS} tags were specified for the resource");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_beyond_ec2_limits_are_refused() {
        let tag = |key: String, value: String| Tags::from([(key, value)]);
        assert_eq!(check(&tag("k".repeat(127), "v".repeat(256))), Ok(()));
        for (tags, words) in [
            (tag("AWS:x".to_owned(), String::new()), "reserved"),
            (tag("k".repeat(128), String::new()), "127"),
            (tag("k".to_owned(), "v".repeat(257)), "256"),
        ] {
            let e = check(&tags).expect_err(words);
            assert_eq!(e.code, "InvalidParameterValue");
            assert!(e.message.contains(words), "{}", e.message);
        }
        let many: Tags = (0..51).map(|i| (format!("k{i}"), String::new())).collect();
        assert_eq!(check(&many).expect_err("51").code, "TagLimitExceeded");
    }
}
