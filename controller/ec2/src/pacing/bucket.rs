//! A request token bucket, as EC2 keeps one per action, account and Region.
//!
//! This bucket estimates EC2's. It starts from the documented numbers and keeps a small reserve;
//! [`Refill`] learns the refill rate. A bucket that EC2 has not recently throttled may hold more
//! than is documented. So while calls wait, a few calls are sent beyond the estimate (probes), more
//! as EC2 accepts them, until EC2 throttles one. Time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::refill::{AcceptedCalls, Refill};
use crate::action::Rate;

/// How long after a throttled call no probe is sent.
const THROTTLE_REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// The number of probes that may be under way at first; the window reaches it after about twice as
/// many were accepted.
const PROBE_LIMIT: f64 = 8.0;
/// The part of the accepted probes that is added to [`PROBE_LIMIT`]: one for each hundred. The
/// probes under way when EC2 throttles are wasted.
const PROBE_LIMIT_GROWTH: f64 = 0.01;

/// The probes that may be sent soon, as a multiple of those that may be under way.
const SOON_PROBES_FACTOR: f64 = 8.0;

/// How far a bucket's estimate may rise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ceiling {
    /// Not above the start.
    Start,
    /// Up to this rate.
    Rate(Rate),
    /// Up to what EC2 accepts.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A token of the estimate.
    Estimated,
    /// A token beyond the estimate, for a call that finds out whether EC2 grants more.
    Probe,
}

/// How a call ended, for its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
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
    updated: Instant,
}

impl Tokens {
    fn full(capacity: f64, now: Instant) -> Self {
        Self { capacity, level: capacity, updated: now }
    }

    fn refill(&mut self, refill: f64, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.updated);
        self.updated = self.updated.max(now);
        self.add(elapsed.as_secs_f64() * refill);
        elapsed
    }

    fn add(&mut self, tokens: f64) {
        self.level = (self.level + tokens).min(self.capacity);
    }

    fn has_one(&self) -> bool {
        self.level >= 1.0
    }

    fn next_token_at(&self, refill: f64, now: Instant) -> Instant {
        // Rounded up to the next millisecond, so that the sleeper does not wake too early.
        let wait = ((1.0 - self.level) / refill * 1000.0).ceil() / 1000.0;
        now + Duration::from_secs_f64(wait.max(0.001))
    }
}

/// An estimate of one of EC2's buckets.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    start: Rate,
    tokens: Tokens,
    refill: Refill,
    /// The limit on all tokens, within the estimate and beyond it.
    ceiling: Option<(Rate, Tokens)>,
    may_probe: bool,
    probes_under_way: u32,
    /// Probes accepted since the estimate was last half full.
    probes_accepted: u32,
    full_at: Instant,
    accepted_since_full: u32,
    /// Whether a call waits for a token.
    is_wanted: bool,
}

impl Bucket {
    pub(crate) fn new(start: Rate, ceiling: Ceiling, now: Instant) -> Self {
        let (start, max_refill) = match ceiling {
            Ceiling::Start => (start, start.refill),
            Ceiling::Open => (start, f64::INFINITY),
            Ceiling::Rate(max) => (
                Rate {
                    capacity: start.capacity.min(max.capacity),
                    refill: start.refill.min(max.refill),
                },
                max.refill,
            ),
        };
        // The reserve is one second's refill, because EC2 may refill in steps and calls do not
        // arrive evenly.
        let reserve = start.refill.min(start.capacity / 4.0);
        Self {
            start,
            tokens: Tokens::full(start.capacity - reserve, now),
            refill: Refill::new(start.refill, max_refill, now),
            ceiling: match ceiling {
                Ceiling::Rate(rate) => Some((rate, Tokens::full(rate.capacity, now))),
                _ => None,
            },
            may_probe: ceiling != Ceiling::Start,
            probes_under_way: 0,
            probes_accepted: 0,
            full_at: now,
            accepted_since_full: 0,
            is_wanted: false,
        }
    }

