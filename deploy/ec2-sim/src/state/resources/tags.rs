//! Tags and their limits.

use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::query::Params;
use std::collections::BTreeMap;

/// The tags of a resource, by key.
pub(crate) type Tags = BTreeMap<String, String>;

/// The tags of rows that have none.
pub(crate) static NO_TAGS: Tags = Tags::new();

/// The maximum number of tags of a resource.
const MAX_TAGS: usize = 50;

/// Reads `TagSpecification.N` for a new resource of the given type.
///
/// # Errors
/// `InvalidParameterValue` for another resource type or a tag without a key; `MissingParameter` for
/// a specification without a resource type; the errors of [`check`].
pub(crate) fn specified(params: &Params, resource: &str) -> ApiResult<Tags> {
    let mut tags = Tags::new();
    for spec in params.structures("TagSpecification") {
        let kind = params
            .text(&format!("{spec}ResourceType"))
            .ok_or_else(|| ApiError::missing("TagSpecification.ResourceType"))?;
        if kind != resource {
            return Err(ApiError::value(format!(
                "'{kind}' is not a valid taggable resource type for this operation."
            )));
        }
        for (key, value) in listed(params, &format!("{spec}Tag"))? {
            tags.insert(key, value.unwrap_or_default());
        }
    }
    check(&tags)?;
    Ok(tags)
}

/// Reads `NAME.N.Key` and `NAME.N.Value`. A value may be absent (DeleteTags).
///
/// # Errors
/// `InvalidParameterValue` for a tag without a key.
pub(crate) fn listed(params: &Params, name: &str) -> ApiResult<Vec<(String, Option<String>)>> {
    params
        .structures(name)
        .into_iter()
        .map(|prefix| {
            let value = params.raw(&format!("{prefix}Value")).map(str::to_owned);
            match params.text(&format!("{prefix}Key")) {
                Some(key) => Ok((key.to_owned(), value)),
                None => Err(ApiError::value("Tag key must have a value")),
            }
        })
        .collect()
}

/// Checks the length of keys and values (at most 127 and 256 characters), the reserved prefix, and
/// the limit of 50 tags. Wordings unverified.
///
/// # Errors
/// `InvalidParameterValue`, `TagLimitExceeded`.
pub(crate) fn check(tags: &Tags) -> ApiResult<()> {
    for (key, value) in tags {
        if key.to_lowercase().starts_with("aws:") {
            return Err(ApiError::value(format!(
                "Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use"
            )));
        }
        if key.chars().count() > 127 {
            return Err(ApiError::value(format!(
                "Tag key exceeds the maximum length of 127 characters: {key}"
            )));
        }
        if value.chars().count() > 256 {
            return Err(ApiError::value(format!(
                "Tag value exceeds the maximum length of 256 characters: key {key}"
            )));
        }
    }
    if tags.len() > MAX_TAGS {
        return Err(ApiError::client(
            "TagLimitExceeded",
            format!("More than {MAX_TAGS} tags were specified for the resource"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> ApiResult<Tags> {
        specified(&Params::parse(query.as_bytes()), "volume")
    }

    #[test]
    fn tag_specification_parameters_become_tags() {
        let tags = parse("TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=&TagSpecification.1.Tag.2.Key=b&TagSpecification.1.Tag.2.Value=x")
            .expect("tags");
        assert_eq!(tags, Tags::from([("a".into(), String::new()), ("b".into(), "x".into())]));
    }

    #[test]
    fn bad_tags_are_refused() {
        let long_key = "k".repeat(128);
        let long_value = "v".repeat(257);
        for (query, code, words) in [
            (
                "TagSpecification.1.ResourceType=snapshot".to_owned(),
                "InvalidParameterValue",
                "'snapshot' is not a valid taggable resource type for this operation.",
            ),
            (
                "TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Value=x"
                    .to_owned(),
                "InvalidParameterValue",
                "Tag key must have a value",
            ),
            (
                "TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=aws:x"
                    .to_owned(),
                "InvalidParameterValue",
                "reserved",
            ),
            (
                format!(
                    "TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key={long_key}"
                ),
                "InvalidParameterValue",
                "127",
            ),
            (
                format!(
                    "TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.Tag.1.Value={long_value}"
                ),
                "InvalidParameterValue",
                "256",
            ),
        ] {
            let e = parse(&query).expect_err(&query);
            assert_eq!(e.code, code);
            assert!(e.message.contains(words), "{}", e.message);
        }
        let many: Tags = (0..51).map(|i| (format!("k{i}"), String::new())).collect();
        assert_eq!(check(&many).expect_err("51").code, "TagLimitExceeded");
    }
}
