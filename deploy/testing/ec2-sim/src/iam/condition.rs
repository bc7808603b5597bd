//! The conditions of a statement: the request's keys, the operators, and patterns with wildcards
//! and variables.

use crate::wire::filter::{Piece, matches_pattern};
use std::collections::BTreeMap;

/// How a value of the request is compared with a value of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    StringEquals,
    EqualsIgnoringCase,
    StringLike,
    Bool,
    AtMost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Null,
    Is(Test),
    /// No value of the request passes the test.
    None(Test),
}

impl Operator {
    /// Reads an operator's name. Returns `None` for an operator that the simulator does not
    /// support.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "Null" => Self::Null,
            "StringEquals" => Self::Is(Test::StringEquals),
            "StringLike" => Self::Is(Test::StringLike),
            "Bool" => Self::Is(Test::Bool),
            "NumericLessThanEquals" => Self::Is(Test::AtMost),
            "ForAllValues:StringNotEquals" => Self::None(Test::StringEquals),
            "ForAllValues:StringNotEqualsIgnoreCase" => Self::None(Test::EqualsIgnoringCase),
            _ => return None,
        })
    }

    /// Returns whether the request's values of `key` satisfy the operator. The policy's values are
    /// alternatives; under a negated operator none of them may match.
    pub(super) fn holds(self, key: &str, wanted: &[String], context: &Context) -> bool {
        let have = context.get(key);
        let any =
            |test: Test, value: &String| wanted.iter().any(|w| test.matches(value, w, context));
        match self {
            Self::Null => wanted.iter().any(|w| w.eq_ignore_ascii_case("true") == have.is_empty()),
            Self::Is(test) => have.iter().any(|value| any(test, value)),
            Self::None(test) => !have.iter().any(|value| any(test, value)),
        }
    }
}

impl Test {
    fn matches(self, have: &str, wanted: &str, context: &Context) -> bool {
        match self {
            Self::StringLike => matches_with_variables(wanted, have, context),
            Self::StringEquals => resolved(wanted, context).is_some_and(|w| w == have),
            Self::EqualsIgnoringCase => {
                resolved(wanted, context).is_some_and(|w| w.eq_ignore_ascii_case(have))
            }
            Self::Bool => wanted.eq_ignore_ascii_case(have),
            Self::AtMost => match (have.parse::<f64>(), wanted.parse::<f64>()) {
                (Ok(have), Ok(wanted)) => have <= wanted,
                _ => false,
            },
        }
    }
}

/// Returns whether an action matches a pattern, ignoring case.
pub(super) fn matches_action(pattern: &str, action: &str) -> bool {
    let pattern: Vec<Piece> = pattern.to_ascii_lowercase().chars().map(Piece::of).collect();
    matches_pattern(&pattern, &action.to_ascii_lowercase())
}

/// Returns whether `text` matches `pattern`, in which `*` stands for any characters, `?` for one,
/// and `${aws:PrincipalTag/x}` for a value of the request, which is taken literally. A variable
/// without a value in the request matches nothing.
pub(super) fn matches_with_variables(pattern: &str, text: &str, context: &Context) -> bool {
    pieces(pattern, context).is_some_and(|p| matches_pattern(&p, text))
}

/// Returns the text of a pattern with its variables replaced and its wildcards taken literally, or
/// `None` if the request has no value for one of the variables.
pub(super) fn resolved(pattern: &str, context: &Context) -> Option<String> {
    let literally = |piece| match piece {
        Piece::Run => '*',
        Piece::One => '?',
        Piece::Char(c) => c,
    };
    Some(pieces(pattern, context)?.into_iter().map(literally).collect())
}

