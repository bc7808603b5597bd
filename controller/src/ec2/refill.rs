//! How fast a bucket of EC2's refills, learned from what EC2 accepts and what it throttles.
//!
//! Accounts have raised limits, and others use the same bucket, so no configured number is true for long. The estimate begins at the documented
//! one. Between two throttled calls the bucket was empty twice: what EC2 accepted in between is what flowed back. After a throttled call the
//! estimate is held for a while, then it rises while calls wait, until EC2 throttles again. ADR 23 compares this with TCP's CUBIC.

use std::time::Duration;

use tokio::time::Instant;

use super::action::Rate;

/// The estimate is never less than this part of the first one, so that it rises again by itself.
const LEAST_PART: f64 = 0.05;
/// After a throttled call the estimate is held so long,
const HOLD: Duration = Duration::from_secs(15);
/// twice as long each time that rising has found nothing, up to this.
const LONGEST_HOLD: Duration = Duration::from_secs(120);
/// A rise by this factor has found something.
const FOUND: f64 = 1.25;
/// Rising, the estimate grows by a factor of e in so many seconds,
const RISE_SECONDS: f64 = 8.0;
/// or from nothing to the first one in so many, whichever is faster.
const RECOVERY_SECONDS: f64 = 20.0;
/// A measurement begins with so many calls at the former estimate: two throttled calls close to each other measure nothing.
const PRIOR_CALLS: f64 = 4.0;

/// An estimate of a refill.
#[derive(Clone, Debug)]
pub(super) struct Refill {
    first: f64,
    most: f64,
    per_second: f64,
    /// What the last lesson left.
    learned: f64,
    hold: Duration,
    held_until: Instant,
    lesson: Option<Instant>,
    /// Calls accepted since the last lesson; `None` once the bucket may have been full, which hides what flowed back.
    accepted: Option<u32>,
}

impl Refill {
    /// Begins at `first` calls a second and stays at or below `most`.
    pub(super) fn new(first: f64, most: f64, now: Instant) -> Self {
        let first = first.min(most);
        Self {
            first,
            most,
            per_second: first,
            learned: first,
            hold: HOLD,
            held_until: now,
            lesson: None,
            accepted: None,
        }
    }

    /// Calls per second.
    pub(super) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// When EC2 last throttled a call.
    pub(super) fn lesson(&self) -> Option<Instant> {
        self.lesson
    }

    /// Time has passed up to `now`; `wanted` when calls waited for it.
    pub(super) fn pass(&mut self, elapsed: Duration, now: Instant, wanted: bool) {
        if self.lesson.is_none() {
            return;
        }
        let rising = now.saturating_duration_since(self.held_until).min(elapsed);
        let slope = (self.first / RECOVERY_SECONDS).max(self.per_second / RISE_SECONDS);
        let risen = self.per_second + slope * rising.as_secs_f64();
        // Calls that nobody makes prove nothing: a lower estimate is forgotten with time, a higher one is not made up.
        let most = if wanted { self.most } else { self.first };
        if self.per_second < most {
            self.per_second = risen.min(most);
        }
    }

    /// EC2 accepted a call.
    pub(super) fn accepted(&mut self) {
        if let Some(accepted) = &mut self.accepted {
            *accepted = accepted.saturating_add(1);
        }
    }

    /// Nobody took what flowed back.
    pub(super) fn unused(&mut self) {
        self.accepted = None;
    }

    /// EC2 throttled a call that was sent at `sent`: the bucket is empty. `given` is what EC2 was seen to accept since the bucket was full, when
    /// calls went beyond what the bucket was thought to hold. Answers `false` when an earlier throttled call has said the same.
    pub(super) fn throttled(
        &mut self,
        now: Instant,
        sent: Instant,
        rate: Rate,
        given: Option<Given>,
    ) -> bool {
        // One empty bucket throttles all calls that are under way: that is one lesson, not many.
        if self.lesson.is_some_and(|last| sent <= last) {
            return false;
        }
        match (self.lesson, self.accepted) {
            (Some(last), Some(accepted)) => {
                let seconds = now.duration_since(last).as_secs_f64();
                let measured =
                    (f64::from(accepted) + PRIOR_CALLS) / (seconds + PRIOR_CALLS / self.per_second);
                self.per_second = measured
                    .clamp(self.per_second / 2.0, self.per_second)
                    .max(self.first * LEAST_PART);
            }
            _ => {
                if let Some(given) = given {
                    let raised = self.first * given.times(rate);
                    self.per_second = self.per_second.max(raised).min(self.most);
                }
            }
        }
        let is_known = self.lesson.is_some() && self.per_second >= 0.9 * self.first;
        self.hold = match is_known && self.per_second < FOUND * self.learned {
            true => (self.hold * 2).min(LONGEST_HOLD),
            false => HOLD,
        };
        self.learned = self.per_second;
        self.held_until = now + self.hold;
        self.lesson = Some(now);
        self.accepted = Some(0);
        true
    }
}

/// What EC2 accepted from a bucket that was full at first and empty at last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) calls: u32,
    pub(super) within: Duration,
}

impl Given {
    /// How many times what `rate` would have given: AWS raises capacity and refill alike more often than one of them, and the next lessons correct
    /// it where only one was raised.
    fn times(self, rate: Rate) -> f64 {
        f64::from(self.calls) / (rate.capacity + rate.refill * self.within.as_secs_f64())
    }
}
