//! How fast a bucket of EC2's refills, learned from what EC2 accepts and what it throttles.
//!
//! Accounts have raised limits, and other clients use the same bucket, so no configured number
//! stays right. The estimate begins at the documented rate. At each of two throttled calls the
//! bucket was empty, so the calls that EC2 accepted in between are what was refilled. After a
//! throttled call the estimate is held for a while, then it rises while calls wait, until EC2
//! throttles again. ADR 23 compares this with TCP's CUBIC.

use std::time::Duration;

use tokio::time::Instant;

use crate::action::Rate;

/// The lowest estimate, as a part of the initial one, so that the estimate can always rise again.
const MIN_SHARE: f64 = 0.05;
/// How long the estimate is held after a throttled call.
const HOLD: Duration = Duration::from_secs(15);
/// The longest hold. The hold doubles each time that a rise ended without a gain.
const MAX_HOLD: Duration = Duration::from_secs(120);
/// The factor from which a rise counts as a gain.
const GAIN: f64 = 1.25;
/// The seconds in which a rising estimate grows by a factor of e.
const RISE_SECONDS: f64 = 8.0;
/// The seconds in which the estimate rises from zero to the initial one, where that is faster.
const RECOVERY_SECONDS: f64 = 20.0;
/// Calls at the former estimate that a measurement begins with: two throttled calls close to each
/// other measure nothing.
const PRIOR_CALLS: f64 = 4.0;

#[derive(Clone, Debug)]
pub(crate) struct Refill {
    initial: f64,
    max: f64,
    per_second: f64,
    /// The estimate after the last throttled call that counted.
    learned: f64,
    hold: Duration,
    held_until: Instant,
    last_throttle: Option<Instant>,
    /// Calls accepted since the last throttled call that counted; `None` once the bucket may have
    /// been full, because a full bucket loses its refill.
    accepted: Option<u32>,
}

impl Refill {
    /// Creates an estimate that begins at `initial` calls per second and stays at or below `max`.
    pub(crate) fn new(initial: f64, max: f64, now: Instant) -> Self {
        let initial = initial.min(max);
        Self {
            initial,
            max,
            per_second: initial,
            learned: initial,
            hold: HOLD,
            held_until: now,
            last_throttle: None,
            accepted: None,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.per_second
    }

    pub(crate) fn last_throttle(&self) -> Option<Instant> {
        self.last_throttle
    }

    /// Advances the estimate to `now`; `is_wanted` says whether calls waited for tokens meanwhile.
    pub(crate) fn advance(&mut self, elapsed: Duration, now: Instant, is_wanted: bool) {
        if self.last_throttle.is_none() {
            return;
        }
        let rising = now.saturating_duration_since(self.held_until).min(elapsed);
        let slope = (self.initial / RECOVERY_SECONDS).max(self.per_second / RISE_SECONDS);
        let risen = self.per_second + slope * rising.as_secs_f64();
        // Calls that nobody makes prove nothing: a lowered estimate recovers with time, but a
        // raised one needs waiting calls.
        let max = if is_wanted { self.max } else { self.initial };
        if self.per_second < max {
            self.per_second = risen.min(max);
        }
    }

    pub(crate) fn note_accepted(&mut self) {
        if let Some(accepted) = &mut self.accepted {
            *accepted = accepted.saturating_add(1);
        }
    }

    /// Notes that the bucket may have been full.
    pub(crate) fn note_full(&mut self) {
        self.accepted = None;
    }

    /// Learns from a throttled call that was sent at `sent`: the bucket is empty. `since_full` is
    /// what EC2 was seen to accept since the bucket was full, when calls went beyond the estimate.
    /// Returns `false` when an earlier throttled call has already shown the same.
    pub(crate) fn note_throttled(
        &mut self,
        now: Instant,
        sent: Instant,
        rate: Rate,
        since_full: Option<AcceptedCalls>,
    ) -> bool {
        // One empty bucket throttles all calls that are under way: together they count once.
        if self.last_throttle.is_some_and(|last| sent <= last) {
            return false;
        }
        match (self.last_throttle, self.accepted) {
            (Some(last), Some(accepted)) => {
                let seconds = now.duration_since(last).as_secs_f64();
                let measured =
                    (f64::from(accepted) + PRIOR_CALLS) / (seconds + PRIOR_CALLS / self.per_second);
                self.per_second = measured
                    .clamp(self.per_second / 2.0, self.per_second)
                    .max(self.initial * MIN_SHARE);
            }
            _ => {
                if let Some(since_full) = since_full {
                    let raised = self.initial * since_full.ratio_to(rate);
                    self.per_second = self.per_second.max(raised).min(self.max);
                }
            }
        }
        let is_known = self.last_throttle.is_some() && self.per_second >= 0.9 * self.initial;
        self.hold = match is_known && self.per_second < GAIN * self.learned {
            true => (self.hold * 2).min(MAX_HOLD),
            false => HOLD,
        };
        self.learned = self.per_second;
        self.held_until = now + self.hold;
        self.last_throttle = Some(now);
        self.accepted = Some(0);
        true
    }
}

/// The calls that EC2 accepted from a bucket that was full at the beginning and empty at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedCalls {
    pub(crate) calls: u32,
    pub(crate) within: Duration,
}

