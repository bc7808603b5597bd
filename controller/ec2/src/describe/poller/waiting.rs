//! The callers that wait for one poller: lookers want one answer, watchers want each. Decides what
//! the next call asks for, and when a call is worthwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::MAX_KEYS_PER_CALL;
use crate::model::DatedLook;
use crate::pacing::duration_estimate::DurationEstimate;

/// How many watchers are evaluated as a sample of all: more would change the time of the next call
/// by less than a poller's precision.
const SAMPLE_SIZE: usize = 16;
/// After how long a watcher whose call is in flight is included in another call; longer where
/// answers take long ([`Waiting::repeat_after`]).
const MIN_REPEAT_AFTER: Duration = Duration::from_millis(250);
/// The longest time that counts for one answer: an answer that took longer shows how long EC2 was
/// unavailable.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(1);
/// The longest time by which a poll is postponed.
const MAX_POSTPONEMENT: Duration = Duration::from_secs(3);
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// A caller that wants each answer until its watch ends.
pub(super) struct Watcher<K, V> {
    pub(super) key: K,
    pub(super) durations: Arc<DurationEstimate>,
    /// How long the caller had waited when the watch began.
    pub(super) waited: Duration,
    pub(super) began: Instant,
    /// When the latest call that asks for this watcher began; at first, when the watch began.
    pub(super) last_asked: Instant,
    /// The number of that call, until the call has been answered.
    pub(super) in_flight: Option<u64>,
    pub(super) newest: Arc<NewestAnswer<V>>,
}

impl<K, V> Watcher<K, V> {
    /// Returns whether a call that begins at `at` asks for this watcher.
    fn is_due(&self, at: Instant, repeat_after: Duration) -> bool {
        self.in_flight.is_none() || at >= self.last_asked + repeat_after
    }

    fn lateness(&self, at: Instant, repeat_after: Duration) -> f64 {
        if !self.is_due(at, repeat_after) {
            return 0.0;
        }
        self.durations.lateness(
            self.waited,
            self.last_asked.duration_since(self.began),
            at.saturating_duration_since(self.began),
        )
    }
}

