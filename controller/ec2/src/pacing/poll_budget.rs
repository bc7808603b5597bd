//! How fast a poller may send: bursts immediately, half of the Describe refill over time, and more
//! slowly while EC2 fails.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::time::Instant;

use crate::action::Rate;

/// The share of the action's refill that pollers use over time. Saved tokens come on top; share and
/// saved tokens together stay below half.
const REFILL_SHARE: f64 = 0.49;
/// The total lateness of watchers, in seconds, that makes a call worthwhile while the budget is
/// full.
const MIN_WORTHWHILE_LATENESS: f64 = 0.001;
/// The part of the budget whose use doubles that lateness.
const DOUBLING_SHARE: f64 = 0.1;
/// Calls of the budget that are kept for looks of new waiters.
const RESERVED_FOR_LOOKS: f64 = 5.0;
/// Calls closer together than this would bring the same answers.
const MIN_GAP: Duration = Duration::from_millis(10);

/// Failures further apart than this do not belong to one outage.
const OUTAGE_GAP: Duration = Duration::from_secs(30);

/// What the pollers of one action may send together.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: f64,
    refill: f64,
    remaining: Mutex<Remaining>,
}

#[derive(Clone, Copy, Debug)]
struct Remaining {
    level: f64,
    counted: Instant,
}

impl Budget {
    /// Creates a budget of a third of the action's bucket at once, at least 10 calls, and half of
    /// its refill over time.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        let capacity = (rate.capacity / 3.0).max(2.0 * RESERVED_FOR_LOOKS);
        Self {
            capacity,
            refill: rate.refill * REFILL_SHARE,
            remaining: Mutex::new(Remaining { level: capacity, counted: now }),
        }
    }

    fn remaining(&self, now: Instant) -> MutexGuard<'_, Remaining> {
        let mut remaining = lock(&self.remaining);
        remaining.level = self.level(*remaining, now);
        remaining.counted = remaining.counted.max(now);
        remaining
    }

    fn level(&self, remaining: Remaining, at: Instant) -> f64 {
        let elapsed = at.saturating_duration_since(remaining.counted).as_secs_f64();
        (remaining.level + elapsed * self.refill).min(self.capacity)
    }
}

/// When one poller may send, from the shared budget and the poller's own failures.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    budget: Arc<Budget>,
    not_before: Instant,
    failures: u32,
    last_failure: Instant,
}

impl Pace {
    pub(crate) fn new(budget: Arc<Budget>, now: Instant) -> Self {
        Self { budget, not_before: now, failures: 0, last_failure: now }
    }

    /// Returns when the next call may be sent. `urgent` says that the call is for a caller that has
    /// had no answer yet.
    pub(crate) fn next_call(&self, now: Instant, urgent: bool) -> Instant {
        let needed = if urgent { 1.0 } else { 1.0 + RESERVED_FOR_LOOKS };
        let lacking = (needed - self.budget.remaining(now).level).max(0.0);
        let wait = Duration::from_secs_f64((lacking / self.budget.refill * 1000.0).ceil() / 1000.0);
        (now + wait).max(self.not_before)
    }

    /// Returns the total lateness of watchers, in seconds, that makes a call worthwhile at that
    /// time: little while the budget is full.
    pub(crate) fn worthwhile_lateness(&self, at: Instant) -> f64 {
        let remaining = *lock(&self.budget.remaining);
        let level = self.budget.level(remaining, at);
        MIN_WORTHWHILE_LATENESS * ((1.0 - level / self.budget.capacity) / DOUBLING_SHARE).exp2()
    }

    /// Notes that a call is sent. The next call follows after `gap` at the earliest.
    pub(crate) fn note_sent(&mut self, now: Instant, gap: Duration) {
        self.budget.remaining(now).level -= 1.0;
        self.not_before = self.not_before.max(now + gap.max(MIN_GAP));
    }

    pub(crate) fn note_answered(&mut self) {
        self.failures = 0;
    }

    /// Notes that a call failed. Returns how many have failed in a row.
    pub(crate) fn note_failed(&mut self, now: Instant) -> u32 {
        if now.duration_since(self.last_failure) > OUTAGE_GAP {
            self.failures = 0;
        }
        self.last_failure = now;
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    pub(crate) fn hold_until(&mut self, at: Instant) {
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
            now = pace.next_call(now, urgent);
            if now - start > span {
                return calls;
            }
            pace.note_sent(now, MIN_GAP);
            calls += 1;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_poller_sends_at_once() {
        let now = Instant::now();
        assert_eq!(pace(now).next_call(now, false), now);
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
        while one.next_call(now, true) == now {
            one.note_sent(now, Duration::ZERO);
            one.not_before = now;
        }
        assert!(two.next_call(now, true) > now);
        one.hold_until(now + Duration::from_secs(9));
        assert!(two.next_call(now, true) < now + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_polls_leave_5_calls_for_new_waiters() {
        let mut now = Instant::now();
        let mut pace = pace(now);
        for _ in 0..1000 {
            now = pace.next_call(now, false);
            pace.note_sent(now, MIN_GAP);
        }
        for _ in 0..5 {
            now += MIN_GAP;
            assert_eq!(pace.next_call(now, true), now);
            pace.note_sent(now, MIN_GAP);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_worth_rises_as_tokens_run_low() {
        let now = Instant::now();
        let mut pace = pace(now);
        let full = pace.worthwhile_lateness(now);
        for _ in 0..10 {
            pace.note_sent(now, MIN_GAP);
        }
        let fewer = pace.worthwhile_lateness(now);
        assert!(fewer > 4.0 * full, "{full} {fewer}");
        assert!(pace.worthwhile_lateness(now + Duration::from_secs(1)) < fewer);
        assert_eq!(pace.worthwhile_lateness(now + Duration::from_secs(60)), full);
    }

    /// Failures more than 30 seconds apart do not count as one outage.
    #[tokio::test(start_paused = true)]
    async fn hold_delays_calls_and_answer_resets_failures() {
        let now = Instant::now();
        let mut pace = pace(now);
        assert_eq!((pace.note_failed(now), pace.note_failed(now)), (1, 2));
        let later = now + Duration::from_secs(1);
        pace.hold_until(later);
        assert_eq!(pace.next_call(now, true), later);
        pace.note_answered();
        assert_eq!(pace.note_failed(later), 1);
        assert_eq!(pace.note_failed(later), 2);
        assert_eq!(pace.note_failed(later + OUTAGE_GAP * 2), 1);
    }
}
