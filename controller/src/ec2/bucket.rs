//! A request token bucket, as EC2 keeps one per action, account and Region, and what throttling teaches about it.
//!
//! Ours is an estimate of EC2's: others drink from the same bucket. So it starts from the documented numbers, keeps a little in reserve,
//! and learns: a throttled call means that EC2's bucket is empty now, and throttled calls that follow each other mean that less flows
//! back than thought. Time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::action::Rate;

/// The refill is never taken to be less than this part of the documented one, so that a bucket recovers by itself.
const LEAST_PART: f64 = 0.05;
/// A throttled call lowers the refill to this part of what it was.
const CUT: f64 = 0.75;
/// How long the refill takes from nothing to the documented rate while nothing is throttled.
const RECOVERY: Duration = Duration::from_secs(240);
/// Throttled calls further apart than this do not lower the refill: a foreign burst, or a level that was guessed wrong.
const MEMORY: Duration = Duration::from_secs(30);

/// A bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    documented: Rate,
    /// What we hold back: a second's worth, because EC2 may refill in steps and calls do not arrive evenly.
    reserve: f64,
    level: f64,
    refill: f64,
    counted: Instant,
    throttled: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(documented: Rate, now: Instant) -> Self {
        let reserve = documented.refill.min(documented.capacity / 4.0);
        Self {
            documented,
            reserve,
            level: documented.capacity - reserve,
            refill: documented.refill,
            counted: now,
            throttled: None,
        }
    }

    /// Takes a token, or says when one will be there.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.count(now);
        if self.level >= 1.0 {
            self.level -= 1.0;
            return Ok(());
        }
        // Rounded up to the next millisecond, so that the sleeper does not wake a moment too early.
        let wait = ((1.0 - self.level) / self.refill * 1000.0).ceil() / 1000.0;
        Err(now + Duration::from_secs_f64(wait.max(0.001)))
    }

    /// A call that was sent at `sent` was throttled.
    pub(super) fn throttled(&mut self, now: Instant, sent: Instant) {
        self.count(now);
        self.level = 0.0;
        match self.throttled {
            // One empty bucket throttles all calls that are under way: that is one lesson, not many.
            Some(last) if sent <= last => {}
            Some(last) if now.duration_since(last) < MEMORY => {
                self.refill = (self.refill * CUT).max(self.documented.refill * LEAST_PART);
                self.throttled = Some(now);
            }
            _ => self.throttled = Some(now),
        }
    }

    /// Tokens now.
    pub(super) fn level(&mut self, now: Instant) -> f64 {
        self.count(now);
        self.level
    }

    /// Tokens per second that are thought to flow back.
    pub(super) fn refill(&self) -> f64 {
        self.refill
    }

    fn count(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.counted = self.counted.max(now);
        self.level =
            (self.level + elapsed * self.refill).min(self.documented.capacity - self.reserve);
        self.refill = (self.refill + elapsed * self.documented.refill / RECOVERY.as_secs_f64())
            .min(self.documented.refill);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ATTACH: Rate = Rate {
        capacity: 50.0,
        refill: 5.0,
    };

    fn drain(bucket: &mut Bucket, now: Instant) -> usize {
        std::iter::from_fn(|| bucket.take(now).ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_bucket_gives_its_capacity_less_the_reserve_then_its_refill() {
        let now = Instant::now();
        let mut bucket = Bucket::new(ATTACH, now);
        assert_eq!(drain(&mut bucket, now), 45);
        let next = bucket.take(now).unwrap_err();
        assert_eq!(next - now, Duration::from_millis(200));
        assert_eq!(bucket.take(next), Ok(()));
        assert_eq!(drain(&mut bucket, now + Duration::from_secs(1000)), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn one_throttled_burst_empties_the_bucket_and_leaves_the_rate() {
        let now = Instant::now();
        let mut bucket = Bucket::new(ATTACH, now);
        let later = now + Duration::from_millis(50);
        for _ in 0..20 {
            bucket.throttled(later, now);
        }
        assert_eq!(bucket.level(later), 0.0);
        assert_eq!(bucket.refill(), 5.0);
    }

    #[tokio::test(start_paused = true)]
    async fn throttled_calls_that_follow_each_other_lower_the_rate_and_quiet_raises_it() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(ATTACH, now);
        for _ in 0..100 {
            let sent = now + Duration::from_millis(300);
            now = sent + Duration::from_millis(50);
            bucket.throttled(now, sent);
        }
        assert!(
            bucket.refill() >= 0.25 && bucket.refill() < 1.0,
            "{}",
            bucket.refill()
        );
        bucket.level(now + RECOVERY);
        assert_eq!(bucket.refill(), 5.0);
    }

    proptest! {
        #[test]
        fn never_more_than_the_documented_bucket_would_give(
            steps in proptest::collection::vec((0u64..2000, 0usize..20, any::<bool>()), 1..60)
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let _guard = runtime.enter();
            let start = Instant::now();
            let mut now = start;
            let mut bucket = Bucket::new(ATTACH, now);
            let mut taken = 0.0;
            for (wait, wanted, throttle) in steps {
                now += Duration::from_millis(wait);
                for _ in 0..wanted {
                    match bucket.take(now) {
                        Ok(()) => taken += 1.0,
                        Err(at) => prop_assert!(at > now),
                    }
                }
                if throttle {
                    bucket.throttled(now, now);
                }
                let allowed = ATTACH.capacity + ATTACH.refill * (now - start).as_secs_f64();
                prop_assert!(taken <= allowed);
                prop_assert!(bucket.level(now) >= 0.0);
            }
        }
    }
}
