//! Reads by id where EC2 fails the whole call for one bad id. Bad ids are found in the error
//! message or by halving; the rest is asked for again.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind;
use crate::expiring_cache::ExpiringCache;
use crate::model::LookResult;

/// How long an id that EC2 did not know is described in a separate call. Within that time the
/// resource appears, or callers stop asking for the id.
const SEPARATE_FOR: Duration = Duration::from_secs(60);
/// The most calls that one look makes, beside its first, to find the ids whose zone fails.
const MAX_HALVING_CALLS: usize = 8;

/// How long a zone is remembered. Neither a volume nor an instance changes its zone; the time limit
/// drops resources that nobody asks for.
const ZONE_TTL: Duration = Duration::from_secs(3600);

/// The zone of each resource, by id, as EC2 showed it. Resources of different zones are read apart,
/// so that one zone's failure does not fail reads of another. Forgetting a zone costs a call that
/// is shared with other zones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones(ExpiringCache<Arc<str>>);

impl Zones {
    pub(crate) fn zone_of(&self, id: &impl Display) -> Option<Arc<str>> {
        self.0.get(&id.to_string())
    }

    /// Notes the zone in which EC2 showed the resource; ignores an empty name.
    pub(crate) fn learn(&self, id: &impl Display, zone: &str) {
        if !zone.is_empty() {
            self.0.put(&id.to_string(), zone.into(), ZONE_TTL);
        }
    }
}

/// What is known about the ids of one kind of resource: the zone of each, and which ids EC2
/// recently did not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct ById {
    pub(crate) zones: Zones,
    not_found: ExpiringCache<()>,
}

impl ById {
    /// Creates an empty table that shares `zones`, which is also filled elsewhere.
    pub(crate) fn new(zones: Zones) -> Self {
        Self { zones, not_found: ExpiringCache::default() }
    }

    /// Describes all keys. Returns a result for each.
    ///
    /// A key is absent when a call for it alone, or an error message that names it, reports "not
    /// found", or when the answer of a call that asked for it lacks it. Recently absent keys share
    /// a separate call, so that they do not fail the call of the others again.
    pub(crate) async fn describe<K, V, F>(
        &self,
        keys: &[K],
        send: impl Fn(Vec<K>) -> F,
    ) -> BTreeMap<K, LookResult<V>>
    where
        K: Ord + Clone + Display,
        V: Clone,
        F: Future<Output = Result<Vec<(K, V)>, Ec2Error>>,
    {
        let (separate, together): (Vec<K>, Vec<K>) =
            keys.iter().cloned().partition(|key| self.not_found.get(&key.to_string()).is_some());
        // Where zones are not known, ids of a failing zone may fail the call for all ids.
        let halving_calls = match together.iter().all(|key| self.zones.zone_of(key).is_some()) {
            true => 0,
            false => MAX_HALVING_CALLS,
        };
        let (mut answers, others) = tokio::join!(
            describe_batch(together, halving_calls, &send),
            describe_batch(separate, 0, &send),
        );
        answers.extend(others);
        for (key, result) in &answers {
            if matches!(result, LookResult::Absent) {
                self.not_found.put(&key.to_string(), (), SEPARATE_FOR);
            }
        }
        answers
    }
}

async fn describe_batch<K, V, F>(
    keys: Vec<K>,
    mut halving_calls: usize,
    send: &impl Fn(Vec<K>) -> F,
) -> BTreeMap<K, LookResult<V>>
where
    K: Ord + Clone + Display,
    V: Clone,
    F: Future<Output = Result<Vec<(K, V)>, Ec2Error>>,
{
    let mut answers = BTreeMap::new();
    let mut batches = vec![keys];
    while let Some(batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        match send(batch.clone()).await {
            Ok(found) => {
                answers.extend(batch.into_iter().map(|key| (key, LookResult::Absent)));
                answers.extend(
                    found.into_iter().map(|(key, value)| (key, LookResult::Present(value))),
                );
            }
            Err(error) if is_not_found(error.kind) => {
                let (named, rest): (Vec<K>, Vec<K>) = batch
                    .into_iter()
                    .partition(|key| mentions_id(&error.message, &key.to_string()));
                if named.is_empty() {
                    match rest.as_slice() {
                        [only] => _ = answers.insert(only.clone(), LookResult::Absent),
                        _ => batches.extend(halve(rest)),
                    }
                } else {
                    answers.extend(named.into_iter().map(|key| (key, LookResult::Absent)));
                    batches.push(rest);
                }
            }
            Err(error)
                if error.kind == Ec2ErrorKind::ServerError
                    && halving_calls >= 2
                    && batch.len() > 1 =>
            {
                halving_calls -= 2;
                batches.extend(halve(batch));
            }
            Err(error) => {
                let mut failed = batch;
                if error.kind != Ec2ErrorKind::ServerError {
                    // Such an error fails the next call too, so the rest is not asked for.
                    failed.extend(batches.drain(..).flatten());
                }
                let unknown = |key| (key, LookResult::Unknown(error.clone()));
                answers.extend(failed.into_iter().map(unknown));
            }
        }
    }
    answers
}

