//! Condition operators.

use super::context::Context;
use super::pattern::{matches_with_variables, resolved};

/// How a value of the request is compared with a value of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    StringEquals,
    StringLike,
    Bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Null,
    Is(Test),
    NoneEquals,
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
            "ForAllValues:StringNotEquals" => Self::NoneEquals,
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
            Self::Null => wanted.iter().any(|w| w.eq_ignore_ascii_case("true") != context.has(key)),
            Self::Is(test) => have.iter().any(|value| any(test, value)),
            Self::NoneEquals => !have.iter().any(|value| any(Test::StringEquals, value)),
        }
    }
}

impl Test {
    fn matches(self, have: &str, wanted: &str, context: &Context) -> bool {
        match self {
            Self::StringLike => matches_with_variables(wanted, have, context),
            Self::StringEquals => resolved(wanted, context).is_some_and(|w| w == have),
            Self::Bool => wanted.eq_ignore_ascii_case(have),
        }
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
        ] {
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            let o = Operator::parse(operator).expect(operator);
            assert_eq!(o.holds(key, &wanted, &c), yes, "{operator} {key} {wanted:?}");
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
}
