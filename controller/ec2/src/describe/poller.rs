//! One poller per Describe API: all callers that ask about a resource share its calls.
//!
//! A poller sends nothing while nobody waits. A look is sent immediately. A watch causes a call
//! when its change is likely to have ended (`pacing/duration_estimate.rs`), and takes part in every
//! other call. An answer counts only for callers that waited before its call began, so that nobody
//! decides on a state from before the question.

mod waiting;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use waiting::{NewestAnswer, Recipients, Waiting, Watcher};

use crate::calls::Action;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::model::{DatedLook, LookResult};
use crate::pacing::duration_estimate::DurationEstimate;
use crate::pacing::poll_budget::{Budget, Pace};
use crate::pacing::retry;
use crate::sdk::call::Core;

/// The most keys in one call. EC2 takes at most so many values in one filter (EC2 API reference,
/// "List and filter your resources"), and more ids in each Describe call that is made here except
/// one.
pub(crate) const MAX_KEYS_PER_CALL: usize = 200;
/// The most calls of one poller that may be under way at once: a slow answer must not hold up
/// callers that came after its call began.
const MAX_CALLS_IN_FLIGHT: u32 = 4;
/// A new caller does not wake the poller when the next call is due within this time anyway.
const NO_WAKE_WITHIN: Duration = Duration::from_millis(5);
/// The most doublings of the pause between calls while EC2 fails (about 1.6 s): few calls are made,
/// and a recovery of EC2 is noticed soon.
const MAX_BACKOFF_DOUBLINGS: u32 = 5;
/// How long a question about many keys waits for other such questions, because one more call costs
/// more than this delay: node-lifecycle asks about volumes and about their instances in two
/// concurrent calls.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// How many attempts one look makes while failures are transient. A throttled attempt is repeated
/// without this limit.
const LOOK_ATTEMPTS: u32 = 4;

struct State<S: Source> {
    waiting: Waiting<S::Key, S::Value>,
    pace: Pace,
    is_running: bool,
    calls_in_flight: u32,
    calls: u64,
    /// When to check whether the next call is worthwhile, unless a caller needs an answer
    /// immediately.
    next_check: Instant,
    /// The pace allows no call before this time, however urgent.
    earliest_call: Instant,
}

struct Inner<S: Source> {
    source: S,
    core: Arc<Core>,
    state: Mutex<State<S>>,
    changed: Notify,
    /// The statistics of watches that name no kind of change.
    durations: Arc<DurationEstimate>,
}

pub(crate) struct Poller<S: Source>(Arc<Inner<S>>);

impl<S: Source> Clone for Poller<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Source> Poller<S> {
    /// Creates the poller. `budget` is what the pollers of its action may send together.
    pub(crate) fn new(source: S, core: Arc<Core>, budget: Arc<Budget>) -> Self {
        Self(Arc::new(Inner {
            source,
            core,
            state: Mutex::new(State {
                waiting: Waiting::default(),
                pace: Pace::new(budget, Instant::now()),
                is_running: false,
                calls_in_flight: 0,
                calls: 0,
                next_check: Instant::now(),
                earliest_call: Instant::now(),
            }),
            changed: Notify::new(),
            durations: Arc::default(),
        }))
    }

    /// Returns one answer from a call that begins after this one. Asks again while failures are
    /// transient and time is left. `needed` is when the answer is needed, if not at once: until
    /// that time the look waits for a call that is made for another caller.
    pub(crate) async fn look(
        &self,
        key: &S::Key,
        needed: Option<Instant>,
        deadline: Instant,
    ) -> DatedLook<S::Value> {
        let mut attempts = 0;
        let mut last: Option<DatedLook<S::Value>> = None;
        loop {
            let answer = self.await_answer(key.clone(), needed);
            let Ok(look) = tokio::time::timeout_at(deadline, answer).await else {
                return last.unwrap_or_else(|| unanswered::<S>());
            };
            if let LookResult::Unknown(error) = &look.result {
                attempts += 1;
                let is_retried = error.kind == Ec2ErrorKind::Throttled || attempts < LOOK_ATTEMPTS;
                if error.is_transient() && is_retried {
                    last = Some(look);
                    continue;
                }
            }
            return look;
        }
    }

    /// Returns one answer for each key, from calls that begin after this one, with as many keys in
    /// a call as EC2 takes. Does not ask again: an answer that did not come is unknown.
    pub(crate) async fn look_all(
        &self,
        keys: &[S::Key],
        deadline: Instant,
    ) -> Vec<LookResult<S::Value>> {
        await_answers::<S>(self.queue_looks(keys), deadline).await
    }

