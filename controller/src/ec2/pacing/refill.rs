//! How fast a bucket of EC2's refills, learned from what EC2 accepts and what it throttles.
//!
//! Accounts have raised limits, and other clients use the same bucket, so no configured number
//! stays right. The estimate begins at the documented rate. At each of two throttled calls the
//! bucket was empty, so the calls that EC2 accepted in between are what was refilled. After a
//! throttled call the estimate is held for a while, then it rises while calls wait, until EC2
//! throttles again. ADR 23 compares this with TCP's CUBIC.

use std::time::Duration;

use tokio::time::Instant;

use crate::ec2::action::Rate;

/// The least estimate, as a part of the first one, so that the estimate can always rise again.
const LEAST_PART: f64 = 0.05;
/// How long the estimate is held after a throttled call.
const HOLD: Duration = Duration::from_secs(15);
/// The longest hold. The hold doubles each time that a rise ended without a gain.
const LONGEST_HOLD: Duration = Duration::from_secs(120);
/// The factor from which a rise counts as a gain.
const FOUND: f64 = 1.25;
/// The seconds in which a rising estimate grows by a factor of e.
const RISE_SECONDS: f64 = 8.0;
/// The seconds in which the estimate rises from nothing to the first one, where that is faster.
const RECOVERY_SECONDS: f64 = 20.0;
/// Calls at the former estimate that a measurement begins with: two throttled calls close to each
/// other measure nothing.
const PRIOR_CALLS: f64 = 4.0;

/// An estimate of a refill rate.
#[derive(Clone, Debug)]
pub(in crate::ec2) struct Refill {
    first: f64,
    most: f64,
    per_second: f64,
    /// The estimate after the last lesson, which is a throttled call that counted.
    learned: f64,
    hold: Duration,
    held_until: Instant,
    lesson: Option<Instant>,
    /// Calls accepted since the last lesson; `None` once the bucket may have been full, because a
    /// full bucket loses its refill.
    accepted: Option<u32>,
}

impl Refill {
    /// Creates an estimate that begins at `first` calls per second and stays at or below `most`.
    pub(in crate::ec2) fn new(first: f64, most: f64, now: Instant) -> Self {
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

    /// Returns the estimate in calls per second.
    pub(in crate::ec2) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Returns when EC2 last throttled a call.
    pub(in crate::ec2) fn lesson(&self) -> Option<Instant> {
        self.lesson
    }

    /// Lets time pass up to `now`; `wanted` says whether calls waited for tokens meanwhile.
    pub(in crate::ec2) fn pass(&mut self, elapsed: Duration, now: Instant, wanted: bool) {
        if self.lesson.is_none() {
            return;
        }
        let rising = now.saturating_duration_since(self.held_until).min(elapsed);
        let slope = (self.first / RECOVERY_SECONDS).max(self.per_second / RISE_SECONDS);
        let risen = self.per_second + slope * rising.as_secs_f64();
        // Calls that nobody makes prove nothing: a lowered estimate recovers with time, but a
        // raised one needs waiting calls.
        let most = if wanted { self.most } else { self.first };
        if self.per_second < most {
            self.per_second = risen.min(most);
        }
    }

    /// Counts a call that EC2 accepted.
    pub(in crate::ec2) fn accepted(&mut self) {
        if let Some(accepted) = &mut self.accepted {
            *accepted = accepted.saturating_add(1);
        }
    }

    /// Notes that the bucket may have been full.
    pub(in crate::ec2) fn unused(&mut self) {
        self.accepted = None;
    }

    /// Learns from a throttled call that was sent at `sent`: the bucket is empty. `given` is what
    /// EC2 was seen to accept since the bucket was full, when calls went beyond the estimate.
    /// Returns `false` when an earlier throttled call has already shown the same.
    pub(in crate::ec2) fn throttled(
        &mut self,
        now: Instant,
        sent: Instant,
        rate: Rate,
        given: Option<Given>,
    ) -> bool {
        // One empty bucket throttles all calls that are under way: together they are one lesson.
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

/// The calls that EC2 accepted from a bucket that was full at the beginning and empty at the end.
#[derive(Clone, Copy, Debug)]
pub(in crate::ec2) struct Given {
    pub(in crate::ec2) calls: u32,
    pub(in crate::ec2) within: Duration,
}

impl Given {
    /// Returns the ratio of the accepted calls to those that `rate` would have allowed. The
    /// estimate is raised by this factor as if capacity and refill had both been raised, which AWS
    /// does more often than raising one of them; the next lessons correct the estimate where only
    /// one was raised.
    fn times(self, rate: Rate) -> f64 {
        f64::from(self.calls) / (rate.capacity + rate.refill * self.within.as_secs_f64())
    }
}
