//! The queue of one action: first come, first served, behind the action's bucket.
//!
//! Each action has its own lane, with its own tokens and its own limit of calls under way, so that
//! five hundred waiting detaches do not hold up one attach. A call that EC2 throttled returns to
//! its former place. [`Queue`] is the pure rule; [`Lane`] lets tasks wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bucket::{Bucket, CallOutcome, Ceiling, Token};
use crate::action::Rate;
use crate::calls::Action;
use crate::error::Ec2Error;

/// How near a turn must be before the caller reads the facts for its change: the facts are then
/// fresh when the change is sent, and callers whose turns follow each other share one read.
pub(crate) const NEAR_TURN: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Send now, with this token.
    Go(Token),
    /// At the head, but the bucket is empty until this time.
    At(Instant),
    /// Other callers are before this one, or too many calls are under way.
    Behind,
}

#[derive(Debug)]
struct Waiter {
    wake: Arc<Notify>,
    since: Instant,
}

/// The rule that decides who may send, and when.
#[derive(Debug)]
struct Queue {
    bucket: Bucket,
    waiting: BTreeMap<u64, Waiter>,
    /// Places whose turn is not near yet.
    distant: BTreeMap<u64, Arc<Notify>>,
    /// Places whose turn is near and has not come.
    near: BTreeSet<u64>,
    under_way: usize,
    max_under_way: usize,
    next_ticket: u64,
}

impl Queue {
    fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    fn take_turn(&mut self, now: Instant, ticket: u64) -> Turn {
        let first = self.waiting.first_key_value().is_none_or(|(head, _)| ticket <= *head);
        if !first || self.under_way >= self.max_under_way {
            return Turn::Behind;
        }
        match self.bucket.take(now) {
            Ok(token) => {
                self.under_way += 1;
                Turn::Go(token)
            }
            Err(at) => Turn::At(at),
        }
    }

    /// Returns when the turn will come, if that is near. Otherwise returns when to ask again, if
    /// nothing else happens before; `None` while another place is ahead.
    fn mark_near(&mut self, now: Instant, ticket: u64) -> Result<Instant, Option<Instant>> {
        let head = self.distant.first_key_value();
        if head.is_some_and(|(head, _)| *head < ticket) {
            return Err(None);
        }
        let before = self.near.len().max(self.waiting.len());
        let wait = self.bucket.wait_for(before + 1, now);
        if wait > NEAR_TURN {
            return Err(Some(now + (wait - NEAR_TURN)));
        }
        self.distant.remove(&ticket);
        self.near.insert(ticket);
        self.wake_first_distant();
        Ok(now + wait)
    }

    /// Returns how long a caller that joins now waits for its turn, if nobody leaves the queue.
    fn estimated_wait(&mut self, now: Instant) -> Duration {
        let before = self.distant.len() + self.near.len().max(self.waiting.len());
        self.bucket.wait_for(before + 1, now)
    }

    fn wake_head(&self) {
        if let Some((_, head)) = self.waiting.first_key_value() {
            head.wake.notify_one();
        }
    }

    fn wake_first_distant(&self) {
        if let Some((_, head)) = self.distant.first_key_value() {
            head.notify_one();
        }
    }

