//! The callers that wait for one poller: lookers want one answer, watchers want each. Decides what
//! the next call asks for, and when a call is worth it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::MOST_VALUES;
use super::newest_answer::NewestAnswer;
use crate::ec2::model::look_result::LookResult;
use crate::ec2::pacing::duration_estimate::DurationEstimate;

/// How many watchers are evaluated as a sample of all: more would change the time of the next call
/// by less than a poller's precision.
const ENOUGH: usize = 16;
/// After how long a watcher whose answer is on its way is asked for again; longer where answers
/// take long ([`Waiting::overlap`]).
const OVERLAP: Duration = Duration::from_millis(250);
/// The longest time that counts for one answer: an answer that took longer shows how long EC2 was
/// away.
const LONGEST: Duration = Duration::from_secs(1);
/// The longest time by which a poll is put off.
const LATEST: Duration = Duration::from_secs(3);
/// The resolution of a timer.
const EXACT: Duration = Duration::from_millis(1);

/// A caller that wants each answer until its watch ends.
pub(super) struct Watcher<K, V> {
    pub(super) key: K,
    pub(super) usual: Arc<DurationEstimate>,
    /// How long the caller had waited when the watch began.
    pub(super) waited: Duration,
    pub(super) began: Instant,
    /// When the latest call that asks for this watcher began; at first, when the watch began.
    pub(super) asked: Instant,
    /// The number of that call, until the call has been answered.
    pub(super) on_its_way: Option<u64>,
    pub(super) news: Arc<NewestAnswer<V>>,
}

impl<K, V> Watcher<K, V> {
    /// Returns whether a call that begins at `at` asks for this watcher.
    fn rides(&self, at: Instant, overlap: Duration) -> bool {
        self.on_its_way.is_none() || at >= self.asked + overlap
    }

    fn lateness(&self, at: Instant, overlap: Duration) -> f64 {
        if !self.rides(at, overlap) {
            return 0.0;
        }
        self.usual.lateness(
            self.waited,
            self.asked.duration_since(self.began),
            at.saturating_duration_since(self.began),
        )
    }
}

/// A caller that wants one answer.
pub(super) struct Looker<V> {
    pub(super) since: Instant,
    /// No call is made for this looker before this time.
    needed: Instant,
    pub(super) answer: oneshot::Sender<LookResult<V>>,
}

/// The callers that a call is for.
pub(super) struct Recipients<V> {
    pub(super) lookers: Vec<Looker<V>>,
    pub(super) watchers: Vec<Arc<NewestAnswer<V>>>,
}

impl<V> Default for Recipients<V> {
    fn default() -> Self {
        Self { lookers: Vec::new(), watchers: Vec::new() }
    }
}

/// All callers that wait.
pub(super) struct Waiting<K, V> {
    lookers: BTreeMap<K, Vec<Looker<V>>>,
    watchers: BTreeMap<u64, Watcher<K, V>>,
    watches: u64,
    /// How long answers took lately.
    takes: Duration,
}

impl<K, V> Default for Waiting<K, V> {
    fn default() -> Self {
        Self {
            lookers: BTreeMap::new(),
            watchers: BTreeMap::new(),
            watches: 0,
            takes: Duration::ZERO,
        }
    }
}

impl<K: Ord + Clone, V> Waiting<K, V> {
    /// Queues a looker that asks at `since`. A call that starts afterwards answers it; at `needed`
    /// a call is made for it, if there was none.
    pub(super) fn look(
        &mut self,
        key: K,
        since: Instant,
        needed: Instant,
    ) -> oneshot::Receiver<LookResult<V>> {
        let (answer, answered) = oneshot::channel();
        let looker = Looker { since, needed, answer };
        self.lookers.entry(key).or_default().push(looker);
        answered
    }

    /// Adds a watcher. Returns the number by which the watch ends.
    pub(super) fn watch(&mut self, watcher: Watcher<K, V>) -> u64 {
        self.watches += 1;
        self.watchers.insert(self.watches, watcher);
        self.watches
    }

    pub(super) fn end(&mut self, watch: u64) {
        self.watchers.remove(&watch);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lookers.is_empty() && self.watchers.is_empty()
    }

    /// Removes the lookers that have gone. Returns whether any are left.
    pub(super) fn has_lookers(&mut self) -> bool {
        self.needed().is_some()
    }

    /// Removes lookers as [`Waiting::has_lookers`] does. Returns when a call must be made for the
    /// first of those left.
    pub(super) fn needed(&mut self) -> Option<Instant> {
        let mut first: Option<Instant> = None;
        self.lookers.retain(|_, lookers| {
            lookers.retain(|looker| !looker.answer.is_closed());
            let needed = lookers.iter().map(|looker| looker.needed).min();
            first = first.into_iter().chain(needed).min();
            !lookers.is_empty()
        });
        first
    }