/// A caller that wants one answer.
pub(super) struct Looker<V> {
    pub(super) queued_at: Instant,
    /// No call is made for this looker before this time.
    needed: Instant,
    pub(super) answer: oneshot::Sender<DatedLook<V>>,
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

pub(super) struct Waiting<K, V> {
    lookers: BTreeMap<K, Vec<Looker<V>>>,
    watchers: BTreeMap<u64, Watcher<K, V>>,
    last_watch: u64,
    /// The moving average of how long answers take.
    answer_time: Duration,
}

impl<K, V> Default for Waiting<K, V> {
    fn default() -> Self {
        Self {
            lookers: BTreeMap::new(),
            watchers: BTreeMap::new(),
            last_watch: 0,
            answer_time: Duration::ZERO,
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
    ) -> oneshot::Receiver<DatedLook<V>> {
        let (answer, answered) = oneshot::channel();
        let looker = Looker { queued_at: since, needed, answer };
        self.lookers.entry(key).or_default().push(looker);
        answered
    }

    /// Adds a watcher. Returns the number by which the watch ends.
    pub(super) fn watch(&mut self, watcher: Watcher<K, V>) -> u64 {
        self.last_watch += 1;
        self.watchers.insert(self.last_watch, watcher);
        self.last_watch
    }

    pub(super) fn end_watch(&mut self, watch: u64) {
        self.watchers.remove(&watch);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lookers.is_empty() && self.watchers.is_empty()
    }

    /// Removes the lookers that no longer wait. Returns whether any are left.
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
    pub(super) fn send_by(&self, needed: Instant) -> Instant {
        needed.checked_sub(self.answer_time * 2).unwrap_or(needed)
    }

    /// Returns when a call is worthwhile for the watchers: when their summed lateness reaches
    /// `worth`, the lateness in seconds that makes a call worthwhile at that time.
    pub(super) fn next_worthwhile_call(
        &self,
        now: Instant,
        worth: impl Fn(Instant) -> f64,
    ) -> Instant {
        let step = self.watchers.len().div_ceil(SAMPLE_SIZE).max(1);
        let sample: Vec<_> = self.watchers.values().step_by(step).collect();
        let scale = self.watchers.len() as f64 / sample.len().max(1) as f64;
        let repeat_after = self.repeat_after();
        let is_worthwhile = |at: Instant| {
            let late = sample.iter().map(|watcher| watcher.lateness(at, repeat_after));
            late.sum::<f64>() * scale >= worth(at)
        };
        if is_worthwhile(now) {
            return now;
        }
        // The step is doubled first: the more callers wait, the sooner a call is worthwhile, and
        // the sooner the search finds that time.
        let (mut early, mut after) = (now, TIMER_RESOLUTION);
        let mut late = loop {
            let at = now + after;
            if after >= MAX_POSTPONEMENT || is_worthwhile(at) {
                break at.min(now + MAX_POSTPONEMENT);
            }
            early = at;
            after *= 2;
        };
        while late.duration_since(early) > TIMER_RESOLUTION {
            let middle = early + late.duration_since(early) / 2;
            match is_worthwhile(middle) {
                true => late = middle,
                false => early = middle,
            }
        }
        late
    }

    pub(super) fn answer_time(&self) -> Duration {
        self.answer_time
    }

    /// Returns after how long a watcher is included in another call while its call is in flight. A
    /// slow answer should not make the watcher see a change late. But each repetition asks EC2 for
    /// more, and where many callers wait, answers are slow because there is much to read: more
    /// calls would make the answers slower.
    fn repeat_after(&self) -> Duration {
        let load = (self.watchers.len() as f64 / 100.0).min(1.5);
        self.answer_time.mul_f64(0.5 + load).max(MIN_REPEAT_AFTER)
    }

    pub(super) fn call_ended(&mut self, call: u64, took: Duration) {
        // An average over about the last ten answers.
        self.answer_time = self.answer_time.mul_f64(0.9) + took.min(MAX_ANSWER_TIME).mul_f64(0.1);
        for watcher in self.watchers.values_mut() {
            watcher.in_flight.take_if(|in_flight| *in_flight == call);
        }
    }

    /// Takes the callers that a call starting now is for: up to [`MAX_KEYS_PER_CALL`] keys, those
    /// that have waited longest for a call.
    pub(super) fn take_batch(&mut self, call: u64, now: Instant) -> BTreeMap<K, Recipients<V>> {
        let repeat_after = self.repeat_after();
        let keys = self.keys_of_next_call(now);
        let is_next = |key: &K| keys.as_ref().is_none_or(|keys| keys.contains(key));
        let mut batch: BTreeMap<K, Recipients<V>> = BTreeMap::new();
        for (key, lookers) in self.lookers.extract_if(.., |key, _| is_next(key)) {
            batch.entry(key).or_default().lookers = lookers;
        }
        for watcher in self.watchers.values_mut() {
            if watcher.is_due(now, repeat_after) && is_next(&watcher.key) {
                watcher.last_asked = now;
                watcher.in_flight = Some(call);
                let recipients = batch.entry(watcher.key.clone()).or_default();
                recipients.watchers.push(Arc::clone(&watcher.newest));
            }
        }
        batch
    }

    /// Returns the keys of the next call; `None` when one call takes all keys.
    fn keys_of_next_call(&self, now: Instant) -> Option<BTreeSet<K>> {
        let mut since: BTreeMap<&K, Instant> = BTreeMap::new();
        for (key, lookers) in &self.lookers {
            since.extend(
                lookers
                    .iter()
                    .map(|looker| (key, looker.queued_at))
                    .min_by_key(|(_, since)| *since),
            );
        }
        let repeat_after = self.repeat_after();
        for watcher in self.watchers.values().filter(|watcher| watcher.is_due(now, repeat_after)) {
            let first = since.entry(&watcher.key).or_insert(watcher.last_asked);
            *first = watcher.last_asked.min(*first);
        }
        if since.len() <= MAX_KEYS_PER_CALL {
            return None;
        }
        let mut order: Vec<(Instant, &K)> =
            since.into_iter().map(|(key, since)| (since, key)).collect();
        order.select_nth_unstable(MAX_KEYS_PER_CALL - 1);
        Some(order[..MAX_KEYS_PER_CALL].iter().map(|(_, key)| (*key).clone()).collect())
    }
}

/// The slot from which a watch takes its newest answer. An older answer that it replaces is out of
/// date.
pub(super) struct NewestAnswer<V> {
    newest: Mutex<Newest<V>>,
    arrived: Notify,
}

struct Newest<V> {
    call: u64,
    answer: Option<DatedLook<V>>,
}

impl<V> Default for NewestAnswer<V> {
    fn default() -> Self {
        Self { newest: Mutex::new(Newest { call: 0, answer: None }), arrived: Notify::new() }
    }
}

impl<V> NewestAnswer<V> {
    /// Stores the answer of call number `call`, unless a later call has answered already.
    pub(super) fn publish(&self, call: u64, answer: DatedLook<V>) {
        let mut newest = lock(&self.newest);
        if call < newest.call {
            return;
        }
        *newest = Newest { call, answer: Some(answer) };
        drop(newest);
        self.arrived.notify_one();
    }

    /// Waits for the next answer. Only one task may wait at a time.
    pub(super) async fn next(&self) -> DatedLook<V> {
        loop {
            let answer = lock(&self.newest).answer.take();
            match answer {
                Some(answer) => return answer,
                None => self.arrived.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LookResult;

    fn answer(value: u32) -> DatedLook<u32> {
        DatedLook { began: Instant::now(), result: LookResult::Present(value) }
    }

    #[tokio::test]
    async fn newest_answer_is_taken_and_overtaken_one_dropped() {
        let newest = NewestAnswer::default();
        newest.publish(1, answer(1));
        newest.publish(3, answer(3));
        newest.publish(2, answer(2));
        assert_eq!(newest.next().await.result.present(), Some(&3));
        newest.publish(2, answer(2));
        let next = newest.next();
        tokio::pin!(next);
        tokio::select! {
            biased;
            answer = &mut next => panic!("{:?}", answer.result.present()),
            () = std::future::ready(()) => {}
        }
        newest.publish(4, answer(4));
        assert_eq!(next.await.result.present(), Some(&4));
    }
}
