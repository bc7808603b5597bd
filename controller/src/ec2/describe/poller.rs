//! One poller per Describe API: all callers that ask about a resource share its calls.
//!
//! A poller sends nothing while nobody waits. A look is sent immediately. A watch causes a call
//! when its change is likely to have ended (`usual.rs`), and takes part in every other call. An
//! answer counts only for callers that waited before its call began, so that nobody decides on a
//! state from before the question.

mod newest_answer;
mod source;
mod waiting;
mod zone_pollers;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::ec2::error::Ec2Error;
use crate::ec2::error::code::Ec2ErrorKind;
use crate::ec2::model::look_result::LookResult;
use crate::ec2::pacing::duration_estimate::DurationEstimate;
use crate::ec2::pacing::poll_budget::{Budget, Pace};
use crate::ec2::pacing::retry;
use crate::ec2::sdk::call::Core;
use newest_answer::{DatedAnswer, NewestAnswer};
pub(in crate::ec2) use source::Source;
use source::abandoned;
use waiting::{Recipients, Waiting, Watcher};
pub(in crate::ec2) use zone_pollers::ZonePollers;

/// The most keys in one call. EC2 takes at most so many values in one filter (EC2 API reference,
/// "List and filter your resources"), and more ids in each Describe call that is made here except
/// one.
pub(in crate::ec2) const MOST_VALUES: usize = 200;
/// The most calls of one poller that may be under way at once: a slow answer must not hold up
/// callers that came after its call began.
const MOST_FLIGHTS: u32 = 4;
/// A new caller does not wake the poller when the next call is this near anyway.
const SOON: Duration = Duration::from_millis(5);
/// The most doublings of the pause between calls while EC2 fails (about 1.6 s): few calls are made,
/// and EC2's return is noticed soon.
const SLOWEST: u32 = 5;
/// How long a question about many keys waits for other such questions, because one more call costs
/// more than this delay: node-lifecycle asks about volumes and about their instances in two
/// concurrent calls.
const TOGETHER: Duration = Duration::from_millis(20);
/// How many attempts one look makes while failures are transient. A throttled attempt is repeated
/// without this limit.
const LOOK_ATTEMPTS: u32 = 4;

struct State<S: Source> {
    waiting: Waiting<S::Key, S::Value>,
    pace: Pace,
    running: bool,
    flights: u32,
    /// The number of calls so far.
    calls: u64,
    /// When to check whether the next call is worth it, unless a caller needs an answer
    /// immediately.
    next: Instant,
    /// The pace allows no call before this, whoever needs it.
    earliest: Instant,
}

struct Inner<S: Source> {
    source: S,
    core: Arc<Core>,
    state: Mutex<State<S>>,
    changed: Notify,
    /// The statistics of watches that name no kind of change.
    usual: Arc<DurationEstimate>,
}

/// The poller of one Describe API.
pub(in crate::ec2) struct Poller<S: Source>(Arc<Inner<S>>);

impl<S: Source> Clone for Poller<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Source> Poller<S> {
    /// Creates the poller. `budget` is what the pollers of its action may send together.
    pub(in crate::ec2) fn new(source: S, core: Arc<Core>, budget: Arc<Budget>) -> Self {
        Self(Arc::new(Inner {
            source,
            core,
            state: Mutex::new(State {
                waiting: Waiting::default(),
                pace: Pace::new(budget, Instant::now()),
                running: false,
                flights: 0,
                calls: 0,
                next: Instant::now(),
                earliest: Instant::now(),
            }),
            changed: Notify::new(),
            usual: Arc::default(),
        }))
    }

    /// Returns one answer from a call that begins after this one. Asks again while failures are
    /// transient and time is left. `needed` is when the answer is needed, if not at once: until
    /// then the look waits for a call that is made for another caller.
    pub(in crate::ec2) async fn look(
        &self,
        key: &S::Key,
        needed: Option<Instant>,
        deadline: Instant,
    ) -> LookResult<S::Value> {
        let mut made = 0;
        let mut last = None;
        loop {
            let asked = self.ask(key.clone(), needed);
            match tokio::time::timeout_at(deadline, asked).await {
                Err(_) => {
                    return LookResult::Unknown(
                        last.unwrap_or_else(|| Ec2Error::deadline(S::ACTION, "an answer of EC2")),
                    );
                }
                Ok(LookResult::Unknown(error)) => {
                    made += 1;
                    let again = error.kind == Ec2ErrorKind::Throttled || made < LOOK_ATTEMPTS;
                    if !(error.is_transient() && again) {
                        return LookResult::Unknown(error);
                    }
                    last = Some(error);
                }
                Ok(seen) => return seen,
            }
        }
    }

