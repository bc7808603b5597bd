//! The position at which a page of a listing begins.

use std::fmt;

use ebs_csi_proto::{Condition, Failure};

/// EC2's own token, and how many entries of its page were already returned: EC2 returns no page of
/// fewer than five entries, but a caller may ask for fewer. The token holds all state, so that any
/// replica can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageToken {
    pub(super) skip: usize,
    pub(super) page: Option<String>,
}

const SKIP: &str = "skip:";

impl PageToken {
    /// Parses a starting token; an empty token is the beginning.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let page = |text: &str| Some(text.to_owned()).filter(|page| !page.is_empty());
        let Some(rest) = text.strip_prefix(SKIP) else {
            return Ok(Self { skip: 0, page: page(text) });
        };
        rest.split_once(':')
            .and_then(|(skip, token)| {
                Some(Self {
                    skip: skip.parse().ok().filter(|skip| *skip <= 1000)?,
                    page: page(token),
                })
            })
            .ok_or_else(|| bad_token(text, "it is not one that this driver gives"))
    }
}

/// Returns the failure of a token that cannot be continued.
pub(super) fn bad_token(token: &str, why: &str) -> Failure {
    let shown: String = token.chars().take(64).collect();
    Failure::new(
        Condition::BadStartingToken,
        format!(
            "starting_token {shown:?} is not valid (any more): {why}; list again from the beginning, with an empty starting_token"
        ),
    )
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.page.as_deref().unwrap_or_default();
        match self.skip {
            0 => f.write_str(page),
            skip => write!(f, "{SKIP}{skip}:{page}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_skip_token_fails_other_token_passes_through() {
        let token = PageToken::parse("AbC+/=").unwrap();
        assert_eq!((token.skip, token.page.as_deref()), (0, Some("AbC+/=")));
        for bad_token in ["skip:", "skip:x:AbC", "skip:-1:AbC", "skip:99999:AbC"] {
            let failure = PageToken::parse(bad_token).unwrap_err();
            assert_eq!(failure.condition(), Condition::BadStartingToken);
        }
    }

    proptest! {
        #[test]
        fn page_token_round_trips(skip in 0usize..1000, page in proptest::option::of("[A-Za-z0-9+/=:]{1,40}")) {
            let token = PageToken { skip, page };
            prop_assume!(!token.page.as_deref().is_some_and(|page| page.starts_with(SKIP)));
            prop_assert_eq!(PageToken::parse(&token.to_string()), Ok(token));
        }
    }
}
