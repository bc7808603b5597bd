//! Condition operators.

use super::context::Context;
use super::pattern::{fits_with_variables, resolved};
use crate::time::Millis;

/// How a value of the request is compared with a value of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    StringEquals,
    StringEqualsIgnoreCase,
    StringLike,
    ArnLike,
    Bool,
    Numeric(Order),
    Date(Order),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The set operator for keys with several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    None,
    All,
    Any,
}

/// A condition operator, such as `StringLike` or `ForAllValues:StringEqualsIfExists`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operator {
    quantifier: Quantifier,
    kind: Kind,
    if_exists: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Compare { test: Test, negated: bool },
}

impl Operator {
    /// Reads an operator's name. Returns `None` for an operator that the simulator does not
    /// support.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (quantifier, name) = match name.split_once(':') {
            Some(("ForAllValues", rest)) => (Quantifier::All, rest),
            Some(("ForAnyValue", rest)) => (Quantifier::Any, rest),
            Some(_) => return None,
            None => (Quantifier::None, name),
        };
        let (name, if_exists) = match name.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name == "Null" {
            return (!if_exists && quantifier == Quantifier::None).then_some(Self {
                quantifier,
                kind: Kind::Null,
                if_exists,
            });
        }
        let (test, negated) = match name {
            "StringEquals" => (Test::StringEquals, false),
            "StringNotEquals" => (Test::StringEquals, true),
            "StringEqualsIgnoreCase" => (Test::StringEqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Test::StringEqualsIgnoreCase, true),
            "StringLike" => (Test::StringLike, false),
            "StringNotLike" => (Test::StringLike, true),
            "ArnEquals" | "ArnLike" => (Test::ArnLike, false),
            "ArnNotEquals" | "ArnNotLike" => (Test::ArnLike, true),
            "Bool" => (Test::Bool, false),
            "NumericEquals" => (Test::Numeric(Order::Equal), false),
            "NumericNotEquals" => (Test::Numeric(Order::Equal), true),
            "NumericLessThan" => (Test::Numeric(Order::Less), false),
            "NumericLessThanEquals" => (Test::Numeric(Order::LessOrEqual), false),
            "NumericGreaterThan" => (Test::Numeric(Order::Greater), false),
            "NumericGreaterThanEquals" => (Test::Numeric(Order::GreaterOrEqual), false),
            "DateEquals" => (Test::Date(Order::Equal), false),
            "DateNotEquals" => (Test::Date(Order::Equal), true),
            "DateLessThan" => (Test::Date(Order::Less), false),
            "DateLessThanEquals" => (Test::Date(Order::LessOrEqual), false),
            "DateGreaterThan" => (Test::Date(Order::Greater), false),
            "DateGreaterThanEquals" => (Test::Date(Order::GreaterOrEqual), false),
            _ => return None,
        };
        Some(Self {
            quantifier,
            kind: Kind::Compare { test, negated },
            if_exists,
        })
    }

    /// Returns whether the request's values of `key` satisfy the operator. The policy's values are
    /// alternatives; under a negated operator none of them may match.
    pub(super) fn holds(self, key: &str, wanted: &[String], context: &Context) -> bool {
        let have = context.get(key);
        let (test, negated) = match self.kind {
            Kind::Null => {
                return wanted
                    .iter()
                    .any(|w| w.eq_ignore_ascii_case("true") != context.has(key));
            }
            Kind::Compare { test, negated } => (test, negated),
        };
        if have.is_empty() {
            return match self.quantifier {
                Quantifier::All => true,
                Quantifier::Any => self.if_exists,
                // A missing key satisfies a negated operator.
                Quantifier::None => negated || self.if_exists,
            };
        }
        let one = |value: &String| wanted.iter().any(|w| test.fits(value, w, context)) != negated;
        match (self.quantifier, negated) {
            (Quantifier::All, _) | (Quantifier::None, true) => have.iter().all(one),
            (Quantifier::Any, _) | (Quantifier::None, false) => have.iter().any(one),
        }
    }
}

impl Test {
    fn fits(self, have: &str, wanted: &str, context: &Context) -> bool {
        match self {
            Self::StringLike | Self::ArnLike => fits_with_variables(wanted, have, context),
            Self::StringEquals => resolved(wanted, context).is_some_and(|w| w == have),
            Self::StringEqualsIgnoreCase => {
                resolved(wanted, context).is_some_and(|w| w.to_lowercase() == have.to_lowercase())
            }
            Self::Bool => wanted.eq_ignore_ascii_case(have),
            Self::Numeric(order) => match (have.parse::<f64>(), wanted.parse::<f64>()) {
                (Ok(h), Ok(w)) => order.fits(h.partial_cmp(&w)),
                _ => false,
            },
            Self::Date(order) => match (Millis::parse(have), Millis::parse(wanted)) {
                (Some(h), Some(w)) => order.fits(Some(h.cmp(&w))),
                _ => false,
            },
        }
    }
}