    /// Queues a look for each of the keys together, so that as many as EC2 takes share a call. Only
    /// calls that start afterwards answer them.
    pub(super) fn queue_looks(&self, keys: &[S::Key]) -> Vec<PendingAnswer<S>> {
        let since = Instant::now();
        {
            let mut state = lock(&self.0.state);
            if !state.waiting.has_lookers() {
                state.pace.hold_until(since + BATCH_DELAY);
            }
        }
        self.register(since, |waiting| {
            let queue_look = |key: &S::Key| waiting.look(key.clone(), since, since);
            keys.iter().map(queue_look).collect()
        })
    }

    /// Passes each fresh answer to `evaluate` until `evaluate` returns an outcome; returns `None`
    /// when the deadline comes first.
    ///
    /// A watch takes part in every call from now on. When a call is made for watches alone follows
    /// from how long such changes took before; the watched change is taken to have begun just now.
    /// A caller that has `waited` long already can wait a little longer.
    pub(crate) async fn watch<R>(
        &self,
        key: &S::Key,
        durations: Option<&Arc<DurationEstimate>>,
        waited: Duration,
        deadline: Instant,
        mut evaluate: impl FnMut(&DatedLook<S::Value>) -> Option<R>,
    ) -> Option<R> {
        let durations = durations.unwrap_or(&self.0.durations);
        let began = Instant::now();
        let newest = Arc::new(NewestAnswer::default());
        let watcher = Watcher {
            key: key.clone(),
            durations: Arc::clone(durations),
            waited,
            began,
            last_asked: began,
            in_flight: None,
            newest: Arc::clone(&newest),
        };
        let _watch =
            self.register(began, |waiting| Watch { id: waiting.watch(watcher), inner: &self.0 });
        let mut unfinished_at = Duration::ZERO;
        loop {
            let next = tokio::time::timeout_at(deadline, newest.next()).await;
            let look = next.ok()?;
            let age = look.began.duration_since(began);
            if let Some(outcome) = evaluate(&look) {
                durations.record(unfinished_at, age);
                return Some(outcome);
            }
            if !matches!(look.result, LookResult::Unknown(_)) {
                unfinished_at = age;
            }
        }
    }

    async fn await_answer(&self, key: S::Key, needed: Option<Instant>) -> DatedLook<S::Value> {
        let since = Instant::now();
        let answered = self.register(since, |waiting| {
            let needed = needed.map_or(since, |at| waiting.send_by(at).max(since));
            waiting.look(key, since, needed)
        });
        answered
            .await
            .unwrap_or_else(|_| DatedLook { began: since, result: ended_without_answer::<S>() })
    }

    /// Queues a caller for calls that have not begun yet.
    fn register<T>(
        &self,
        now: Instant,
        add: impl FnOnce(&mut Waiting<S::Key, S::Value>) -> T,
    ) -> T {
        let mut state = lock(&self.0.state);
        let added = add(&mut state.waiting);
        if !state.is_running {
            state.is_running = true;
            tokio::spawn(Arc::clone(&self.0).run());
        } else if state.next_check > (now + NO_WAKE_WITHIN).max(state.earliest_call) {
            self.0.changed.notify_one();
        }
        added
    }
}

pub(super) type PendingAnswer<S> = oneshot::Receiver<DatedLook<<S as Source>::Value>>;

pub(super) async fn await_answers<S: Source>(
    pending: Vec<PendingAnswer<S>>,
    deadline: Instant,
) -> Vec<LookResult<S::Value>> {
    let mut answers = Vec::with_capacity(pending.len());
    for answer in pending {
        answers.push(match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(look)) => look.result,
            Ok(Err(_)) => ended_without_answer::<S>(),
            Err(_) => unanswered::<S>().result,
        });
    }
    answers
}

/// Returns the look of a caller whose deadline comes before any answer.
fn unanswered<S: Source>() -> DatedLook<S::Value> {
    let error = Ec2Error::deadline_passed(S::ACTION, "an answer of EC2");
    DatedLook { began: Instant::now(), result: LookResult::Unknown(error) }
}

/// A running watch, which ends when it is dropped.
struct Watch<'a, S: Source> {
    id: u64,
    inner: &'a Inner<S>,
}

impl<S: Source> Drop for Watch<'_, S> {
    fn drop(&mut self) {
        lock(&self.inner.state).waiting.end_watch(self.id);
    }
}

enum PollerStep<S: Source> {
    Send(u64, BTreeMap<S::Key, Recipients<S::Value>>),
    SleepUntil(Instant),
    AwaitAnswer,
    End,
}

