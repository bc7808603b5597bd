//! Wildcards and variables in policies.

use super::context::Context;
use crate::wire::wildcard;
use crate::wire::wildcard::Piece;

/// Returns whether an action matches a pattern, ignoring case.
pub(super) fn matches_action(pattern: &str, action: &str) -> bool {
    let pattern: Vec<Piece> = pattern.to_ascii_lowercase().chars().map(Piece::of).collect();
    wildcard::matches(&pattern, &action.to_ascii_lowercase())
}

/// Returns whether `text` matches `pattern`, in which `*` stands for any characters, `?` for one,
/// and `${aws:PrincipalTag/x}` for a value of the request, which is taken literally. A variable
/// without a value in the request matches nothing.
pub(super) fn matches_with_variables(pattern: &str, text: &str, context: &Context) -> bool {
    pieces(pattern, context).is_some_and(|p| wildcard::matches(&p, text))
}

/// Returns the text of a pattern with its variables replaced and its wildcards taken literally, or
/// `None` if the request has no value for one of the variables.
pub(super) fn resolved(pattern: &str, context: &Context) -> Option<String> {
    let pieces = pieces(pattern, context)?;
    Some(
        pieces
            .into_iter()
            .map(|p| match p {
                Piece::Run => '*',
                Piece::One => '?',
                Piece::Char(c) => c,
            })
            .collect(),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

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