    /// Takes a token, or returns when one will be available.
    pub(crate) fn take(&mut self, now: Instant) -> Result<Token, Instant> {
        self.update(now);
        if self.tokens.level >= self.start.capacity / 2.0 {
            self.probes_accepted = 0;
        }
        if let Some((rate, tokens)) = &self.ceiling
            && !tokens.has_one()
        {
            return Err(tokens.next_token_at(rate.refill, now));
        }
        let token = if self.tokens.has_one() {
            self.tokens.level -= 1.0;
            self.is_wanted = false;
            Token::Estimated
        } else {
            self.is_wanted = true;
            if !self.probe_is_allowed(now) {
                return Err(self.tokens.next_token_at(self.refill.per_second(), now));
            }
            self.probes_under_way += 1;
            Token::Probe
        };
        if let Some((_, tokens)) = &mut self.ceiling {
            tokens.level -= 1.0;
        }
        Ok(token)
    }

    fn probe_is_allowed(&self, now: Instant) -> bool {
        f64::from(self.probes_under_way) + 1.0 <= self.probe_window(now)
    }

    /// Returns how many probes may be under way.
    fn probe_window(&self, now: Instant) -> f64 {
        let last_throttle = self.refill.last_throttle();
        let limit_is_unknown =
            last_throttle.is_none_or(|at| now.duration_since(at) >= THROTTLE_REMEMBERED_FOR);
        if !(self.may_probe && limit_is_unknown) {
            return 0.0;
        }
        let accepted = f64::from(self.probes_accepted);
        (1.0 + accepted / 2.0).min(PROBE_LIMIT + accepted * PROBE_LIMIT_GROWTH)
    }

    /// Returns how long it takes until so many tokens are available, if nobody takes one meanwhile.
    pub(crate) fn wait_for(&mut self, tokens: usize, now: Instant) -> Duration {
        self.update(now);
        let tokens = f64::from(u32::try_from(tokens).unwrap_or(u32::MAX));
        let lacking = tokens - self.tokens.level;
        if lacking <= self.probe_window(now) * SOON_PROBES_FACTOR {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(lacking.max(0.0) / self.refill.per_second())
    }

    /// Notes that the call that was sent at `sent` with this token has ended.
    pub(crate) fn note_end(
        &mut self,
        now: Instant,
        sent: Instant,
        token: Token,
        outcome: CallOutcome,
    ) {
        if token == Token::Probe {
            self.probes_under_way -= 1;
        }
        match outcome {
            CallOutcome::Accepted => {
                self.refill.note_accepted();
                self.accepted_since_full = self.accepted_since_full.saturating_add(1);
                if token == Token::Probe {
                    self.probes_accepted = self.probes_accepted.saturating_add(1);
                }
            }
            CallOutcome::Throttled => {
                self.update(now);
                self.tokens.level = 0.0;
                let since_full = (self.probes_accepted > 0).then(|| AcceptedCalls {
                    calls: self.accepted_since_full,
                    within: now.duration_since(self.full_at),
                });
                if self.refill.note_throttled(now, sent, self.start, since_full) {
                    self.probes_accepted = 0;
                }
            }
            CallOutcome::Unknown => {}
            CallOutcome::NotSent => {
                if token == Token::Estimated {
                    self.tokens.add(1.0);
                }
                if let Some((_, tokens)) = &mut self.ceiling {
                    tokens.add(1.0);
                }
            }
        }
    }

    pub(crate) fn level(&mut self, now: Instant) -> f64 {
        self.update(now);
        self.tokens.level
    }

    pub(crate) fn last_throttle(&self) -> Option<Instant> {
        self.refill.last_throttle()
    }

    /// Returns the estimated refill in tokens per second.
    pub(crate) fn refill(&self) -> f64 {
        self.refill.per_second()
    }

    fn update(&mut self, now: Instant) {
        let elapsed = self.tokens.refill(self.refill.per_second(), now);
        self.refill.advance(elapsed, now, self.is_wanted);
        if let Some((rate, tokens)) = &mut self.ceiling {
            tokens.refill(rate.refill, now);
        }
        if self.tokens.level >= self.tokens.capacity {
            self.refill.note_full();
            self.full_at = now;
            self.accepted_since_full = 0;
        }
    }
}

#[cfg(test)]
mod tests;
