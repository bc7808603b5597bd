//! A request token bucket, as EC2 keeps one per action, account and Region.
//!
//! This bucket estimates EC2's. It starts from the documented numbers and keeps a small reserve;
//! [`Refill`] learns the refill rate. A bucket that EC2 has not throttled lately may hold more than
//! is documented. So while calls wait, a few calls are sent beyond the estimate, more as EC2
//! accepts them, until EC2 throttles one. Time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::refill::{Given, Refill};
use crate::ec2::action::Rate;

/// How long after a throttled call no call goes beyond the estimate.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The number of calls beyond the estimate that may be under way at first; the window reaches it
/// after about twice as many were accepted.
const BEYOND: f64 = 8.0;
/// The part of the calls accepted beyond the estimate that is added to [`BEYOND`]: one for each
/// hundred. The calls under way when EC2 throttles are wasted.
const BEYOND_PART: f64 = 0.01;

/// Calls that may go beyond the estimate soon, as a multiple of those that may be under way.
const BEYOND_SOON: f64 = 8.0;

/// How far a bucket's estimate may rise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ec2) enum Ceiling {
    /// Not above the start.
    Start,
    /// Up to this rate.
    Rate(Rate),
    /// Up to what EC2 accepts.
    Open,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ec2) enum Token {
    /// A token of the estimate.
    Own,
    /// A token beyond the estimate.
    Beyond,
}

/// How a call ended, for its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ec2) enum Ended {
    /// EC2's rate limit let the call through, whatever EC2 then answered.
    Accepted,
    /// EC2's bucket was empty.
    Throttled,
    /// EC2 did not answer.
    Unknown,
    /// The call was not sent after all.
    NotSent,
}

/// A level of tokens that rises with time.
#[derive(Clone, Debug)]
struct Tokens {
    capacity: f64,
    level: f64,
    counted: Instant,
}

impl Tokens {
    fn full(capacity: f64, now: Instant) -> Self {
        Self { capacity, level: capacity, counted: now }
    }

    fn flow(&mut self, refill: f64, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.counted);
        self.counted = self.counted.max(now);
        self.add(elapsed.as_secs_f64() * refill);
        elapsed
    }

    fn add(&mut self, tokens: f64) {
        self.level = (self.level + tokens).min(self.capacity);
    }

    fn has_one(&self) -> bool {
        self.level >= 1.0
    }

    fn one_at(&self, refill: f64, now: Instant) -> Instant {
        // Rounded up to the next millisecond, so that the sleeper does not wake too early.
        let wait = ((1.0 - self.level) / refill * 1000.0).ceil() / 1000.0;
        now + Duration::from_secs_f64(wait.max(0.001))
    }
}

/// An estimate of one of EC2's buckets.
#[derive(Clone, Debug)]
pub(in crate::ec2) struct Bucket {
    start: Rate,
    tokens: Tokens,
    refill: Refill,
    /// The limit on all tokens, within the estimate and beyond it.
    ceiling: Option<(Rate, Tokens)>,
    may_go_beyond: bool,
    beyond_under_way: u32,
    /// Calls accepted beyond the estimate since the estimate was last half full.
    beyond_accepted: u32,
    full_at: Instant,
    accepted_since_full: u32,
    /// Whether a call waits for a token.
    wanted: bool,
}

impl Bucket {
    /// Creates a full bucket.
    pub(in crate::ec2) fn new(start: Rate, ceiling: Ceiling, now: Instant) -> Self {
        let (start, most) = match ceiling {
            Ceiling::Start => (start, start.refill),
            Ceiling::Open => (start, f64::INFINITY),
            Ceiling::Rate(most) => (
                Rate {
                    capacity: start.capacity.min(most.capacity),
                    refill: start.refill.min(most.refill),
                },
                most.refill,
            ),
        };
        // The reserve is one second's refill, because EC2 may refill in steps and calls do not
        // arrive evenly.
        let reserve = start.refill.min(start.capacity / 4.0);
        Self {
            start,
            tokens: Tokens::full(start.capacity - reserve, now),
            refill: Refill::new(start.refill, most, now),
            ceiling: match ceiling {
                Ceiling::Rate(rate) => Some((rate, Tokens::full(rate.capacity, now))),
                _ => None,
            },
            may_go_beyond: ceiling != Ceiling::Start,
            beyond_under_way: 0,
            beyond_accepted: 0,
            full_at: now,
            accepted_since_full: 0,
            wanted: false,
        }
    }