    /// Queues a look for each of the keys together, so that as many as EC2 takes share a call. Only
    /// calls that start afterwards answer them.
    fn line_up(&self, keys: &[S::Key]) -> Vec<Answered<S>> {
        let since = Instant::now();
        {
            let mut state = self.0.state();
            if !state.waiting.has_lookers() {
                state.pace.hold_until(since + TOGETHER);
            }
        }
        self.register(since, |waiting| {
            let line_up = |key: &S::Key| waiting.look(key.clone(), since, since);
            keys.iter().map(line_up).collect()
        })
    }

    /// Passes each fresh answer to `judge` until it breaks; returns `None` when the deadline comes
    /// first.
    ///
    /// A watch takes part in every call from now on. When a call is made for watches alone follows
    /// from how long such changes took before; the watched change is taken to have begun just now.
    /// A caller that has `waited` long already can wait a little longer.
    pub(in crate::ec2) async fn watch<R>(
        &self,
        key: &S::Key,
        usual: Option<&Arc<DurationEstimate>>,
        waited: Duration,
        deadline: Instant,
        mut judge: impl FnMut(&LookResult<S::Value>) -> ControlFlow<R>,
    ) -> Option<R> {
        let usual = usual.unwrap_or(&self.0.usual);
        let began = Instant::now();
        let news = Arc::new(NewestAnswer::default());
        let watcher = Watcher {
            key: key.clone(),
            usual: Arc::clone(usual),
            waited,
            began,
            asked: began,
            on_its_way: None,
            news: Arc::clone(&news),
        };
        let _watch = self
            .register(began, |waiting| Watch { number: waiting.watch(watcher), inner: &self.0 });
        let mut running = Duration::ZERO;
        loop {
            let next = tokio::time::timeout_at(deadline, news.next()).await;
            let DatedAnswer { began: asked, seen } = next.ok()?;
            let age = asked.duration_since(began);
            if let ControlFlow::Break(result) = judge(&seen) {
                usual.ended(running, age);
                return Some(result);
            }
            if !matches!(seen, LookResult::Unknown(_)) {
                running = age;
            }
        }
    }

    async fn ask(&self, key: S::Key, needed: Option<Instant>) -> LookResult<S::Value> {
        let since = Instant::now();
        let answered = self.register(since, |waiting| {
            let needed = needed.map_or(since, |at| waiting.to_be_sent(at).max(since));
            waiting.look(key, since, needed)
        });
        answered.await.unwrap_or_else(|_| abandoned::<S>())
    }

    /// Queues a caller for calls that have not begun yet.
    fn register<T>(
        &self,
        now: Instant,
        line_up: impl FnOnce(&mut Waiting<S::Key, S::Value>) -> T,
    ) -> T {
        let mut state = self.0.state();
        let lined_up = line_up(&mut state.waiting);
        if !state.running {
            state.running = true;
            tokio::spawn(Arc::clone(&self.0).run());
        } else if state.next > (now + SOON).max(state.earliest) {
            self.0.changed.notify_one();
        }
        lined_up
    }
}

/// The pending answer of a queued look.
type Answered<S> = oneshot::Receiver<LookResult<<S as Source>::Value>>;

async fn answers<S: Source>(
    asked: Vec<Answered<S>>,
    deadline: Instant,
) -> Vec<LookResult<S::Value>> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(match tokio::time::timeout_at(deadline, answer).await {
            Ok(seen) => seen.unwrap_or_else(|_| abandoned::<S>()),
            Err(_) => LookResult::Unknown(Ec2Error::deadline(S::ACTION, "an answer of EC2")),
        });
    }
    answers
}

/// A running watch, which ends when it is dropped.
struct Watch<'a, S: Source> {
    number: u64,
    inner: &'a Inner<S>,
}

