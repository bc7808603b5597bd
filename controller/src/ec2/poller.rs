//! One poller per Describe API: whoever wants to know about a resource rides the same calls.
//!
//! A poller sends nothing while nobody waits. When somebody begins to wait it sends at once; later ticks ask for all that wait, as one
//! list. An answer counts only for those who waited before its call began, so that nobody decides on what was true before they asked.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::action::Action;
use super::call::Core;
use super::code::Ec2ErrorKind;
use super::error::{Ec2Error, Sent};
use super::pace::Pace;
use super::retry;
use super::seen::Seen;

/// EC2 takes at most so many values in one filter (EC2 API reference, "List and filter your resources").
pub(super) const MOST_VALUES: usize = 200;
/// Calls of one poller that may be under way at once: a slow answer must not hold up those who came after it was asked.
const MOST_FLIGHTS: usize = 4;
/// How many answers one watcher may have on their way.
const OVERLAP: usize = 3;
/// While EC2 fails, calls come at most this many doublings apart (about 1.6 s): they are few, and its return is noticed soon.
const SLOWEST: u32 = 5;
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

/// Those who wait for one key.
struct Waiting<V> {
    /// Differs from that of all earlier ones.
    turn: u64,
    due: Instant,
    urgent: bool,
    askers: Vec<oneshot::Sender<Seen<V>>>,
}

struct State<S: Source> {
    waiting: BTreeMap<S::Key, Waiting<S::Value>>,
    pace: Pace,
    running: bool,
    flights: usize,
    turns: u64,
    /// The next call waits for the pace: whoever lines up now cannot make it earlier.
    paced: bool,
}

impl<S: Source> State<S> {
    fn line_up(
        &mut self,
        key: S::Key,
        due: Instant,
        urgent: bool,
    ) -> (u64, oneshot::Receiver<Seen<S::Value>>) {
        let (asker, answer) = oneshot::channel();
        self.turns += 1;
        let next = self.turns;
        let waiting = self.waiting.entry(key).or_insert_with(|| Waiting {
            turn: next,
            due,
            urgent: false,
            askers: Vec::new(),
        });
        waiting.due = waiting.due.min(due);
        waiting.urgent |= urgent;
        waiting.askers.push(asker);
        (waiting.turn, answer)
    }
}

struct Inner<S: Source> {
    source: S,
    core: Arc<Core>,
    state: Mutex<State<S>>,
    changed: Notify,
}

/// The poller of one Describe API.
pub(super) struct Poller<S: Source>(Arc<Inner<S>>);

impl<S: Source> Clone for Poller<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Source> Poller<S> {
    pub(super) fn new(source: S, core: Arc<Core>) -> Self {
        let rate = core
            .settings
            .rates
            .get(&S::ACTION)
            .copied()
            .unwrap_or_else(|| S::ACTION.documented_rate());
        Self(Arc::new(Inner {
            source,
            core,
            state: Mutex::new(State {
                waiting: BTreeMap::new(),
                pace: Pace::new(rate, Instant::now()),
                running: false,
                flights: 0,
                turns: 0,
                paced: false,
            }),
            changed: Notify::new(),
        }))
    }