impl AcceptedCalls {
    /// Returns the ratio of the accepted calls to those that `rate` would have allowed. The
    /// estimate is raised by this factor as if capacity and refill had both been raised, which AWS
    /// does more often than raising one of them; the next throttled calls correct the estimate
    /// where only one was raised.
    fn ratio_to(self, rate: Rate) -> f64 {
        f64::from(self.calls) / (rate.capacity + rate.refill * self.within.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { capacity: 50.0, refill: 5.0 };

    fn seconds(number: f64) -> Duration {
        Duration::from_secs_f64(number)
    }

    fn assert_near(refill: &Refill, expected: f64) {
        let found = refill.per_second();
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    /// An estimate after one throttled call, at `start`.
    fn throttled_once(start: Instant) -> Refill {
        let mut refill = Refill::new(5.0, 100.0, start);
        assert!(refill.note_throttled(start, start, RATE, None));
        refill
    }

    fn accept(refill: &mut Refill, calls: u32) {
        for _ in 0..calls {
            refill.note_accepted();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_between_two_throttles_measure_rate() {
        let start = Instant::now();
        // 4 calls at the former estimate belong to each measurement.
        for (calls, expected) in [(40, 44.0 / 10.8), (20, 2.5), (60, 5.0)] {
            let mut refill = throttled_once(start);
            accept(&mut refill, calls);
            let later = start + seconds(10.0);
            assert!(refill.note_throttled(later, later, RATE, None));
            assert_near(&refill, expected);
            assert_eq!(refill.last_throttle(), Some(later));
        }
        // A full bucket loses its refill, so nothing was measured.
        let mut refill = throttled_once(start);
        refill.note_full();
        let later = start + seconds(10.0);
        assert!(refill.note_throttled(later, later, RATE, None));
        assert_near(&refill, 5.0);
    }

    #[tokio::test(start_paused = true)]
    async fn estimate_never_falls_below_twentieth() {
        let mut now = Instant::now();
        let mut refill = throttled_once(now);
        for _ in 0..20 {
            now += seconds(100.0);
            assert!(refill.note_throttled(now, now, RATE, None));
        }
        assert_near(&refill, 0.25);
    }

    #[tokio::test(start_paused = true)]
    async fn call_sent_before_throttle_is_not_counted() {
        let start = Instant::now();
        let mut refill = throttled_once(start);
        let later = start + seconds(1.0);
        assert!(!refill.note_throttled(later, start, RATE, None));
        assert_eq!(refill.last_throttle(), Some(start));
        assert!(refill.note_throttled(later, start + seconds(0.001), RATE, None));
    }

    #[tokio::test(start_paused = true)]
    async fn given_calls_raise_first_estimate_up_to_most() {
        let start = Instant::now();
        for (calls, expected) in [(120, 10.0), (30, 5.0), (6000, 100.0)] {
            let mut refill = Refill::new(5.0, 100.0, start);
            let since_full = AcceptedCalls { calls, within: seconds(2.0) };
            assert!(refill.note_throttled(start, start, RATE, Some(since_full)));
            assert_near(&refill, expected);
        }
        assert_near(&Refill::new(5.0, 3.0, start), 3.0);
    }

    #[tokio::test(start_paused = true)]
    async fn held_estimate_rises_only_while_calls_wait() {
        let start = Instant::now();
        let advance = |refill: &mut Refill, elapsed: f64, at: f64, is_wanted| {
            refill.advance(seconds(elapsed), start + seconds(at), is_wanted);
        };
        let mut refill = Refill::new(5.0, 100.0, start);
        advance(&mut refill, 20.0, 20.0, true);
        assert_near(&refill, 5.0);
        let mut refill = throttled_once(start);
        advance(&mut refill, 15.0, 15.0, true);
        assert_near(&refill, 5.0);
        advance(&mut refill, 1.0, 16.0, false);
        assert_near(&refill, 5.0);
        // An eighth of the estimate in a second.
        advance(&mut refill, 1.0, 17.0, true);
        assert_near(&refill, 5.625);
        // Of these 20 seconds, 2 are after the hold.
        let mut refill = throttled_once(start);
        advance(&mut refill, 20.0, 17.0, true);
        assert_near(&refill, 6.25);
        advance(&mut refill, 1000.0, 1017.0, true);
        assert_near(&refill, 100.0);
        // A low estimate rises by a twentieth of the first one, also when nobody waits.
        let mut refill = throttled_once(start);
        for at in [100.0, 200.0, 300.0] {
            let now = start + seconds(at);
            assert!(refill.note_throttled(now, now, RATE, None));
        }
        assert_near(&refill, 0.625);
        advance(&mut refill, 1.0, 316.0, false);
        assert_near(&refill, 0.875);
        advance(&mut refill, 100.0, 416.0, false);
        assert_near(&refill, 5.0);
    }

    /// The hold is what time passes before the estimate rises again.
    #[tokio::test(start_paused = true)]
    async fn hold_doubles_until_rise_gains() {
        let start = Instant::now();
        let mut now = start;
        let mut refill = throttled_once(now);
        assert_eq!(refill.hold, HOLD);
        for hold in [30, 60, 120, 120] {
            now += seconds(10.0);
            accept(&mut refill, 50);
            assert!(refill.note_throttled(now, now, RATE, None));
            assert_eq!(refill.hold, seconds(hold.into()));
            assert_eq!(refill.held_until, now + refill.hold);
        }
        // A quarter more was found.
        refill.learned = 4.0;
        accept(&mut refill, 50);
        now += seconds(10.0);
        assert!(refill.note_throttled(now, now, RATE, None));
        assert_eq!(refill.hold, HOLD);
        // So much less that another client must have taken the calls.
        for (calls, hold) in [(41, HOLD * 2), (39, HOLD)] {
            let mut refill = throttled_once(start);
            accept(&mut refill, calls + 4);
            let later = start + seconds(10.0);
            assert!(refill.note_throttled(later, later, RATE, None));
            assert_eq!(refill.hold, hold, "{calls}: {}", refill.per_second());
        }
    }
}
