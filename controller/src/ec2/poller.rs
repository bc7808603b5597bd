//! One poller per Describe API: whoever wants to know about a resource rides the same calls.
//!
//! A poller sends nothing while nobody waits. A look is sent at once. Watches are asked for when their changes are likely to have ended
//! (`usual.rs`), and ride along with every other call. An answer counts only for those who waited before its call began, so that nobody decides on
//! what was true before they asked.

mod news;
mod waiting;
mod zoned;

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::action::Action;
use super::call::Core;
use super::code::Ec2ErrorKind;
use super::error::{Ec2Error, Sent};
use super::pace::{Budget, Pace};
use super::retry;
use super::seen::Seen;
use super::usual::Usual;
use news::{Answer, News};
use waiting::{Recipients, Waiting, Watcher};
pub(super) use zoned::Zoned;

/// EC2 takes at most so many values in one filter (EC2 API reference, "List and filter your resources"), and more ids in each Describe call that is
/// made here but one.
pub(super) const MOST_VALUES: usize = 200;
/// Calls of one poller that may be under way at once: a slow answer must not hold up those who came after it was asked.
const MOST_FLIGHTS: u32 = 4;
/// Whoever lines up does not move a call that comes so soon anyway.
const SOON: Duration = Duration::from_millis(5);
/// While EC2 fails, calls come at most this many doublings apart (about 1.6 s): they are few, and its return is noticed soon.
const SLOWEST: u32 = 5;
/// Whoever asks about many waits so long for others who do, because a call more costs more than a moment: node-lifecycle asks about volumes and
/// about their instances in two calls at once.
const TOGETHER: Duration = Duration::from_millis(20);
/// How long one look asks again after failures that may pass.
const LOOK_ATTEMPTS: u32 = 4;

/// What a poller asks for.
pub(super) trait Source: Send + Sync + 'static {
    /// What is asked for.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// What is answered.
    type Value: Clone + Send + 'static;
    /// The Describe action.
    const ACTION: Action;

    /// Asks for all keys, page by page. A key that is missing from a complete answer is absent.
    fn fetch(
        &self,
        keys: &[Self::Key],
        deadline: Instant,
    ) -> impl Future<Output = Result<BTreeMap<Self::Key, Seen<Self::Value>>, Ec2Error>> + Send;
}

struct State<S: Source> {
    waiting: Waiting<S::Key, S::Value>,
    pace: Pace,
    running: bool,
    flights: u32,
    /// Calls so far.
    calls: u64,
    /// Whether the next call is worth it is to be seen then, unless somebody wants an answer at once.
    next: Instant,
    /// The pace allows none before, whoever wants it.
    earliest: Instant,
}

struct Inner<S: Source> {
    source: S,
    core: Arc<Core>,
    state: Mutex<State<S>>,
    changed: Notify,
    /// Of those who name no kind of change.
    usual: Arc<Usual>,
}

/// The poller of one Describe API.
pub(super) struct Poller<S: Source>(Arc<Inner<S>>);

impl<S: Source> Clone for Poller<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Source> Poller<S> {
    /// With what its action may send in sum, shared with the action's other pollers.
    pub(super) fn new(source: S, core: Arc<Core>, budget: Arc<Budget>) -> Self {
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

    /// One answer from a call that begins after this one, asked for again while failures may pass and time is left. `needed` is when the answer
    /// is needed, if not at once: until then it comes with a call for somebody else, if there is one.
    pub(super) async fn look(
        &self,
        key: &S::Key,
        needed: Option<Instant>,
        deadline: Instant,
    ) -> Seen<S::Value> {
        let mut made = 0;
        let mut last = None;
        loop {
            let asked = self.ask(key.clone(), needed);
            match tokio::time::timeout_at(deadline, asked).await {
                Err(_) => {
                    return Seen::Unknown(
                        last.unwrap_or_else(|| Ec2Error::deadline(S::ACTION, "an answer of EC2")),
                    );
                }
                Ok(Seen::Unknown(error)) => {
                    made += 1;
                    let again = error.kind == Ec2ErrorKind::Throttled || made < LOOK_ATTEMPTS;
                    if !(error.is_transient() && again) {
                        return Seen::Unknown(error);
                    }
                    last = Some(error);
                }
                Ok(seen) => return seen,
            }
        }
    }

    /// Lines up for all keys together, so that as many as EC2 takes share a call that begins after this one.
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

    /// Hands each fresh answer to `judge` until it breaks; `None` when the deadline comes first.
    ///
    /// Whoever watches rides along with every call from now on. When a call is made for them alone follows from how long such changes
    /// took: what is watched for began a moment ago. Whoever has `waited` long before does not mind to wait a little longer.
    pub(super) async fn watch<R>(
        &self,
        key: &S::Key,
        usual: Option<&Arc<Usual>>,
        waited: Duration,
        deadline: Instant,
        mut judge: impl FnMut(&Seen<S::Value>) -> ControlFlow<R>,
    ) -> Option<R> {
        let usual = usual.unwrap_or(&self.0.usual);
        let began = Instant::now();
        let news = Arc::new(News::default());
        let watcher = Watcher {
            key: key.clone(),
            usual: Arc::clone(usual),
            waited,
            began,
            asked: began,
            on_its_way: None,
            news: Arc::clone(&news),
        };
        let _watch = self.register(began, |waiting| Watch {
            number: waiting.watch(watcher),
            inner: &self.0,
        });
        let mut running = Duration::ZERO;
        loop {
            let next = tokio::time::timeout_at(deadline, news.next()).await;
            let Answer { began: asked, seen } = next.ok()?;
            let age = asked.duration_since(began);
            if let ControlFlow::Break(result) = judge(&seen) {
                usual.ended(running, age);
                return Some(result);
            }
            if !matches!(seen, Seen::Unknown(_)) {
                running = age;
            }
        }
    }

    async fn ask(&self, key: S::Key, needed: Option<Instant>) -> Seen<S::Value> {
        let since = Instant::now();
        let answered = self.register(since, |waiting| {
            let needed = needed.map_or(since, |at| waiting.to_be_sent(at).max(since));
            waiting.look(key, since, needed)
        });
        answered.await.unwrap_or_else(|_| abandoned::<S>())
    }

    /// Lines up for calls that have not begun yet.
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

/// The answer of somebody who lined up.
type Answered<S> = oneshot::Receiver<Seen<<S as Source>::Value>>;

async fn answers<S: Source>(asked: Vec<Answered<S>>, deadline: Instant) -> Vec<Seen<S::Value>> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(match tokio::time::timeout_at(deadline, answer).await {
            Ok(seen) => seen.unwrap_or_else(|_| abandoned::<S>()),
            Err(_) => Seen::Unknown(Ec2Error::deadline(S::ACTION, "an answer of EC2")),
        });
    }
    answers
}

