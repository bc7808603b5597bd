//! Paging: `MaxResults` and tokens that belong to one action and expire.

use super::{ApiError, ApiResult, Params, refuse_combination, refuse_value};
use crate::time::Millis;

#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// The maximum number of rows to consider; `None`: all.
    pub max: Option<usize>,
    /// The key after which the page begins.
    pub after: Option<String>,
}

/// How long a token is valid, in milliseconds.
const TOKEN_LIFE_MS: u64 = 3_600_000;

impl Page {
    /// Parses `MaxResults` and `NextToken`.
    pub(crate) fn parse(
        params: &Params,
        action: &str,
        ids: (&str, bool),
        range: (i64, i64),
        now: Millis,
    ) -> ApiResult<Self> {
        let max = params.number("MaxResults")?;
        let token = params.text("NextToken");
        if ids.1 {
            let with = match (max, token) {
                (Some(_), _) => "maxResults",
                (None, Some(_)) => "nextToken",
                (None, None) => return Ok(Self::default()),
            };
            refuse_combination!("The parameter {} cannot be used with the parameter {with}", ids.0);
        }
        if let Some(n) = max {
            let (low, _) = range;
            if n < low {
                refuse_value!(
                    "Value ( {n} ) for parameter maxResults is invalid. Expecting a value greater than {low}."
                );
            }
        }
        let after = match token {
            None => None,
            Some(t) => Some(
                parse_token(t, action, now)
                    .ok_or_else(|| ApiError::value("Unable to parse pagination token"))?,
            ),
        };
        Ok(Self {
            // Recorded: EC2 accepts more than the maximum and returns the maximum.
            max: max.and_then(|n| usize::try_from(n.min(range.1)).ok()),
            after,
        })
    }
}

/// Creates a token that continues after `key`.
pub(crate) fn issue_token(key: &str, action: &str, now: Millis) -> String {
    format!("{action}|{}|{key}", now.plus(TOKEN_LIFE_MS).0)
}

fn parse_token(token: &str, action: &str, now: Millis) -> Option<String> {
    let (until, key) = token.strip_prefix(action)?.strip_prefix('|')?.split_once('|')?;
    (until.parse::<i64>().ok()? >= now.0).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_token_is_bound_to_action_and_expires() {
        let t = issue_token("vol-1", "DescribeVolumes", Millis(0));
        assert_eq!(parse_token(&t, "DescribeVolumes", Millis(5)), Some("vol-1".to_owned()));
        assert_eq!(parse_token(&t, "DescribeSnapshots", Millis(5)), None);
        assert_eq!(parse_token(&t, "DescribeVolumes", Millis(3_600_001)), None);
        assert_eq!(parse_token("nonsense", "DescribeVolumes", Millis(5)), None);
    }
}