impl<S: Source> Drop for Watch<'_, S> {
    fn drop(&mut self) {
        self.inner.state().waiting.end(self.number);
    }
}

/// The next step of the poller's task.
enum PollerStep<S: Source> {
    Send(u64, BTreeMap<S::Key, Recipients<S::Value>>),
    Until(Instant),
    AfterAnswer,
    End,
}

impl<S: Source> Inner<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        // Every statement under the lock leaves the table of waiting callers consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let step = self.step(Instant::now());
            match step {
                PollerStep::End => return,
                PollerStep::Send(call, batch) => {
                    tokio::spawn(Arc::clone(&self).fly(call, batch));
                }
                PollerStep::Until(at) => {
                    tokio::select! {
                        // A fixed order instead of a random one, so that a seeded history replays
                        // exactly.
                        biased;
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                PollerStep::AfterAnswer => self.changed.notified().await,
            }
        }
    }

    fn step(&self, now: Instant) -> PollerStep<S> {
        let mut state = self.state();
        let needed = state.waiting.needed();
        let urgent = needed.is_some_and(|at| at <= now);
        if state.waiting.is_empty() {
            state.running = false;
            return PollerStep::End;
        }
        if state.flights >= MOST_FLIGHTS {
            // The end of a flight wakes the task; no new caller needs to.
            state.next = now;
            return PollerStep::AfterAnswer;
        }
        state.earliest = state.pace.next(now, true);
        let mut at = match urgent {
            true => state.earliest,
            false => state.pace.next(now, false),
        };
        // While the pace forbids a call, its worth is not computed: many more callers may come
        // before.
        if !urgent && at <= now {
            at = state.waiting.worth_it(now, |at| state.pace.worth(at));
        }
        if let Some(needed) = needed.filter(|_| !urgent) {
            at = at.min(needed.max(state.earliest));
        }
        state.next = at;
        if at > now {
            return PollerStep::Until(at);
        }
        // Spread evenly over the time that an answer takes: calls closer together would bring the
        // same answers.
        let apart = state.waiting.takes() / MOST_FLIGHTS;
        state.pace.sent(now, apart);
        state.flights += 1;
        state.calls += 1;
        let call = state.calls;
        PollerStep::Send(call, state.waiting.take(call, now))
    }

    async fn fly(self: Arc<Self>, call: u64, batch: BTreeMap<S::Key, Recipients<S::Value>>) {
        let began = Instant::now();
        let landing = Landing { inner: Arc::clone(&self), call, began };
        let keys: Vec<S::Key> = batch.keys().cloned().collect();
        self.core.metrics.poll_batch(S::ACTION.name(), keys.len());
        let deadline = began + self.core.settings.patience;
        let mut result = self.source.fetch(&keys, deadline).await;
        {
            let mut state = self.state();
            let failed = match &result {
                Ok(answers) => answers.values().any(|seen| matches!(seen, LookResult::Unknown(_))),
                Err(_) => true,
            };
            if failed {
                let failures = state.pace.failed(Instant::now());
                let pause = retry::backoff(failures.min(SLOWEST), self.core.random.fraction());
                state.pace.hold_until(Instant::now() + pause);
            } else {
                state.pace.answered();
            }
        }
        for (key, recipients) in batch {
            let seen = match &mut result {
                Ok(answers) => answers.remove(&key).unwrap_or(LookResult::Absent),
                Err(error) => LookResult::Unknown(error.clone()),
            };
            let number = recipients.lookers.len() + recipients.watchers.len();
            let mut seen = std::iter::repeat_n(seen, number);
            // A caller that stopped waiting has dropped the receiver.
            for (looker, seen) in recipients.lookers.into_iter().zip(&mut seen) {
                let _ = looker.answer.send(seen);
            }
            for (watcher, seen) in recipients.watchers.into_iter().zip(seen) {
                watcher.leave(call, DatedAnswer { began, seen });
            }
        }
        drop(landing);
    }
}

/// Frees the flight's place when it is dropped, also after a panic.
struct Landing<S: Source> {
    inner: Arc<Inner<S>>,
    call: u64,
    began: Instant,
}

impl<S: Source> Drop for Landing<S> {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.flights -= 1;
        state.waiting.landed(self.call, self.began.elapsed());
        drop(state);
        self.inner.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