    /// Removes a place whose turn has come or is not waited for any more.
    fn remove(&mut self, ticket: u64) {
        let was_coming = self.distant.remove(&ticket).is_some();
        if self.near.remove(&ticket) || was_coming {
            self.wake_first_distant();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    action: Action,
    queue: Mutex<Queue>,
}

impl Lane {
    pub(crate) fn new(
        action: Action,
        rate: Rate,
        ceiling: Ceiling,
        max_under_way: usize,
        now: Instant,
    ) -> Self {
        Self {
            action,
            queue: Mutex::new(Queue {
                bucket: Bucket::new(rate, ceiling, now),
                waiting: BTreeMap::new(),
                distant: BTreeMap::new(),
                near: BTreeSet::new(),
                under_way: 0,
                max_under_way: max_under_way.max(1),
                next_ticket: 0,
            }),
        }
    }

    /// Takes a place in the queue, which is kept until the place is dropped.
    pub(crate) fn take_place(self: &Arc<Self>) -> QueuePlace {
        let ticket = lock(&self.queue).take_ticket();
        QueuePlace { lane: Arc::clone(self), ticket, since: Instant::now() }
    }

    pub(crate) fn last_throttle(&self) -> Option<Instant> {
        lock(&self.queue).bucket.last_throttle()
    }

    pub(crate) fn level(&self, now: Instant) -> LaneLevel {
        let mut queue = lock(&self.queue);
        LaneLevel {
            tokens: queue.bucket.level(now),
            refill: queue.bucket.refill(),
            waiting: queue.waiting.len() + queue.distant.len(),
            oldest: queue
                .waiting
                .first_key_value()
                .map_or(Duration::ZERO, |(_, head)| now.duration_since(head.since)),
            under_way: queue.under_way,
        }
    }
}

#[derive(Debug)]
pub(crate) struct QueuePlace {
    lane: Arc<Lane>,
    ticket: u64,
    since: Instant,
}

impl QueuePlace {
    pub(crate) fn action(&self) -> Action {
        self.lane.action
    }

    /// Returns how long the turn is away for a caller that has just joined.
    pub(crate) fn estimated_wait(&self) -> Duration {
        lock(&self.lane.queue).estimated_wait(Instant::now())
    }

    /// Waits until the turn is near. Returns when the turn will come.
    pub(crate) async fn wait_until_near(&self, deadline: Instant) -> Result<Instant, Ec2Error> {
        let wake = Arc::new(Notify::new());
        loop {
            let now = Instant::now();
            let until = {
                let mut queue = lock(&self.lane.queue);
                match queue.mark_near(now, self.ticket) {
                    Ok(at) => return Ok(at),
                    Err(until) => {
                        queue.distant.entry(self.ticket).or_insert_with(|| Arc::clone(&wake));
                        until.map_or(deadline, |until| until.min(deadline))
                    }
                }
            };
            self.sleep(&wake, now, until, deadline).await?;
        }
    }

    /// Sleeps until a wake-up or the time `until`.
    async fn sleep(
        &self,
        wake: &Notify,
        now: Instant,
        until: Instant,
        deadline: Instant,
    ) -> Result<(), Ec2Error> {
        if now >= deadline {
            let what = "its turn within EC2's request rate";
            return Err(Ec2Error::deadline_passed(self.lane.action, what));
        }
        tokio::select! {
            // A fixed order instead of a random one, so that a seeded history replays exactly.
            biased;
            () = wake.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
        Ok(())
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// [`Ec2ErrorKind::Deadline`](crate::Ec2ErrorKind::Deadline) when the turn does not come
    /// before the deadline.
    pub(crate) async fn wait_for_turn(&self, deadline: Instant) -> Result<CallPermit, Ec2Error> {
        let wake = Arc::new(Notify::new());
        let mut entry = QueueEntry { place: self, is_listed: false };
        loop {
            let now = Instant::now();
            let turn = {
                let mut queue = lock(&self.lane.queue);
                let turn = queue.take_turn(now, self.ticket);
                match turn {
                    Turn::Go(_) => {
                        if entry.is_listed {
                            queue.waiting.remove(&self.ticket);
                            entry.is_listed = false;
                        }
                        queue.remove(self.ticket);
                        queue.wake_head();
                    }
                    _ if !entry.is_listed => {
                        queue.waiting.insert(
                            self.ticket,
                            Waiter { wake: Arc::clone(&wake), since: self.since },
                        );
                        entry.is_listed = true;
                    }
                    _ => {}
                }
                turn
            };
            let until = match turn {
                Turn::Go(token) => {
                    return Ok(CallPermit {
                        lane: Arc::clone(&self.lane),
                        sent: now,
                        token,
                        outcome: CallOutcome::Unknown,
                    });
                }
                Turn::At(at) => at.min(deadline),
                Turn::Behind => deadline,
            };
            self.sleep(&wake, now, until, deadline).await?;
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        lock(&self.lane.queue).remove(self.ticket);
    }
}

/// Removes the waiter from the queue when the waiting task gives up.
struct QueueEntry<'p> {
    place: &'p QueuePlace,
    is_listed: bool,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        if self.is_listed {
            let mut queue = lock(&self.place.lane.queue);
            queue.waiting.remove(&self.place.ticket);
            queue.wake_head();
        }
    }
}

/// The right to have one call under way. Drop it when the call has ended.
#[derive(Debug)]
pub(crate) struct CallPermit {
    lane: Arc<Lane>,
    sent: Instant,
    token: Token,
    outcome: CallOutcome,
}

impl CallPermit {
    /// Notes how the call ended. A permit that is only dropped counts as a call without an answer.
    pub(crate) fn end(mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut queue = lock(&self.lane.queue);
        queue.under_way -= 1;
        let (sent, token) = (self.sent, self.token);
        queue.bucket.note_end(Instant::now(), sent, token, self.outcome);
        queue.wake_head();
    }
}

/// How full a lane is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneLevel {
    /// Tokens in the bucket.
    pub tokens: f64,
    /// The estimated refill in tokens per second.
    pub refill: f64,
    /// Calls that wait.
    pub waiting: usize,
    /// How long the caller at the head has waited since it joined.
    pub oldest: Duration,
    /// Calls under way.
    pub under_way: usize,
}

#[cfg(test)]
mod tests;
