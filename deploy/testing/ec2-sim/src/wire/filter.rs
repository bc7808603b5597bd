//! `Filter.N`: the values of a filter are alternatives, all filters must match, `*` and `?` are
//! wildcards, and matching is case-sensitive.

use super::{ApiError, ApiResult, Params, refuse, refuse_value};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub name: String,
    pub values: Vec<String>,
    /// The values without wildcards.
    literal: BTreeSet<String>,
    patterns: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Filters(pub Vec<Filter>);

const MAX_VALUES: usize = 200;

impl Filters {
    /// Parses the filters. `known` lists the names that the action accepts; `tag:KEY` is accepted
    /// if `tag-key` is.
    pub(crate) fn parse(params: &Params, known: &[&str]) -> ApiResult<Self> {
        let mut out = Vec::new();
        for prefix in params.structures("Filter") {
            let name = params
                .text(&format!("{prefix}Name"))
                .ok_or_else(|| ApiError::missing("Filter.Name"))?;
            let is_tag = name.starts_with("tag:") && known.contains(&"tag-key");
            if !is_tag && !known.contains(&name) {
                refuse_value!("The filter '{name}' is invalid");
            }
            let values: Vec<String> =
                params.list(&format!("{prefix}Value")).into_iter().map(str::to_owned).collect();
            if values.len() > MAX_VALUES {
                refuse!(
                    "FilterLimitExceeded",
                    "The maximum number of filter values specified on a single call is 200"
                );
            }
            out.push(Filter::new(name, values));
        }
        Ok(Self(out))
    }

    /// Returns whether every filter other than tag filters accepts the row; `field` returns an
    /// attribute's values.
    pub(crate) fn accept(&self, mut field: impl FnMut(&str) -> Vec<String>) -> bool {
        self.0
            .iter()
            .filter(|f| !is_tag_filter(&f.name))
            .all(|f| field(&f.name).iter().any(|v| f.matches(v)))
    }

    pub(crate) fn accept_tags(&self, tags: &BTreeMap<String, String>) -> bool {
        self.0.iter().filter(|f| is_tag_filter(&f.name)).all(|f| {
            match f.name.strip_prefix("tag:") {
                Some(key) => tags.get(key).is_some_and(|v| f.matches(v)),
                None => tags.keys().any(|k| f.matches(k)),
            }
        })
    }

    pub(crate) fn are_by_tags(&self) -> bool {
        self.0.iter().any(|f| is_tag_filter(&f.name))
    }

    /// Returns the values of the named filter if all are literal, so that an index can answer.
    pub(crate) fn literal(&self, name: &str) -> Option<&[String]> {
        let f = self.0.iter().find(|f| f.name == name)?;
        f.patterns.is_empty().then_some(f.values.as_slice())
    }

    /// Returns key and values of the first `tag:KEY` filter with literal values.
    pub(crate) fn literal_tag(&self) -> Option<(&str, &[String])> {
        self.0.iter().find_map(|f| {
            let key = f.name.strip_prefix("tag:")?;
            f.patterns.is_empty().then_some((key, f.values.as_slice()))
        })
    }
}

/// Returns whether a filter is a tag filter. Tag filters apply to a page after it was cut, so a
/// page can be empty and have a next token.
fn is_tag_filter(name: &str) -> bool {
    name.starts_with("tag:") || name == "tag-key"
}

impl Filter {
    fn new(name: &str, values: Vec<String>) -> Self {
        let (wild, literal): (Vec<&String>, Vec<&String>) =
            values.iter().partition(|v| v.contains(['*', '?', '\\']));
        Self {
            name: name.to_owned(),
            literal: literal.into_iter().cloned().collect(),
            patterns: wild.into_iter().map(|v| pieces(v)).collect(),
            values,
        }
    }

    fn matches(&self, value: &str) -> bool {
        self.literal.contains(value) || self.patterns.iter().any(|p| matches_pattern(p, value))
    }
}

/// Splits a pattern: `*` matches any run, `?` matches one character, `\` makes the next character
/// literal.
fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            '\\' => Piece::Char(chars.next().unwrap_or('\\')),
            c => Piece::of(c),
        });
    }
    pieces
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Run,
    One,
    Char(char),
}

impl Piece {
    pub(crate) fn of(c: char) -> Self {
        match c {
            '*' => Self::Run,
            '?' => Self::One,
            c => Self::Char(c),
        }
    }
}

/// Returns whether a text matches a pattern. The match is greedy: if the rest does not match, the
/// last run takes one more character.
pub(crate) fn matches_pattern(pattern: &[Piece], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut last_run = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Piece::Run) => {
                last_run = Some((p + 1, t));
                p += 1;
            }
            Some(Piece::One) => {
                p += 1;
                t += 1;
            }
            Some(Piece::Char(c)) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match last_run {
                Some((after, from)) => {
                    last_run = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|p| *p == Piece::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_documented() {
        for (pattern, text, yes) in [
            ("abc", "abc", true),
            ("abc", "ABC", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "aXbYbZc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "", true),
            ("*", "", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ] {
            let f = Filter::new("n", vec![pattern.to_owned()]);
            assert_eq!(f.matches(text), yes, "{pattern} on {text}");
        }
    }

    #[test]
    fn filter_values_are_alternatives_tag_filter_needs_tag() {
        let p = Params::parse(
            b"Filter.1.Name=status&Filter.1.Value.1=available&Filter.1.Value.2=in-use&Filter.2.Name=tag:app&Filter.2.Value.1=db*",
        );
        let f = Filters::parse(&p, &["status", "tag-key"]).expect("known names");
        let field = |name: &str| match name {
            "status" => vec!["in-use".to_owned()],
            _ => vec![],
        };
        assert!(f.accept(field));
        let tags = |v: &str| BTreeMap::from([("app".to_owned(), v.to_owned())]);
        assert!(f.accept_tags(&tags("db-1")));
        assert!(!f.accept_tags(&tags("web")));
        assert!(!f.accept_tags(&BTreeMap::new()));
        assert!(p.finish().is_ok());
    }
}
