//! The queue of one action: first come, first served, behind its bucket.
//!
//! Each action has a lane of its own, with its own tokens and its own limit of calls under way, so that five hundred detaches that wait
//! do not hold up one attach. A call that EC2 throttled goes back to the place that it had. [`Line`] is the pure rule; [`Lane`] lets tasks wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::action::{Action, Rate};
use super::bucket::Bucket;
use super::error::Ec2Error;

/// What one who waits learns.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Send now.
    Go,
    /// At the head, but the bucket is empty until then.
    At(Instant),
    /// Others are before, or too many calls are under way.
    Behind,
}

/// One who waits.
#[derive(Debug)]
struct Waiter {
    wake: Arc<Notify>,
    since: Instant,
}

/// The rule: who may send when.
#[derive(Debug)]
struct Line {
    bucket: Bucket,
    waiting: BTreeMap<u64, Waiter>,
    under_way: usize,
    most_under_way: usize,
    next_ticket: u64,
}

impl Line {
    fn join(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    fn turn(&mut self, now: Instant, ticket: u64) -> Turn {
        let first = self
            .waiting
            .first_key_value()
            .is_none_or(|(head, _)| ticket <= *head);
        if !first || self.under_way >= self.most_under_way {
            return Turn::Behind;
        }
        match self.bucket.take(now) {
            Ok(()) => {
                self.under_way += 1;
                Turn::Go
            }
            Err(at) => Turn::At(at),
        }
    }

    fn wake_head(&self) {
        if let Some((_, head)) = self.waiting.first_key_value() {
            head.wake.notify_one();
        }
    }
}

/// The lane of one action.
#[derive(Debug)]
pub(super) struct Lane {
    action: Action,
    line: Mutex<Line>,
}

/// How full a lane is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneLevel {
    /// Tokens in the bucket.
    pub tokens: f64,
    /// Tokens per second that are thought to flow back.
    pub refill: f64,
    /// Calls that wait.
    pub waiting: usize,
    /// How long the one at the head has waited since it joined.
    pub oldest: Duration,
    /// Calls under way.
    pub under_way: usize,
}

impl Lane {
    pub(super) fn new(action: Action, rate: Rate, most_under_way: usize, now: Instant) -> Self {
        Self {
            action,
            line: Mutex::new(Line {
                bucket: Bucket::new(rate, now),
                waiting: BTreeMap::new(),
                under_way: 0,
                most_under_way: most_under_way.max(1),
                next_ticket: 0,
            }),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing panics while it holds the lock; if something did, the numbers are still good.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the queue, kept until it is dropped.
    pub(super) fn place(&self) -> Place<'_> {
        let ticket = self.line().join();
        Place {
            lane: self,
            ticket,
            since: Instant::now(),
        }
    }

    pub(super) fn level(&self, now: Instant) -> LaneLevel {
        let mut line = self.line();
        LaneLevel {
            tokens: line.bucket.level(now),
            refill: line.bucket.refill(),
            waiting: line.waiting.len(),
            oldest: line
                .waiting
                .first_key_value()
                .map_or(Duration::ZERO, |(_, head)| now.duration_since(head.since)),
            under_way: line.under_way,
        }
    }
}

/// A place in a lane's queue.
#[derive(Debug)]
pub(super) struct Place<'a> {
    lane: &'a Lane,
    ticket: u64,
    since: Instant,
}

