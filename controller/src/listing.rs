//! Listings in pages of any size, which any replica can go on with.

mod token;

use std::future::Future;

use ebs_csi_proto::Failure;

use crate::ec2::{Ec2Error, Ec2ErrorKind, Page};
use crate::ec2_failure::failure;

use token::PageToken;

/// EC2 gives no page of fewer entries.
const LEAST_PAGE: usize = 5;
/// Pages that one listing reads while they are empty: EC2 filters after it has cut the pages.
const EMPTY_PAGES: usize = 20;

/// What a caller asks a listing for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// At most so many entries; 0: as many as EC2 gives at once.
    most: usize,
    start: String,
}

impl Wanted {
    /// From `max_entries` and `starting_token`.
    ///
    /// # Errors
    /// For a negative number.
    pub fn parse(max_entries: i32, starting_token: &str) -> Result<Self, Failure> {
        Ok(Self {
            most: usize::try_from(max_entries)
                .map_err(|_| Failure::invalid("max_entries", "is negative; give 0 for no limit"))?,
            start: starting_token.to_owned(),
        })
    }

    /// Reads pages of EC2 until there is something to answer, or nothing more. `fetch` gets the size to ask for and EC2's token.
    ///
    /// # Errors
    /// [`BadStartingToken`](ebs_csi_proto::Condition::BadStartingToken); and what EC2 says.
    pub async fn read<T, F>(
        &self,
        mut fetch: impl FnMut(Option<u32>, Option<String>) -> F,
    ) -> Result<(Vec<T>, String), Failure>
    where
        F: Future<Output = Result<Page<T>, Ec2Error>>,
    {
        let PageToken { mut skip, mut page } = PageToken::parse(&self.start)?;
        let size = u32::try_from(self.most.max(LEAST_PAGE)).ok();
        for _ in 0..EMPTY_PAGES {
            let answer = fetch(size.filter(|_| self.most > 0), page.clone())
                .await
                .map_err(|error| self.refused(&error))?;
            let whole = answer.entries.len();
            let taken = if self.most == 0 { whole } else { self.most };
            let entries: Vec<_> = answer.entries.into_iter().skip(skip).take(taken).collect();
            let next = if skip + entries.len() < whole {
                Some(PageToken {
                    skip: skip + entries.len(),
                    page: page.clone(),
                })
            } else {
                answer.next.clone().map(|page| PageToken {
                    skip: 0,
                    page: Some(page),
                })
            };
            match (&next, entries.is_empty()) {
                (Some(_), true) => (skip, page) = (0, answer.next),
                _ => {
                    return Ok((
                        entries,
                        next.map_or(String::new(), |token| token.to_string()),
                    ));
                }
            }
        }
        Ok((Vec::new(), PageToken { skip, page }.to_string()))
    }

    /// All that a listing sends but the token is the driver's own: a value that EC2 refuses is the token.
    fn refused(&self, error: &Ec2Error) -> Failure {
        let of_the_token = matches!(
            error.kind,
            Ec2ErrorKind::BadPageToken | Ec2ErrorKind::InvalidParameter
        );
        match of_the_token && !self.start.is_empty() {
            true => token::bad(&self.start, &error.to_string()),
            false => failure(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::{Action, Sent};
    use ebs_csi_proto::Condition;
    use std::collections::VecDeque;

    async fn read(
        most: i32,
        start: &str,
        pages: Vec<Result<Page<u32>, Ec2Error>>,
    ) -> Result<(Vec<u32>, String), Failure> {
        let mut pages = VecDeque::from(pages);
        Wanted::parse(most, start)?
            .read(|_, _| {
                let page = pages.pop_front().expect("not asked for more");
                async move { page }
            })
            .await
    }

    fn page(entries: &[u32], next: Option<&str>) -> Result<Page<u32>, Ec2Error> {
        Ok(Page {
            entries: entries.to_vec(),
            next: next.map(str::to_owned),
        })
    }

    #[tokio::test]
    async fn pages_are_cut_and_empty_ones_are_passed_over() {
        let five = || vec![page(&[1, 2, 3, 4, 5], Some("n"))];
        assert_eq!(
            read(0, "", five()).await,
            Ok((vec![1, 2, 3, 4, 5], "n".to_owned()))
        );
        assert_eq!(
            read(2, "", five()).await,
            Ok((vec![1, 2], "skip:2:".to_owned()))
        );
        assert_eq!(
            read(2, "skip:4:t", five()).await,
            Ok((vec![5], "n".to_owned()))
        );
        let passed = vec![page(&[], Some("a")), page(&[], Some("b")), page(&[7], None)];
        assert_eq!(read(3, "", passed).await, Ok((vec![7], String::new())));
        // What was skipped to is gone by now: the next page follows.
        let shorter = vec![page(&[1], Some("a")), page(&[2], None)];
        assert_eq!(
            read(2, "skip:3:t", shorter).await,
            Ok((vec![2], String::new()))
        );
        // An answer in time rather than the end of a long way: the caller goes on.
        let long = (0..EMPTY_PAGES).map(|_| page(&[], Some("z"))).collect();
        assert_eq!(read(0, "", long).await, Ok((Vec::new(), "z".to_owned())));
        assert_eq!(
            read(-1, "", Vec::new()).await.unwrap_err().condition(),
            Condition::InvalidField
        );
    }

    #[tokio::test]
    async fn a_token_that_ec2_refuses_is_named_with_the_way_on() {
        let refusal = |kind| {
            vec![Err(Ec2Error {
                kind,
                action: Action::DescribeSnapshots,
                code: Some("InvalidParameterValue".to_owned()),
                message: "Unable to parse pagination token".to_owned(),
                request_id: Some("r-1".to_owned()),
                sent: Sent::Answered,
            })]
        };
        for kind in [Ec2ErrorKind::BadPageToken, Ec2ErrorKind::InvalidParameter] {
            let bad = read(3, "AbC", refusal(kind)).await.unwrap_err();
            assert_eq!(bad.condition(), Condition::BadStartingToken);
            for word in ["starting_token", "\"AbC\"", "empty starting_token", "r-1"] {
                assert!(bad.text().contains(word), "{bad}");
            }
        }
        let other = read(3, "", refusal(Ec2ErrorKind::InvalidParameter)).await;
        assert_eq!(other.unwrap_err().condition(), Condition::InvalidField);
    }
}