impl Order {
    fn fits(self, order: Option<std::cmp::Ordering>) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self {
            Self::Equal => order == Some(Equal),
            Self::Less => order == Some(Less),
            Self::LessOrEqual => matches!(order, Some(Less | Equal)),
            Self::Greater => order == Some(Greater),
            Self::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let mut c = Context::default();
        c.set("aws:RequestTag/team", "red")
            .set("ec2:VolumeSize", "10")
            .set("ec2:Encrypted", "true")
            .set("aws:CurrentTime", "2026-01-01T00:00:00Z")
            .set("aws:PrincipalTag/team", "red")
            .set_all("aws:TagKeys", vec!["a".to_owned(), "b".to_owned()]);
        c
    }

    #[test]
    fn condition_operators_follow_iam_semantics() {
        let c = context();
        for (operator, key, wanted, yes) in [
            (
                "StringEquals",
                "aws:requesttag/TEAM",
                vec!["blue", "red"],
                true,
            ),
            ("StringEquals", "aws:RequestTag/team", vec!["r*"], false),
            (
                "StringEquals",
                "aws:RequestTag/team",
                vec!["${aws:PrincipalTag/team}"],
                true,
            ),
            (
                "StringEquals",
                "aws:RequestTag/team",
                vec!["${aws:PrincipalTag/none}"],
                false,
            ),
            ("StringEquals", "aws:RequestTag/none", vec!["red"], false),
            (
                "StringEqualsIfExists",
                "aws:RequestTag/none",
                vec!["red"],
                true,
            ),
            (
                "StringEqualsIgnoreCase",
                "aws:RequestTag/team",
                vec!["RED"],
                true,
            ),
            (
                "StringNotEquals",
                "aws:RequestTag/team",
                vec!["blue", "green"],
                true,
            ),
            (
                "StringNotEquals",
                "aws:RequestTag/team",
                vec!["blue", "red"],
                false,
            ),
            ("StringNotEquals", "aws:RequestTag/none", vec!["red"], true),
            ("StringLike", "aws:RequestTag/team", vec!["r?d"], true),
            ("StringNotLike", "aws:RequestTag/team", vec!["r*"], false),
            ("NumericLessThanEquals", "ec2:VolumeSize", vec!["10"], true),
            ("NumericGreaterThan", "ec2:VolumeSize", vec!["10"], false),
            ("NumericEquals", "ec2:VolumeSize", vec!["ten"], false),
            ("Bool", "ec2:Encrypted", vec!["true"], true),
            ("Bool", "ec2:Encrypted", vec!["false"], false),
            (
                "DateLessThan",
                "aws:CurrentTime",
                vec!["2027-01-01T00:00:00Z"],
                true,
            ),
            ("Null", "aws:RequestTag/team", vec!["false"], true),
            ("Null", "aws:RequestTag/team", vec!["true"], false),
            ("Null", "aws:RequestTag/none", vec!["true"], true),
            (
                "ForAllValues:StringEquals",
                "aws:TagKeys",
                vec!["a", "b", "c"],
                true,
            ),
            ("ForAllValues:StringEquals", "aws:TagKeys", vec!["a"], false),
            ("ForAllValues:StringEquals", "aws:None", vec!["a"], true),
            ("ForAnyValue:StringEquals", "aws:TagKeys", vec!["a"], true),
            ("ForAnyValue:StringEquals", "aws:TagKeys", vec!["c"], false),
            ("ForAnyValue:StringEquals", "aws:None", vec!["c"], false),
            (
                "ForAllValues:StringNotEquals",
                "aws:TagKeys",
                vec!["b"],
                false,
            ),
            (
                "ForAllValues:StringNotEquals",
                "aws:TagKeys",
                vec!["c"],
                true,
            ),
        ] {
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            let o = Operator::parse(operator).expect(operator);
            assert_eq!(
                o.holds(key, &wanted, &c),
                yes,
                "{operator} {key} {wanted:?}"
            );
        }
    }

    #[test]
    fn unknown_condition_operator_parses_to_none() {
        for name in [
            "StringIs",
            "ForSome:StringEquals",
            "NullIfExists",
            "IpAddress",
            "",
        ] {
            assert_eq!(Operator::parse(name), None, "{name}");
        }
    }
}