impl<'a> Place<'a> {
    /// Waits for the turn.
    ///
    /// # Errors
    /// [`Ec2ErrorKind::Deadline`](super::Ec2ErrorKind::Deadline) when it does not come by then.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<Pass<'a>, Ec2Error> {
        let wake = Arc::new(Notify::new());
        let mut waiting = Waiting {
            place: self,
            listed: false,
        };
        loop {
            let now = Instant::now();
            let turn = {
                let mut line = self.lane.line();
                let turn = line.turn(now, self.ticket);
                match turn {
                    Turn::Go => {
                        if waiting.listed {
                            line.waiting.remove(&self.ticket);
                            waiting.listed = false;
                        }
                        line.wake_head();
                    }
                    _ if !waiting.listed => {
                        line.waiting.insert(
                            self.ticket,
                            Waiter {
                                wake: Arc::clone(&wake),
                                since: self.since,
                            },
                        );
                        waiting.listed = true;
                    }
                    _ => {}
                }
                turn
            };
            let until = match turn {
                Turn::Go => {
                    return Ok(Pass {
                        lane: self.lane,
                        sent: now,
                        throttled: false,
                    });
                }
                Turn::At(at) => at.min(deadline),
                Turn::Behind => deadline,
            };
            if now >= deadline {
                return Err(Ec2Error::deadline(
                    self.lane.action,
                    "its turn within EC2's request rate",
                ));
            }
            tokio::select! {
                // In this order, not at random: a seeded history replays exactly.
                biased;
                () = wake.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

/// Leaves the queue when the waiting task gives up.
struct Waiting<'p, 'a> {
    place: &'p Place<'a>,
    listed: bool,
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        if self.listed {
            let mut line = self.place.lane.line();
            line.waiting.remove(&self.place.ticket);
            line.wake_head();
        }
    }
}

/// The right to have one call under way; dropped when the call has ended.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    lane: &'a Lane,
    sent: Instant,
    throttled: bool,
}

impl Pass<'_> {
    /// EC2 answered this call with a throttle.
    pub(super) fn throttled(&mut self) {
        self.throttled = true;
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut line = self.lane.line();
        line.under_way -= 1;
        if self.throttled {
            line.bucket.throttled(Instant::now(), self.sent);
        }
        line.wake_head();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lane(capacity: f64, refill: f64, most: usize) -> Arc<Lane> {
        Arc::new(Lane::new(
            Action::AttachVolume,
            Rate { capacity, refill },
            most,
            Instant::now(),
        ))
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    async fn settle() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_the_order_of_arrival_at_the_rate_of_the_bucket() {
        let lane = lane(4.0, 1.0, 100);
        let start = Instant::now();
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..20u64 {
            let (lane, told) = (Arc::clone(&lane), told.clone());
            tokio::spawn(async move {
                let place = lane.place();
                let pass = place.turn(far()).await.unwrap();
                told.send((n, start.elapsed().as_secs_f64())).unwrap();
                drop(pass);
            });
            settle().await;
        }
        drop(told);
        let mut seen = Vec::new();
        while let Some(entry) = order.recv().await {
            seen.push(entry);
        }
        assert_eq!(
            seen.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
            (0..20).collect::<Vec<_>>()
        );
        // 3 at once (4 less the reserve of 1), then one each second.
        assert!((seen[19].1 - 17.0).abs() < 0.1, "{seen:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_are_under_way_than_allowed() {
        let lane = lane(1000.0, 100.0, 2);
        let (first, second) = (lane.place(), lane.place());
        let held = first.turn(far()).await.unwrap();
        let _also = second.turn(far()).await.unwrap();
        let third = lane.place();
        let late = third.turn(Instant::now() + Duration::from_secs(1)).await;
        assert!(late.is_err());
        drop(held);
        assert!(third.turn(far()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_gives_up_holds_nobody_up() {
        let lane = lane(4.0, 1.0, 100);
        for _ in 0..3 {
            drop(lane.place().turn(far()).await.unwrap());
        }
        let impatient = {
            let lane = Arc::clone(&lane);
            tokio::spawn(async move { lane.place().turn(far()).await.map(drop) })
        };
        settle().await;
        let patient = {
            let lane = Arc::clone(&lane);
            tokio::spawn(async move { lane.place().turn(far()).await.map(drop) })
        };
        settle().await;
        let start = Instant::now();
        impatient.abort();
        patient.await.unwrap().unwrap();
        assert!(
            start.elapsed() <= Duration::from_millis(1100),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(lane.level(Instant::now()).waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_call_keeps_its_place() {
        let lane = lane(4.0, 1.0, 100);
        let early = lane.place();
        let mut pass = early.turn(far()).await.unwrap();
        let later = {
            let lane = Arc::clone(&lane);
            let _ = lane.place();
            tokio::spawn(async move {
                let place = lane.place();
                // Tokens are left, so this one passes at once.
                place.turn(far()).await.map(drop)
            })
        };
        later.await.unwrap().unwrap();
        pass.throttled();
        drop(pass);
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        {
            let (lane, told) = (Arc::clone(&lane), told.clone());
            tokio::spawn(async move {
                let place = lane.place();
                let _pass = place.turn(far()).await.unwrap();
                told.send("newcomer").unwrap();
            });
        }
        settle().await;
        let again = async {
            let _pass = early.turn(far()).await.unwrap();
            told.send("throttled").unwrap();
        };
        again.await;
        assert_eq!(order.recv().await, Some("throttled"));
        assert_eq!(order.recv().await, Some("newcomer"));
    }
}