    /// Takes a token, or returns when one will be there.
    pub(in crate::ec2) fn take(&mut self, now: Instant) -> Result<Token, Instant> {
        self.count(now);
        if self.tokens.level >= self.start.capacity / 2.0 {
            self.beyond_accepted = 0;
        }
        if let Some((rate, tokens)) = &self.ceiling
            && !tokens.has_one()
        {
            return Err(tokens.one_at(rate.refill, now));
        }
        let token = if self.tokens.has_one() {
            self.tokens.level -= 1.0;
            self.wanted = false;
            Token::Own
        } else {
            self.wanted = true;
            if !self.goes_beyond(now) {
                return Err(self.tokens.one_at(self.refill.per_second(), now));
            }
            self.beyond_under_way += 1;
            Token::Beyond
        };
        if let Some((_, tokens)) = &mut self.ceiling {
            tokens.level -= 1.0;
        }
        Ok(token)
    }

    fn goes_beyond(&self, now: Instant) -> bool {
        f64::from(self.beyond_under_way) + 1.0 <= self.window(now)
    }

    /// Returns how many calls may be under way beyond the estimate.
    fn window(&self, now: Instant) -> f64 {
        let lesson = self.refill.lesson();
        let is_unknown = lesson.is_none_or(|at| now.duration_since(at) >= REMEMBERED);
        if !(self.may_go_beyond && is_unknown) {
            return 0.0;
        }
        let accepted = f64::from(self.beyond_accepted);
        (1.0 + accepted / 2.0).min(BEYOND + accepted * BEYOND_PART)
    }

    /// Returns how long it takes until so many tokens are there, if nobody takes one meanwhile.
    pub(in crate::ec2) fn until(&mut self, tokens: usize, now: Instant) -> Duration {
        self.count(now);
        let tokens = f64::from(u32::try_from(tokens).unwrap_or(u32::MAX));
        let lacking = tokens - self.tokens.level;
        if lacking <= self.window(now) * BEYOND_SOON {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(lacking.max(0.0) / self.refill.per_second())
    }

    /// Notes that the call that was sent at `sent` with this token has ended.
    pub(in crate::ec2) fn ended(
        &mut self,
        now: Instant,
        sent: Instant,
        token: Token,
        ended: Ended,
    ) {
        if token == Token::Beyond {
            self.beyond_under_way -= 1;
        }
        match ended {
            Ended::Accepted => {
                self.refill.accepted();
                self.accepted_since_full = self.accepted_since_full.saturating_add(1);
                if token == Token::Beyond {
                    self.beyond_accepted = self.beyond_accepted.saturating_add(1);
                }
            }
            Ended::Throttled => {
                self.count(now);
                self.tokens.level = 0.0;
                let given = (self.beyond_accepted > 0).then(|| Given {
                    calls: self.accepted_since_full,
                    within: now.duration_since(self.full_at),
                });
                if self.refill.throttled(now, sent, self.start, given) {
                    self.beyond_accepted = 0;
                }
            }
            Ended::Unknown => {}
            Ended::NotSent => {
                if token == Token::Own {
                    self.tokens.add(1.0);
                }
                if let Some((_, tokens)) = &mut self.ceiling {
                    tokens.add(1.0);
                }
            }
        }
    }

    /// Returns the tokens at `now`.
    pub(in crate::ec2) fn level(&mut self, now: Instant) -> f64 {
        self.count(now);
        self.tokens.level
    }

    /// Returns the estimated refill in tokens per second.
    pub(in crate::ec2) fn refill(&self) -> f64 {
        self.refill.per_second()
    }

    fn count(&mut self, now: Instant) {
        let elapsed = self.tokens.flow(self.refill.per_second(), now);
        self.refill.pass(elapsed, now, self.wanted);
        if let Some((rate, tokens)) = &mut self.ceiling {
            tokens.flow(rate.refill, now);
        }
        if self.tokens.level >= self.tokens.capacity {
            self.refill.unused();
            self.full_at = now;
            self.accepted_since_full = 0;
        }
    }
}

#[cfg(test)]
mod tests;
