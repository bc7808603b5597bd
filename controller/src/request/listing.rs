//! Listings in pages of any size. Any replica can continue a listing.

use std::fmt;
use std::future::Future;

use ebs_csi_ec2::{Ec2Error, Ec2ErrorKind, Page};
use ebs_csi_proto::{Condition, Failure};

/// The fewest entries that EC2 takes as a page size.
const MIN_PAGE: usize = 5;
/// The most pages that one call reads while they are empty: EC2 filters after it has cut the pages.
const MAX_EMPTY_PAGES: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// The most entries; 0 for as many as EC2 returns at once.
    max_entries: usize,
    starting_token: String,
}

impl PageRequest {
    /// Parses `max_entries` and `starting_token`.
    ///
    /// # Errors
    /// A failure of `max_entries` when it is negative.
    pub(crate) fn parse(max_entries: i32, starting_token: &str) -> Result<Self, Failure> {
        Ok(Self {
            max_entries: usize::try_from(max_entries)
                .map_err(|_| Failure::invalid("max_entries", "is negative; give 0 for no limit"))?,
            starting_token: starting_token.to_owned(),
        })
    }

    /// Reads pages of EC2 until one has entries or the list ends. `fetch` gets the size to ask for
    /// and EC2's token.
    ///
    /// # Errors
    /// [`BadStartingToken`](Condition::BadStartingToken), and the failures of EC2.
    pub(crate) async fn read<T, F>(
        &self,
        mut fetch: impl FnMut(Option<u32>, Option<String>) -> F,
    ) -> Result<(Vec<T>, String), Failure>
    where
        F: Future<Output = Result<Page<T>, Ec2Error>>,
    {
        let PageToken { mut skip, mut page } = PageToken::parse(&self.starting_token)?;
        let size = u32::try_from(self.max_entries.max(MIN_PAGE)).ok();
        for _ in 0..MAX_EMPTY_PAGES {
            let answer = fetch(size.filter(|_| self.max_entries > 0), page.clone())
                .await
                .map_err(|error| self.convert_error(&error))?;
            let total = answer.entries.len();
            let taken = if self.max_entries == 0 { total } else { self.max_entries };
            let entries: Vec<_> = answer.entries.into_iter().skip(skip).take(taken).collect();
            let next = if skip + entries.len() < total {
                Some(PageToken { skip: skip + entries.len(), page: page.clone() })
            } else {
                answer.next.clone().map(|page| PageToken { skip: 0, page: Some(page) })
            };
            match (&next, entries.is_empty()) {
                (Some(_), true) => (skip, page) = (0, answer.next),
                _ => {
                    return Ok((entries, next.map_or(String::new(), |token| token.to_string())));
                }
            }
        }
        Ok((Vec::new(), PageToken { skip, page }.to_string()))
    }

    /// Converts an error of EC2. The token is the only part of a listing's request that the driver
    /// does not choose, so a value that EC2 refuses is the token.
    fn convert_error(&self, error: &Ec2Error) -> Failure {
        let is_about_token =
            matches!(error.kind, Ec2ErrorKind::BadPageToken | Ec2ErrorKind::InvalidParameter);
        match is_about_token && !self.starting_token.is_empty() {
            true => bad_token(&self.starting_token, &error.to_string()),
            false => error.into(),
        }
    }
}

/// EC2's own token, and how many entries of its page were already returned: EC2 returns no page of
/// fewer than five entries, but a caller may ask for fewer. The token holds all state, so that any
/// replica can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageToken {
    skip: usize,
    page: Option<String>,
}

const SKIP: &str = "skip:";

impl PageToken {
    /// Parses a starting token; an empty token is the beginning.
    fn parse(text: &str) -> Result<Self, Failure> {
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
fn bad_token(token: &str, why: &str) -> Failure {
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
    use ebs_csi_ec2::{Action, Sent};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    async fn read(
        max_entries: i32,
        starting_token: &str,
        pages: Vec<Result<Page<u32>, Ec2Error>>,
    ) -> Result<(Vec<u32>, String), Failure> {
        let mut pages = VecDeque::from(pages);
        PageRequest::parse(max_entries, starting_token)?
            .read(|_, _| {
                let page = pages.pop_front().expect("no further call");
                async move { page }
            })
            .await
    }

    fn page(entries: &[u32], next: Option<&str>) -> Result<Page<u32>, Ec2Error> {
        Ok(Page { entries: entries.to_vec(), next: next.map(str::to_owned) })
    }

    #[tokio::test]
    async fn pages_are_cut_and_empty_pages_skipped() {
        let five = || vec![page(&[1, 2, 3, 4, 5], Some("n"))];
        assert_eq!(read(0, "", five()).await, Ok((vec![1, 2, 3, 4, 5], "n".to_owned())));
        assert_eq!(read(2, "", five()).await, Ok((vec![1, 2], "skip:2:".to_owned())));
        assert_eq!(read(2, "skip:4:t", five()).await, Ok((vec![5], "n".to_owned())));
        let passed = vec![page(&[], Some("a")), page(&[], Some("b")), page(&[7], None)];
        assert_eq!(read(3, "", passed).await, Ok((vec![7], String::new())));
        // The entries to skip no longer exist; the next page follows.
        let shorter = vec![page(&[1], Some("a")), page(&[2], None)];
        assert_eq!(read(2, "skip:3:t", shorter).await, Ok((vec![2], String::new())));
        // An answer in time matters more than the end of many empty pages; the caller continues.
        let long = (0..MAX_EMPTY_PAGES).map(|_| page(&[], Some("z"))).collect();
        assert_eq!(read(0, "", long).await, Ok((Vec::new(), "z".to_owned())));
        let negative = read(-1, "", Vec::new()).await.unwrap_err();
        assert_eq!(negative.condition(), Condition::InvalidField);
    }

    #[tokio::test]
    async fn refused_starting_token_is_named_with_next_step() {
        let refusal = |kind| {
            let text = "Unable to parse pagination token";
            let error = Ec2Error::new(kind, Action::DescribeSnapshots, Sent::Answered, text);
            vec![Err(Ec2Error { request_id: Some("r-1".to_owned()), ..error })]
        };
        for kind in [Ec2ErrorKind::BadPageToken, Ec2ErrorKind::InvalidParameter] {
            let bad_token = read(3, "AbC", refusal(kind)).await.unwrap_err();
            assert_eq!(bad_token.condition(), Condition::BadStartingToken);
            for word in ["starting_token", "\"AbC\"", "empty starting_token", "r-1"] {
                assert!(bad_token.text().contains(word), "{bad_token}");
            }
        }
        let other = read(3, "", refusal(Ec2ErrorKind::InvalidParameter)).await;
        assert_eq!(other.unwrap_err().condition(), Condition::InvalidField);
    }

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