    /// One answer from a call that begins after this one, asked for again while failures may pass and time is left.
    pub(super) async fn look(&self, key: &S::Key, deadline: Instant) -> Seen<S::Value> {
        let mut made = 0;
        let mut last = None;
        loop {
            let asked = self.ask(key.clone());
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

    /// One answer for each key, from calls that begin after this one; they line up together, so that as many as EC2 takes share a call. Not asked
    /// for again: an answer that did not come is unknown.
    pub(super) async fn look_all(&self, keys: &[S::Key], deadline: Instant) -> Vec<Seen<S::Value>> {
        let now = Instant::now();
        let asked: Vec<_> = {
            let mut state = self.0.state();
            let asked = keys
                .iter()
                .map(|key| state.line_up(key.clone(), now, true).1);
            let asked = asked.collect();
            self.wake(&mut state, true);
            asked
        };
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.push(match tokio::time::timeout_at(deadline, answer).await {
                Ok(seen) => seen.unwrap_or_else(|_| abandoned::<S>()),
                Err(_) => Seen::Unknown(Ec2Error::deadline(S::ACTION, "an answer of EC2")),
            });
        }
        answers
    }

    /// Hands each fresh answer to `judge` until it breaks; `None` when the deadline comes first.
    pub(super) async fn watch<R>(
        &self,
        key: &S::Key,
        deadline: Instant,
        mut judge: impl FnMut(&Seen<S::Value>) -> ControlFlow<R>,
    ) -> Option<R> {
        let began = Instant::now();
        let mut due = began;
        // Asked for again while an answer is on its way: a slow answer is no reason to see late. Oldest first.
        let mut asked: VecDeque<oneshot::Receiver<Seen<S::Value>>> = VecDeque::new();
        let mut turn = None;
        loop {
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            if asked.len() < OVERLAP && now >= due {
                let gap = tick(now.duration_since(began))
                    .mul_f64(0.9 + self.0.core.random.fraction() * 0.2);
                if turn.is_some_and(|turn| self.is_waiting(key, turn)) {
                    // Not sent yet: it will bring the news of now as well, and many wait.
                    due = now + gap * 4;
                } else {
                    let (asking, answer) = self.register(key.clone(), now, now == began);
                    asked.push_back(answer);
                    turn = Some(asking);
                    due = now + gap;
                }
            }
            let next = if asked.len() < OVERLAP {
                due.min(deadline)
            } else {
                deadline
            };
            let (place, seen) = tokio::select! {
                // In this order, not at random: a seeded history replays exactly.
                biased;
                answered = first_answer(&mut asked) => answered,
                () = tokio::time::sleep_until(next) => continue,
            };
            // Whatever was asked before this would be older news.
            asked.drain(..=place);
            let seen = seen.unwrap_or_else(abandoned::<S>);
            if let ControlFlow::Break(result) = judge(&seen) {
                return Some(result);
            }
            due = due.min(Instant::now() + tick(began.elapsed()));
        }
    }

    async fn ask(&self, key: S::Key) -> Seen<S::Value> {
        let (_, answer) = self.register(key, Instant::now(), true);
        answer.await.unwrap_or_else(|_| abandoned::<S>())
    }

    /// Lines up for an answer of a call that has not begun yet; also answers the turn for [`Poller::is_waiting`].
    fn register(
        &self,
        key: S::Key,
        due: Instant,
        urgent: bool,
    ) -> (u64, oneshot::Receiver<Seen<S::Value>>) {
        let mut state = self.0.state();
        let registered = state.line_up(key, due, urgent);
        self.wake(&mut state, urgent);
        registered
    }

    /// Somebody new waits.
    fn wake(&self, state: &mut State<S>, urgent: bool) {
        if state.running {
            if urgent || !state.paced {
                self.0.changed.notify_one();
            }
        } else {
            state.running = true;
            tokio::spawn(Arc::clone(&self.0).run());
        }
    }

    /// Whether those who lined up for the key at this turn have not been asked for yet.
    fn is_waiting(&self, key: &S::Key, turn: u64) -> bool {
        self.0
            .state()
            .waiting
            .get(key)
            .is_some_and(|waiting| waiting.turn == turn)
    }
}

/// The first that is answered, by its place, or `None` for its value when its call ended without an answer.
async fn first_answer<V>(asked: &mut VecDeque<oneshot::Receiver<V>>) -> (usize, Option<V>) {
    std::future::poll_fn(|cx| {
        // The newest counts most.
        for (place, answer) in asked.iter_mut().enumerate().rev() {
            if let Poll::Ready(value) = Pin::new(answer).poll(cx) {
                return Poll::Ready((place, value.ok()));
            }
        }
        Poll::Pending
    })
    .await
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

/// How long after one question the next is asked, by how long the wait has been. Short waits are what people feel; a long one is stuck.
fn tick(waited: Duration) -> Duration {
    Duration::from_millis(match waited.as_secs() {
        0..10 => 80,
        10..30 => 250,
        30..120 => 1000,
        _ => 3000,
    })
}

/// What to do next.
enum Step<S: Source> {
    Send(BTreeMap<S::Key, Waiting<S::Value>>),
    Until(Instant),
    AfterAnswer,
    End,
}

impl<S: Source> Inner<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        // A panic while it was held leaves at worst a waiting entry without askers, which the next step removes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let step = self.step(Instant::now());
            match step {
                Step::End => return,
                Step::Send(batch) => {
                    tokio::spawn(Arc::clone(&self).fly(batch));
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
        state.waiting.retain(|_, waiting| {
            waiting.askers.retain(|asker| !asker.is_closed());
            !waiting.askers.is_empty()
        });
        let Some(due) = state.waiting.values().map(|waiting| waiting.due).min() else {
            state.running = false;
            return Step::End;
        };
        if state.flights >= MOST_FLIGHTS {
            return Step::AfterAnswer;
        }
        let urgent = state.waiting.values().any(|waiting| waiting.urgent);
        let paced = state.pace.next(now, urgent);
        let at = due.max(paced);
        state.paced = paced > now && at == paced;
        if at > now {
            return Step::Until(at);
        }
        state.pace.sent(now);
        state.flights += 1;
        Step::Send(take_due(&mut state.waiting))
    }

    async fn fly(self: Arc<Self>, batch: BTreeMap<S::Key, Waiting<S::Value>>) {
        let landing = Landing(Arc::clone(&self));
        let keys: Vec<S::Key> = batch.keys().cloned().collect();
        self.core.metrics.poll_batch(S::ACTION.name(), keys.len());
        let deadline = Instant::now() + self.core.settings.patience;
        let result = self.source.fetch(&keys, deadline).await;
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
        for (key, waiting) in batch {
            let seen = match &result {
                Ok(answers) => answers.get(&key).cloned().unwrap_or(Seen::Absent),
                Err(error) => Seen::Unknown(error.clone()),
            };
            for asker in waiting.askers {
                // Whoever stopped waiting does not want it.
                let _ = asker.send(seen.clone());
            }
        }
        drop(landing);
    }
}

/// The flight's place is free again, also when it panicked.
struct Landing<S: Source>(Arc<Inner<S>>);

impl<S: Source> Drop for Landing<S> {
    fn drop(&mut self) {
        self.0.state().flights -= 1;
        self.0.changed.notify_one();
    }
}

/// Takes up to [`MOST_VALUES`] keys, those that are due longest first: a key that is not due yet rides along for nothing.
fn take_due<K: Ord + Clone, V>(waiting: &mut BTreeMap<K, Waiting<V>>) -> BTreeMap<K, Waiting<V>> {
    if waiting.len() <= MOST_VALUES {
        return std::mem::take(waiting);
    }
    let mut order: Vec<(Instant, &K)> = waiting
        .iter()
        .map(|(key, waiting)| (waiting.due, key))
        .collect();
    order.select_nth_unstable(MOST_VALUES - 1);
    let keys: Vec<K> = order[..MOST_VALUES]
        .iter()
        .map(|(_, key)| (*key).clone())
        .collect();
    keys.into_iter()
        .filter_map(|key| waiting.remove_entry(&key))
        .collect()
}

#[cfg(test)]
mod tests;