fn pieces(pattern: &str, context: &Context) -> Option<Vec<Piece>> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}')?;
        out.extend(before.chars().map(Piece::of));
        // A key with several values cannot be substituted.
        let [value] = context.get(name) else { return None };
        out.extend(value.chars().map(Piece::Char));
        rest = tail;
    }
    out.extend(rest.chars().map(Piece::of));
    Some(out)
}

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

    /// Adds a key for each tag. Where the keys of two tags differ in case alone, IAM compares one
    /// of the values and does not say which; here both count, the worst case for a guard.
    pub fn tags<'a>(
        &mut self,
        prefix: &str,
        tags: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> &mut Self {
        for (key, value) in tags {
            let key = format!("{prefix}/{key}").to_ascii_lowercase();
            self.values.entry(key).or_default().push(value.clone());
        }
        self
    }

    pub fn extend(&mut self, other: &Self) {
        self.values.extend(other.values.clone());
    }

    /// Returns a key's values; empty if the request does not have the key.
    pub fn get(&self, key: &str) -> &[String] {
        self.values.get(&key.to_ascii_lowercase()).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let mut c = Context::default();
        c.set("aws:RequestTag/team", "red")
            .set("ec2:Encrypted", "true")
            .set("aws:PrincipalTag/team", "red")
            .set("ec2:SnapshotLockDuration", "10")
            .set_all("aws:TagKeys", vec!["a".to_owned(), "b".to_owned()]);
        c
    }

    #[test]
    fn condition_operators_follow_iam_semantics() {
        let c = context();
        let (team, none, keys) = ("aws:RequestTag/team", "aws:RequestTag/none", "aws:TagKeys");
        for (operator, key, wanted, yes) in [
            ("StringEquals", "aws:requesttag/TEAM", vec!["blue", "red"], true),
            ("StringEquals", team, vec!["r*"], false),
            ("StringEquals", team, vec!["${aws:PrincipalTag/team}"], true),
            ("StringEquals", team, vec!["${aws:PrincipalTag/none}"], false),
            ("StringEquals", none, vec!["red"], false),
            ("StringLike", team, vec!["r?d"], true),
            ("StringLike", team, vec!["b*"], false),
            ("Bool", "ec2:Encrypted", vec!["true"], true),
            ("Bool", "ec2:Encrypted", vec!["false"], false),
            ("Null", team, vec!["false"], true),
            ("Null", team, vec!["true"], false),
            ("Null", none, vec!["true"], true),
            ("ForAllValues:StringNotEquals", keys, vec!["b"], false),
            ("ForAllValues:StringNotEquals", keys, vec!["c"], true),
            ("ForAllValues:StringNotEquals", "aws:None", vec!["c"], true),
            ("ForAllValues:StringNotEquals", keys, vec!["B"], true),
            ("ForAllValues:StringNotEqualsIgnoreCase", keys, vec!["B"], false),
            ("ForAllValues:StringNotEqualsIgnoreCase", keys, vec!["C"], true),
            ("NumericLessThanEquals", "ec2:SnapshotLockDuration", vec!["10"], true),
            ("NumericLessThanEquals", "ec2:SnapshotLockDuration", vec!["9"], false),
            ("NumericLessThanEquals", "ec2:SnapshotLockDuration", vec!["ten"], false),
            ("NumericLessThanEquals", none, vec!["10"], false),
        ] {
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            let o = Operator::parse(operator).expect(operator);
            assert_eq!(o.holds(key, &wanted, &c), yes, "{operator} {key} {wanted:?}");
        }
    }

    #[test]
    fn tag_keys_match_ignoring_case() {
        let tags = [("Team", "red"), ("team", "blue"), ("SIZE", "l")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut c = Context::default();
        c.tags("aws:ResourceTag", tags.iter().map(|(key, value)| (key, value)));
        for (key, wanted, yes) in [
            ("aws:ResourceTag/size", "l", true),
            ("aws:ResourceTag/size", "L", false),
            ("aws:ResourceTag/TEAM", "red", true),
            ("aws:ResourceTag/TEAM", "blue", true),
            ("aws:ResourceTag/team", "green", false),
        ] {
            let holds = Operator::Is(Test::StringEquals).holds(key, &[wanted.to_owned()], &c);
            assert_eq!(holds, yes, "{key} {wanted}");
        }
    }

    #[test]
    fn unknown_condition_operator_parses_to_none() {
        for name in
            ["StringNotLike", "ForAllValues:StringEquals", "StringEqualsIfExists", "IpAddress", ""]
        {
            assert_eq!(Operator::parse(name), None, "{name}");
        }
    }

    #[test]
    fn action_patterns_match_ignoring_case() {
        assert!(matches_action("EC2:create*", "ec2:CreateVolume"));
        assert!(!matches_action("ec2:Create", "ec2:CreateVolume"));
    }

    #[test]
    fn policy_variables_expand_literally_without_wildcards() {
        let mut c = Context::default();
        c.set("aws:PrincipalTag/team", "a*");
        for (pattern, text, yes) in [
            ("x-${aws:PrincipalTag/team}", "x-a*", true),
            ("x-${aws:PrincipalTag/team}", "x-abc", false),
            ("x-${aws:principaltag/team}*", "x-a*bc", true),
            ("${aws:PrincipalTag/none}", "", false),
            ("${unfinished", "x", false),
            ("arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:us-east-1:1:volume/vol-1", true),
            ("arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:us-east-1:1:snapshot/s", false),
        ] {
            assert_eq!(matches_with_variables(pattern, text, &c), yes, "{pattern} {text}");
        }
        assert_eq!(resolved("=${aws:PrincipalTag/team}?", &c).as_deref(), Some("=a*?"));
    }

    proptest::proptest! {
        #[test]
        fn text_matches_itself_starred(text in "[a-z:/]{0,20}", from in 0usize..20, to in 0usize..20) {
            let (from, to) = (from.min(to).min(text.len()), from.max(to).min(text.len()));
            for pattern in [text.clone(), format!("{}*{}", &text[..from], &text[to..])] {
                proptest::prop_assert!(matches_action(&pattern, &text), "{} {}", pattern, text);
            }
        }
    }
}