impl<S: Source> Inner<S> {
    async fn run(self: Arc<Self>) {
        loop {
            let step = self.step(Instant::now());
            match step {
                PollerStep::End => return,
                PollerStep::Send(call, batch) => {
                    tokio::spawn(Arc::clone(&self).send_call(call, batch));
                }
                PollerStep::SleepUntil(at) => {
                    tokio::select! {
                        // A fixed order instead of a random one, so that a seeded history replays
                        // exactly.
                        biased;
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                PollerStep::AwaitAnswer => self.changed.notified().await,
            }
        }
    }

    fn step(&self, now: Instant) -> PollerStep<S> {
        let mut state = lock(&self.state);
        let needed = state.waiting.needed();
        let urgent = needed.is_some_and(|at| at <= now);
        if state.waiting.is_empty() {
            state.is_running = false;
            return PollerStep::End;
        }
        if state.calls_in_flight >= MAX_CALLS_IN_FLIGHT {
            // The end of a call wakes the task; no new caller needs to.
            state.next_check = now;
            return PollerStep::AwaitAnswer;
        }
        state.earliest_call = state.pace.next_call(now, true);
        let mut at = match urgent {
            true => state.earliest_call,
            false => state.pace.next_call(now, false),
        };
        // While the pace forbids a call, whether the call is worthwhile is not computed: many more
        // callers may come before.
        if !urgent && at <= now {
            at = state.waiting.next_worthwhile_call(now, |at| state.pace.worthwhile_lateness(at));
        }
        if let Some(needed) = needed.filter(|_| !urgent) {
            at = at.min(needed.max(state.earliest_call));
        }
        state.next_check = at;
        if at > now {
            return PollerStep::SleepUntil(at);
        }
        // Spread evenly over the time that an answer takes: calls closer together would bring the
        // same answers.
        let gap = state.waiting.answer_time() / MAX_CALLS_IN_FLIGHT;
        state.pace.note_sent(now, gap);
        state.calls_in_flight += 1;
        state.calls += 1;
        let call = state.calls;
        PollerStep::Send(call, state.waiting.take_batch(call, now))
    }

    async fn send_call(self: Arc<Self>, call: u64, batch: BTreeMap<S::Key, Recipients<S::Value>>) {
        let began = Instant::now();
        let call_in_flight = CallInFlight { inner: Arc::clone(&self), call, began };
        let keys: Vec<S::Key> = batch.keys().cloned().collect();
        self.core.observer.poll_batch(S::ACTION, keys.len());
        let deadline = began + self.core.settings.default_timeout;
        let mut fetched = self.source.fetch(&keys, deadline).await;
        {
            let mut state = lock(&self.state);
            let failed = match &fetched {
                Ok(answers) => {
                    answers.values().any(|result| matches!(result, LookResult::Unknown(_)))
                }
                Err(_) => true,
            };
            if failed {
                let failures = state.pace.note_failed(Instant::now());
                let pause = retry::backoff(
                    failures.min(MAX_BACKOFF_DOUBLINGS),
                    self.core.random.fraction(),
                );
                state.pace.hold_until(Instant::now() + pause);
            } else {
                state.pace.note_answered();
            }
        }
        for (key, recipients) in batch {
            let result = match &mut fetched {
                Ok(answers) => answers.remove(&key).unwrap_or(LookResult::Absent),
                Err(error) => LookResult::Unknown(error.clone()),
            };
            let count = recipients.lookers.len() + recipients.watchers.len();
            let mut looks = std::iter::repeat_n(DatedLook { began, result }, count);
            // A caller that stopped waiting has dropped the receiver.
            for (looker, look) in recipients.lookers.into_iter().zip(&mut looks) {
                let _ = looker.answer.send(look);
            }
            for (watcher, look) in recipients.watchers.into_iter().zip(looks) {
                watcher.publish(call, look);
            }
        }
        drop(call_in_flight);
    }
}

/// Frees the call's place when it is dropped, also after a panic.
struct CallInFlight<S: Source> {
    inner: Arc<Inner<S>>,
    call: u64,
    began: Instant,
}

impl<S: Source> Drop for CallInFlight<S> {
    fn drop(&mut self) {
        let mut state = lock(&self.inner.state);
        state.calls_in_flight -= 1;
        state.waiting.call_ended(self.call, self.began.elapsed());
        drop(state);
        self.inner.changed.notify_one();
    }
}

/// A Describe API that a poller calls.
pub(crate) trait Source: Send + Sync + 'static {
    type Key: Ord + Clone + Send + Sync + 'static;
    type Value: Clone + Send + 'static;
    const ACTION: Action;

    /// Asks for all keys, page by page. A key that is missing from a complete answer is absent.
    fn fetch(
        &self,
        keys: &[Self::Key],
        deadline: Instant,
    ) -> impl Future<Output = Result<BTreeMap<Self::Key, LookResult<Self::Value>>, Ec2Error>> + Send;
}

/// Returns the answer for a call that panicked, or that the end of the runtime dropped.
pub(super) fn ended_without_answer<S: Source>() -> LookResult<S::Value> {
    let text = "the call that asked for it ended without an answer";
    LookResult::Unknown(Ec2Error::new(Ec2ErrorKind::Other, S::ACTION, Sent::Answered, text))
}

#[cfg(test)]
mod tests;
