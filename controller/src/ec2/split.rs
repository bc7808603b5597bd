//! Asking by id where EC2 fails the whole call for one unknown id: the bad ones are named or found by halving, the rest is asked again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;

use super::code::Ec2ErrorKind;
use super::error::Ec2Error;
use super::seen::Seen;

/// Asks for all keys and answers for each.
///
/// A key is absent when a call for it alone, or a message that names it, says "not found", or when an answer that was asked for it lacks it.
pub(super) async fn by_id<K, V, F>(
    keys: &[K],
    not_found: Ec2ErrorKind,
    ask: impl Fn(Vec<K>) -> F,
) -> BTreeMap<K, Seen<V>>
where
    K: Ord + Clone + Display,
    V: Clone,
    F: Future<Output = Result<Vec<(K, V)>, Ec2Error>>,
{
    let mut answers = BTreeMap::new();
    let mut batches = vec![keys.to_vec()];
    while let Some(batch) = batches.pop().filter(|batch| !batch.is_empty()) {
        match ask(batch.clone()).await {
            Ok(found) => {
                answers.extend(batch.into_iter().map(|key| (key, Seen::Absent)));
                answers.extend(
                    found
                        .into_iter()
                        .map(|(key, value)| (key, Seen::Present(value))),
                );
            }
            Err(error) if error.kind == not_found || error.kind == Ec2ErrorKind::MalformedId => {
                let (named, rest): (Vec<K>, Vec<K>) = batch
                    .into_iter()
                    .partition(|key| names(&error.message, &key.to_string()));
                if named.is_empty() {
                    if let [only] = rest.as_slice() {
                        answers.insert(only.clone(), Seen::Absent);
                    } else {
                        let (left, right) = rest.split_at(rest.len() / 2);
                        batches.extend([right.to_vec(), left.to_vec()]);
                    }
                } else {
                    answers.extend(named.into_iter().map(|key| (key, Seen::Absent)));
                    if !rest.is_empty() {
                        batches.push(rest);
                    }
                }
            }
            Err(error) => {
                // What fails one call fails the next: the rest is not asked.
                for key in batch.into_iter().chain(batches.drain(..).flatten()) {
                    answers.insert(key, Seen::Unknown(error.clone()));
                }
            }
        }
    }
    answers
}

/// Whether the message holds the id as a whole word: one id may begin another (`vol-1a2b3c4d`).
fn names(message: &str, id: &str) -> bool {
    message.match_indices(id).any(|(start, _)| {
        message[start + id.len()..]
            .chars()
            .next()
            .is_none_or(|next| !next.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::action::Action;
    use super::super::error::Sent;
    use super::*;

    fn failure(kind: Ec2ErrorKind, message: String) -> Ec2Error {
        Ec2Error {
            kind,
            action: Action::DescribeVolumeStatus,
            code: None,
            message,
            request_id: None,
            sent: Sent::Answered,
        }
    }

    async fn run(bad: &[u32], total: u32, naming: bool) -> (BTreeMap<u32, Seen<u32>>, usize) {
        let calls = Cell::new(0);
        let keys: Vec<u32> = (1000..1000 + total).collect();
        let answers = by_id(&keys, Ec2ErrorKind::VolumeNotFound, |batch| {
            calls.set(calls.get() + 1);
            let first_bad = batch.iter().find(|key| bad.contains(key)).copied();
            async move {
                match first_bad {
                    Some(key) if naming => Err(failure(
                        Ec2ErrorKind::VolumeNotFound,
                        format!("The volume '{key}' does not exist."),
                    )),
                    Some(_) => Err(failure(Ec2ErrorKind::VolumeNotFound, "No.".to_owned())),
                    None => Ok(batch.into_iter().map(|key| (key, key)).collect()),
                }
            }
        })
        .await;
        (answers, calls.get())
    }

    #[tokio::test]
    async fn bad_ids_are_absent_and_the_others_are_answered() {
        for naming in [true, false] {
            let bad = [1003, 1007, 1063];
            let (answers, calls) = run(&bad, 64, naming).await;
            assert_eq!(answers.len(), 64);
            for (key, seen) in answers {
                assert_eq!(matches!(seen, Seen::Absent), bad.contains(&key), "{key}");
                assert_eq!(seen.present().is_some(), !bad.contains(&key));
            }
            assert!(calls <= 40, "{calls}");
        }
    }

    #[tokio::test]
    async fn another_failure_makes_all_unknown() {
        let keys = [1, 2, 3];
        let answers: BTreeMap<i32, Seen<()>> =
            by_id(&keys, Ec2ErrorKind::VolumeNotFound, |_| async {
                Err(failure(Ec2ErrorKind::ServerError, String::new()))
            })
            .await;
        assert!(
            answers.len() == 3
                && answers
                    .values()
                    .all(|seen| matches!(seen, Seen::Unknown(_)))
        );
    }

    #[test]
    fn an_id_is_not_found_within_a_longer_one() {
        assert!(names(
            "The volumes 'vol-1a2b3c4d, vol-2' do not exist.",
            "vol-1a2b3c4d"
        ));
        assert!(!names(
            "The volume 'vol-1a2b3c4d5e6f70819' does not exist.",
            "vol-1a2b3c4d"
        ));
    }
}
