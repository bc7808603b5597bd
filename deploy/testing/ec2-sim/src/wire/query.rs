//! Parses a Query request's parameters: flattened lists and typed values; leftover parameters are
//! refused.

use super::{ApiError, ApiResult, refuse, refuse_value};
use std::cell::Cell;
use std::collections::BTreeMap;

/// The parameters of one request. Reading a parameter marks it; [`Params::finish`] refuses unread
/// parameters, as EC2 does.
#[derive(Debug, Default)]
pub(crate) struct Params {
    map: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    value: String,
    used: Cell<bool>,
}

impl Params {
    /// Parses a form body or a query string. A repeated name keeps its last value.
    pub(crate) fn parse(form: &[u8]) -> Self {
        let map = form_urlencoded::parse(form)
            .map(|(k, v)| (k.into_owned(), Entry { value: v.into_owned(), used: Cell::new(false) }))
            .collect();
        Self { map }
    }

    /// Returns all names and values, without marking them as read.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.map.iter().map(|(k, e)| (k.as_str(), e.value.as_str()))
    }

    /// Returns a value without marking the parameter as read.
    pub(crate) fn peek(&self, name: &str) -> Option<&str> {
        self.map.get(name).map(|e| e.value.as_str())
    }

    /// Returns a text parameter. EC2 treats an empty value as absent almost everywhere.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|v| !v.is_empty())
    }

    /// Returns a text parameter, even if it is empty (tag values).
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let entry = self.map.get(name)?;
        entry.used.set(true);
        Some(&entry.value)
    }

    /// Returns a required text parameter; `shown_name` is the name in the error.
    pub(crate) fn required(&self, name: &str, shown_name: &str) -> ApiResult<&str> {
        self.text(name).ok_or_else(|| ApiError::missing(shown_name))
    }

    /// Parses a boolean: `true` or `false`, ignoring case.
    pub(crate) fn boolean(&self, name: &str) -> ApiResult<Option<bool>> {
        match self.text(name) {
            None => Ok(None),
            Some(v) if v.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(v) if v.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(v) => refuse_value!("Invalid value '{v}' for boolean parameter {name}"),
        }
    }

    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        let Some(v) = self.text(name) else { return Ok(None) };
        let Ok(number) = v.parse() else {
            let name = lower_first(name);
            refuse_value!("Value ({v}) for parameter {name} is invalid. Expected an integer.");
        };
        Ok(Some(number))
    }

    /// Parses a positive integer. The error has EC2's recorded wording.
    pub(crate) fn positive(&self, name: &str) -> ApiResult<Option<u32>> {
        let Some(v) = self.number(name)? else { return Ok(None) };
        let Some(positive) = u32::try_from(v).ok().filter(|v| *v > 0) else {
            let name = lower_first(name);
            refuse_value!(
                "Value ({v}) for parameter {name} is invalid. Value must be a positive integer."
            );
        };
        Ok(Some(positive))
    }

    /// Returns the values of `name.1`, `name.2`, …, in numeric order.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.indices(name).into_iter().filter_map(|i| self.raw(&format!("{name}.{i}"))).collect()
    }

    /// Returns the prefixes `name.1.`, `name.2.`, … that occur, for lists of structures.
    pub(crate) fn structures(&self, name: &str) -> Vec<String> {
        self.indices(name).into_iter().map(|i| format!("{name}.{i}.")).collect()
    }

    fn indices(&self, name: &str) -> Vec<u32> {
        let prefix = format!("{name}.");
        let mut found: Vec<u32> = self
            .map
            .range(prefix.clone()..)
            .take_while(|(k, _)| k.starts_with(&prefix))
            .filter_map(|(k, _)| k[prefix.len()..].split('.').next()?.parse().ok())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Refuses parameters that the action did not read.
    pub(crate) fn finish(&self) -> ApiResult<()> {
        let known = |k: &str| matches!(k, "Action" | "Version" | "DryRun");
        if let Some((k, _)) = self.map.iter().find(|(k, e)| !e.used.get() && !known(k)) {
            refuse!("UnknownParameter", "The parameter {k} is not recognized");
        }
        Ok(())
    }
}

/// Turns `VolumeId` into `volumeId`, the form in which EC2's messages name parameters.
fn lower_first(name: &str) -> String {
    let mut chars = name.chars();
    match chars.next() {
        Some(c) => c.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Returns whether a Describe call has no ids, filters or paging. Such a call uses the smaller
/// bucket.
pub(crate) fn unfiltered(params: &Params) -> bool {
    params.pairs().all(|(k, _)| {
        !k.starts_with("Filter.") && !k.contains("Id.") && !matches!(k, "MaxResults" | "NextToken")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_parameters_are_sorted_by_numeric_index() {
        let p = Params::parse(b"VolumeId.10=c&VolumeId.2=b&VolumeId.1=a&Tag.1.Key=k&Tag.1.Value=");
        assert_eq!(p.list("VolumeId"), ["a", "b", "c"]);
        assert_eq!(p.structures("Tag"), ["Tag.1."]);
        assert_eq!(p.raw("Tag.1.Key"), Some("k"));
        assert_eq!(p.raw("Tag.1.Value"), Some(""));
        assert!(p.finish().is_ok());
    }

    #[test]
    fn call_without_ids_filters_or_page_is_unfiltered() {
        for (query, yes) in [
            ("Action=DescribeVolumes&Version=1", true),
            ("VolumeId.1=vol-1", false),
            ("MaxResults=5", false),
            ("Filter.1.Name=status&Filter.1.Value.1=x", false),
            ("Owner.1=self", true),
        ] {
            assert_eq!(unfiltered(&Params::parse(query.as_bytes())), yes, "{query}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(0u8.., 0..200)) {
            let p = Params::parse(&bytes);
            let _ = (p.list("VolumeId"), p.structures("Filter"), p.finish());
        }
    }
}