/// Who watches, until dropped.
struct Watch<'a, S: Source> {
    number: u64,
    inner: &'a Inner<S>,
}

impl<S: Source> Drop for Watch<'_, S> {
    fn drop(&mut self) {
        self.inner.state().waiting.end(self.number);
    }
}

/// The call panicked or the runtime is ending.
fn abandoned<S: Source>() -> Seen<S::Value> {
    Seen::Unknown(Ec2Error {
        kind: Ec2ErrorKind::Other,
        action: S::ACTION,
        code: None,
        message: "the call that asked for it ended without an answer".to_owned(),
        request_id: None,
        sent: Sent::Answered,
    })
}

/// What to do next.
enum Step<S: Source> {
    Send(u64, BTreeMap<S::Key, Recipients<S::Value>>),
    Until(Instant),
    AfterAnswer,
    End,
}

impl<S: Source> Inner<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        // Between two statements under the lock the table of those who wait is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let step = self.step(Instant::now());
            match step {
                Step::End => return,
                Step::Send(call, batch) => {
                    tokio::spawn(Arc::clone(&self).fly(call, batch));
                }
                Step::Until(at) => {
                    tokio::select! {
                        // In this order, not at random: a seeded history replays exactly.
                        biased;
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                Step::AfterAnswer => self.changed.notified().await,
            }
        }
    }

    fn step(&self, now: Instant) -> Step<S> {
        let mut state = self.state();
        let needed = state.waiting.needed();
        let urgent = needed.is_some_and(|at| at <= now);
        if state.waiting.is_empty() {
            state.running = false;
            return Step::End;
        }
        if state.flights >= MOST_FLIGHTS {
            // Its end wakes whoever waits for it; nobody else need.
            state.next = now;
            return Step::AfterAnswer;
        }
        state.earliest = state.pace.next(now, true);
        let mut at = match urgent {
            true => state.earliest,
            false => state.pace.next(now, false),
        };
        // Before the pace allows a call, what one is worth is not looked at: until then many more may have come.
        if !urgent && at <= now {
            at = state.waiting.worth_it(now, |at| state.pace.worth(at));
        }
        if let Some(needed) = needed.filter(|_| !urgent) {
            at = at.min(needed.max(state.earliest));
        }
        state.next = at;
        if at > now {
            return Step::Until(at);
        }
        // Evenly over the time that an answer takes: closer together they would bring the same news.
        let apart = state.waiting.takes() / MOST_FLIGHTS;
        state.pace.sent(now, apart);
        state.flights += 1;
        state.calls += 1;
        let call = state.calls;
        Step::Send(call, state.waiting.take(call, now))
    }

    async fn fly(self: Arc<Self>, call: u64, batch: BTreeMap<S::Key, Recipients<S::Value>>) {
        let began = Instant::now();
        let landing = Landing {
            inner: Arc::clone(&self),
            call,
            began,
        };
        let keys: Vec<S::Key> = batch.keys().cloned().collect();
        self.core.metrics.poll_batch(S::ACTION.name(), keys.len());
        let deadline = began + self.core.settings.patience;
        let mut result = self.source.fetch(&keys, deadline).await;
        {
            let mut state = self.state();
            let failed = match &result {
                Ok(answers) => answers
                    .values()
                    .any(|seen| matches!(seen, Seen::Unknown(_))),
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
                Ok(answers) => answers.remove(&key).unwrap_or(Seen::Absent),
                Err(error) => Seen::Unknown(error.clone()),
            };
            let number = recipients.lookers.len() + recipients.watchers.len();
            let mut seen = std::iter::repeat_n(seen, number);
            // Whoever stopped waiting does not want it.
            for (looker, seen) in recipients.lookers.into_iter().zip(&mut seen) {
                let _ = looker.answer.send(seen);
            }
            for (watcher, seen) in recipients.watchers.into_iter().zip(seen) {
                watcher.leave(call, Answer { began, seen });
            }
        }
        drop(landing);
    }
}

/// The flight's place is free again, also when it panicked.
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