fn is_not_found(kind: Ec2ErrorKind) -> bool {
    matches!(
        kind,
        Ec2ErrorKind::VolumeNotFound
            | Ec2ErrorKind::ModificationNotFound
            | Ec2ErrorKind::SnapshotNotFound
            | Ec2ErrorKind::InstanceNotFound
            | Ec2ErrorKind::MalformedId
    )
}

fn halve<K>(mut batch: Vec<K>) -> [Vec<K>; 2] {
    let right = batch.split_off(batch.len() / 2);
    [right, batch]
}

/// Returns whether the message holds the id as a whole word: one id may be the beginning of another
/// (`vol-1a2b3c4d`).
fn mentions_id(message: &str, id: &str) -> bool {
    message.match_indices(id).any(|(start, _)| {
        message[start + id.len()..].chars().next().is_none_or(|next| !next.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::calls::Action;
    use crate::error::Sent;

    fn failure(kind: Ec2ErrorKind, message: &str) -> Ec2Error {
        Ec2Error::new(kind, Action::DescribeVolumeStatus, Sent::Answered, message)
    }

    async fn run(bad: &[u32], total: u32, naming: bool) -> (BTreeMap<u32, LookResult<u32>>, usize) {
        let calls = Cell::new(0);
        let keys: Vec<u32> = (1000..1000 + total).collect();
        let answers = ById::default()
            .describe(&keys, |batch| {
                calls.set(calls.get() + 1);
                let first_bad = batch.iter().find(|key| bad.contains(key)).copied();
                let named = first_bad.filter(|_| naming);
                let text = named.map(|key| format!("The volume '{key}' does not exist."));
                let error = failure(Ec2ErrorKind::VolumeNotFound, &text.unwrap_or_default());
                answer(batch, first_bad.map(|_| error))
            })
            .await;
        (answers, calls.get())
    }

    /// Answers with the error, or with all keys.
    async fn answer(batch: Vec<u32>, error: Option<Ec2Error>) -> Result<Vec<(u32, u32)>, Ec2Error> {
        match error {
            Some(error) => Err(error),
            None => Ok(batch.into_iter().map(|key| (key, key)).collect()),
        }
    }

    /// The bad ids are absent, also when EC2's message names none of them, and 64 ids cost at most
    /// 40 calls.
    #[tokio::test]
    async fn bad_ids_in_batch_leave_other_ids_answered() {
        for naming in [true, false] {
            let bad = [1003, 1007, 1063];
            let (answers, calls) = run(&bad, 64, naming).await;
            assert_eq!(answers.len(), 64);
            for (key, result) in answers {
                assert_eq!(matches!(result, LookResult::Absent), bad.contains(&key), "{key}");
                assert_eq!(result.present().is_some(), !bad.contains(&key));
            }
            assert!(calls <= 40, "{calls}");
        }
    }

    #[tokio::test]
    async fn throttled_call_makes_all_ids_unknown() {
        let keys = [1, 2, 3];
        let answers: BTreeMap<i32, LookResult<()>> = ById::default()
            .describe(&keys, |_| async { Err(failure(Ec2ErrorKind::Throttled, "")) })
            .await;
        assert_eq!(answers.len(), 3);
        assert!(answers.values().all(|result| matches!(result, LookResult::Unknown(_))));
    }

    /// EC2 fails every call that names an id of a failing zone; halving the batch isolates that id.
    #[tokio::test]
    async fn server_error_for_1_id_leaves_others_answered() {
        let keys: Vec<u32> = (0..16).collect();
        let affected = 5;
        let answers = ById::default()
            .describe(&keys, |batch| {
                let fails = batch.contains(&affected);
                answer(batch, fails.then(|| failure(Ec2ErrorKind::ServerError, "")))
            })
            .await;
        for (key, result) in answers {
            assert_eq!(result.present().is_some(), key != affected, "{key}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_id_is_queried_apart_from_known_ids() {
        let (calls, by_id) = (Cell::new(0), ById::default());
        let look = async || {
            let answers = by_id
                .describe(&[1, 2, 3], |batch| {
                    calls.set(calls.get() + 1);
                    let text = "The volume '2' does not exist.";
                    let error = failure(Ec2ErrorKind::VolumeNotFound, text);
                    let is_bad = batch.contains(&2);
                    answer(batch, is_bad.then_some(error))
                })
                .await;
            assert!(matches!(answers[&2], LookResult::Absent));
            assert!(answers[&3].present().is_some());
            calls.take()
        };
        assert_eq!(look().await, 2);
        // One call for the two known ids, one for the unknown id.
        assert_eq!(look().await, 2);
        tokio::time::advance(SEPARATE_FOR).await;
        assert_eq!(look().await, 2);
    }

    #[test]
    fn id_matches_only_whole_word_in_message() {
        assert!(mentions_id("The volumes 'vol-1a2b3c4d, vol-2' do not exist.", "vol-1a2b3c4d"));
        assert!(!mentions_id("The volume 'vol-1a2b3c4d5e6f70819' does not exist.", "vol-1a2b3c4d"));
    }
}
