//! How fast a poller may send: bursts immediately, half of the Describe refill over time, and more
//! slowly while EC2 fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ec2::action::Rate;

/// The share of the action's refill that pollers use over time. Saved tokens come on top; share and
/// saved tokens together stay below half.
const SHARE: f64 = 0.49;
/// The total lateness of watchers, in seconds, that makes a call worthwhile while the budget is
/// full.
const LEAST_WORTH: f64 = 0.001;
/// The part of the budget whose use doubles that lateness.
const DOUBLING: f64 = 0.1;
/// Calls of the budget that are kept for looks of new waiters.
const KEPT_FOR_NEW: f64 = 5.0;
/// Calls closer together than this would bring the same answers.
const LEAST_GAP: Duration = Duration::from_millis(10);

/// Failures further apart than this do not belong to one outage.
const MEMORY: Duration = Duration::from_secs(30);

/// What the pollers of one action may send together.
#[derive(Debug)]
pub(in crate::ec2) struct Budget {
    capacity: f64,
    refill: f64,
    left: Mutex<Left>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    level: f64,
    counted: Instant,
}

impl Budget {
    /// Creates a budget of a third of the action's bucket at once, at least 10 calls, and half of
    /// its refill over time.
    pub(in crate::ec2) fn new(rate: Rate, now: Instant) -> Self {
        let capacity = (rate.capacity / 3.0).max(2.0 * KEPT_FOR_NEW);
        Self {
            capacity,
            refill: rate.refill * SHARE,
            left: Mutex::new(Left { level: capacity, counted: now }),
        }
    }

    fn left(&self, now: Instant) -> MutexGuard<'_, Left> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.level = self.level(*left, now);
        left.counted = left.counted.max(now);
        left
    }

    fn level(&self, left: Left, at: Instant) -> f64 {
        let elapsed = at.saturating_duration_since(left.counted).as_secs_f64();
        (left.level + elapsed * self.refill).min(self.capacity)
    }
}

/// When one poller may send, from the shared budget and the poller's own failures.
#[derive(Clone, Debug)]
pub(in crate::ec2) struct Pace {
    budget: Arc<Budget>,
    not_before: Instant,
    failures: u32,
    failed: Instant,
}

impl Pace {
    /// Creates the pace of a poller that has sent nothing.
    pub(in crate::ec2) fn new(budget: Arc<Budget>, now: Instant) -> Self {
        Self { budget, not_before: now, failures: 0, failed: now }
    }

    /// Returns when the next call may be sent. `urgent` says that the call is for a caller that has
    /// had no answer yet.
    pub(in crate::ec2) fn next(&self, now: Instant, urgent: bool) -> Instant {
        let needed = if urgent { 1.0 } else { 1.0 + KEPT_FOR_NEW };
        let lacking = (needed - self.budget.left(now).level).max(0.0);
        let wait = Duration::from_secs_f64((lacking / self.budget.refill * 1000.0).ceil() / 1000.0);
        (now + wait).max(self.not_before)
    }

    /// Returns the total lateness of watchers, in seconds, that makes a call worthwhile at that
    /// time: little while the budget is full.
    pub(in crate::ec2) fn worth(&self, at: Instant) -> f64 {
        let left = *self.budget.left.lock().unwrap_or_else(PoisonError::into_inner);
        let level = self.budget.level(left, at);
        LEAST_WORTH * ((1.0 - level / self.budget.capacity) / DOUBLING).exp2()
    }

    /// Notes that a call is sent. The next call follows after `apart` at the earliest.
    pub(in crate::ec2) fn sent(&mut self, now: Instant, apart: Duration) {
        self.budget.left(now).level -= 1.0;
        self.not_before = self.not_before.max(now + apart.max(LEAST_GAP));
    }

    /// Notes that a call was answered.
    pub(in crate::ec2) fn answered(&mut self) {
        self.failures = 0;
    }

    /// Notes that a call failed. Returns how many have failed in a row.
    pub(in crate::ec2) fn failed(&mut self, now: Instant) -> u32 {
        if now.duration_since(self.failed) > MEMORY {
            self.failures = 0;
        }
        self.failed = now;
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// Holds back all calls until `at`.
    pub(in crate::ec2) fn hold_until(&mut self, at: Instant) {
        self.not_before = self.not_before.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIBE: Rate = Rate { capacity: 100.0, refill: 20.0 };

    fn pace(now: Instant) -> Pace {
        Pace::new(Arc::new(Budget::new(DESCRIBE, now)), now)
    }

    fn calls_within(span: Duration, urgent: bool) -> usize {
        let start = Instant::now();
        let mut now = start;
        let mut pace = pace(now);
        let mut calls = 0;
        loop {
            now = pace.next(now, urgent);
            if now - start > span {
                return calls;
            }
            pace.sent(now, LEAST_GAP);
            calls += 1;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_poller_sends_at_once() {
        let now = Instant::now();
        assert_eq!(pace(now).next(now, false), now);
    }

    #[tokio::test(start_paused = true)]
    async fn sustained_polling_takes_at_most_half_of_refill() {
        let calls = calls_within(Duration::from_secs(600), true);
        assert!((5850..=6000).contains(&calls), "{calls}");
    }

    #[tokio::test(start_paused = true)]
    async fn pollers_of_one_action_share_its_budget() {
        let now = Instant::now();
        let mut one = pace(now);
        let two = Pace::new(Arc::clone(&one.budget), now);
        while one.next(now, true) == now {
            one.sent(now, Duration::ZERO);
            one.not_before = now;
        }
        assert!(two.next(now, true) > now);
        one.hold_until(now + Duration::from_secs(9));
        assert!(two.next(now, true) < now + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_polls_leave_5_calls_for_new_waiters() {
        let mut now = Instant::now();
        let mut pace = pace(now);
        for _ in 0..1000 {
            now = pace.next(now, false);
            pace.sent(now, LEAST_GAP);
        }
        for _ in 0..5 {
            now += LEAST_GAP;
            assert_eq!(pace.next(now, true), now);
            pace.sent(now, LEAST_GAP);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_worth_rises_as_tokens_run_low() {
        let now = Instant::now();
        let mut pace = pace(now);
        let full = pace.worth(now);
        for _ in 0..10 {
            pace.sent(now, LEAST_GAP);
        }
        let fewer = pace.worth(now);
        assert!(fewer > 4.0 * full, "{full} {fewer}");
        assert!(pace.worth(now + Duration::from_secs(1)) < fewer);
        assert_eq!(pace.worth(now + Duration::from_secs(60)), full);
    }

    /// Failures more than 30 seconds apart do not count as one outage.
    #[tokio::test(start_paused = true)]
    async fn hold_delays_calls_and_answer_resets_failures() {
        let now = Instant::now();
        let mut pace = pace(now);
        assert_eq!((pace.failed(now), pace.failed(now)), (1, 2));
        let later = now + Duration::from_secs(1);
        pace.hold_until(later);
        assert_eq!(pace.next(now, true), later);
        pace.answered();
        assert_eq!(pace.failed(later), 1);
        assert_eq!(pace.failed(later), 2);
        assert_eq!(pace.failed(later + MEMORY * 2), 1);
    }
}