    /// Returns when a call must begin whose answer is needed at `needed`.
    pub(super) fn to_be_sent(&self, needed: Instant) -> Instant {
        needed.checked_sub(self.takes * 2).unwrap_or(needed)
    }

    /// Returns when a call is worth it for the watchers: when their summed lateness reaches
    /// `worth`, the lateness in seconds that makes a call worthwhile at that time.
    pub(super) fn worth_it(&self, now: Instant, worth: impl Fn(Instant) -> f64) -> Instant {
        let each = self.watchers.len().div_ceil(ENOUGH).max(1);
        let some: Vec<_> = self.watchers.values().step_by(each).collect();
        let times = self.watchers.len() as f64 / some.len().max(1) as f64;
        let overlap = self.overlap();
        let is_worth_it = |at: Instant| {
            let late = some.iter().map(|watcher| watcher.lateness(at, overlap));
            late.sum::<f64>() * times >= worth(at)
        };
        if is_worth_it(now) {
            return now;
        }
        // The step is doubled first: the more callers wait, the sooner a call is worth it, and the
        // sooner the search finds that time.
        let (mut early, mut after) = (now, EXACT);
        let mut late = loop {
            let at = now + after;
            if after >= LATEST || is_worth_it(at) {
                break at.min(now + LATEST);
            }
            early = at;
            after *= 2;
        };
        while late.duration_since(early) > EXACT {
            let middle = early + late.duration_since(early) / 2;
            match is_worth_it(middle) {
                true => late = middle,
                false => early = middle,
            }
        }
        late
    }

    /// Returns how long answers took lately.
    pub(super) fn takes(&self) -> Duration {
        self.takes
    }

    /// Returns after how long a watcher is asked for again while its answer is on its way. A slow
    /// answer should not make the watcher see a change late. But each repetition asks EC2 for more,
    /// and where many callers wait, answers are slow because there is much to read: asking more
    /// often would make them slower.
    fn overlap(&self) -> Duration {
        let many = (self.watchers.len() as f64 / 100.0).min(1.5);
        self.takes.mul_f64(0.5 + many).max(OVERLAP)
    }

    /// Notes that a call was answered or failed after `took`.
    pub(super) fn landed(&mut self, call: u64, took: Duration) {
        // An average over about the last ten answers.
        self.takes = self.takes.mul_f64(0.9) + took.min(LONGEST).mul_f64(0.1);
        for watcher in self.watchers.values_mut() {
            watcher.on_its_way.take_if(|asked| *asked == call);
        }
    }

    /// Takes the callers that a call starting now is for: up to [`MOST_VALUES`] keys, those that
    /// have waited longest for a call.
    pub(super) fn take(&mut self, call: u64, now: Instant) -> BTreeMap<K, Recipients<V>> {
        let overlap = self.overlap();
        let keys = self.next_keys(now);
        let is_next = |key: &K| keys.as_ref().is_none_or(|keys| keys.contains(key));
        let mut batch: BTreeMap<K, Recipients<V>> = BTreeMap::new();
        for (key, lookers) in self.lookers.extract_if(.., |key, _| is_next(key)) {
            batch.entry(key).or_default().lookers = lookers;
        }
        for watcher in self.watchers.values_mut() {
            if watcher.rides(now, overlap) && is_next(&watcher.key) {
                watcher.asked = now;
                watcher.on_its_way = Some(call);
                let recipients = batch.entry(watcher.key.clone()).or_default();
                recipients.watchers.push(Arc::clone(&watcher.news));
            }
        }
        batch
    }

    /// Returns the keys of the next call; `None` when one call takes all keys.
    fn next_keys(&self, now: Instant) -> Option<BTreeSet<K>> {
        let mut since: BTreeMap<&K, Instant> = BTreeMap::new();
        for (key, lookers) in &self.lookers {
            since.extend(
                lookers.iter().map(|looker| (key, looker.since)).min_by_key(|(_, since)| *since),
            );
        }
        let overlap = self.overlap();
        let riders = self.watchers.values();
        for watcher in riders.filter(|watcher| watcher.rides(now, overlap)) {
            let first = since.entry(&watcher.key).or_insert(watcher.asked);
            *first = watcher.asked.min(*first);
        }
        if since.len() <= MOST_VALUES {
            return None;
        }
        let mut order: Vec<(Instant, &K)> =
            since.into_iter().map(|(key, since)| (since, key)).collect();
        order.select_nth_unstable(MOST_VALUES - 1);
        Some(order[..MOST_VALUES].iter().map(|(_, key)| (*key).clone()).collect())
    }
}
