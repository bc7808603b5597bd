//! The simulator's clock: real time, faster time, or time that advances only by explicit steps.

use super::Millis;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock setting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The machine's time.
    #[default]
    Real,
    /// The number of simulated seconds in a real second.
    Scaled(f64),
    /// Stands still until it is stepped; begins at this time.
    Manual(String),
}

/// A running clock.
#[derive(Debug)]
pub struct Clock {
    base: Millis,
    since: Instant,
    scale: f64,
    follows_machine: bool,
}

impl Clock {
    /// Starts a clock.
    pub fn start(mode: &Mode) -> Self {
        let machine = machine_time();
        let (base, scale) = match mode {
            Mode::Real => (machine, 1.0),
            Mode::Scaled(scale) => (machine, scale.max(0.0)),
            Mode::Manual(at) => (Millis::parse(at).unwrap_or(machine), 0.0),
        };
        Self {
            base,
            since: Instant::now(),
            scale,
            follows_machine: *mode == Mode::Real,
        }
    }

    /// Returns the current simulated time.
    pub fn now(&self) -> Millis {
        let real = self.since.elapsed();
        self.base.plus(scaled(real, self.scale))
    }

    /// Returns whether the clock is less than a second away from the machine's clock.
    pub fn shows_machine_time(&self) -> bool {
        let (shown, machine) = (self.now(), machine_time());
        shown.since(machine).max(machine.since(shown)) < 1_000
    }

    /// Returns how long to sleep, in real time, until `at`, or `None` if the clock stands still.
    pub fn until(&self, at: Millis) -> Option<Duration> {
        let ms = at.since(self.now());
        if ms == 0 {
            return Some(Duration::ZERO);
        }
        if self.scale <= 0.0 {
            return None;
        }
        #[allow(
            clippy::cast_precision_loss,
            reason = "spans are far below 2^53 milliseconds"
        )]
        let seconds = (ms as f64 / 1000.0) / self.scale;
        // The sleep is bounded, because the clock may be changed meanwhile; the caller reads the
        // clock again.
        Some(Duration::try_from_secs_f64(seconds).map_or(MAX_SLEEP, |d| d.min(MAX_SLEEP)))
    }

    /// Returns how long a simulated duration takes in real time; zero while the clock stands still.
    pub fn real(&self, ms: u64) -> Duration {
        if self.scale <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(Duration::from_millis(ms).as_secs_f64() / self.scale)
            .unwrap_or(Duration::ZERO)
    }

    /// Advances the clock by `ms` milliseconds.
    pub fn step(&mut self, ms: u64) {
        self.base = self.now().plus(ms);
        self.since = Instant::now();
    }

    /// Changes the speed; 0 stops the clock.
    pub fn set_scale(&mut self, scale: f64) {
        self.step(0);
        self.scale = if scale.is_finite() {
            scale.max(0.0)
        } else {
            1.0
        };
        self.follows_machine = false;
    }

    /// Returns `real`, `scaled` or `manual`.
    pub fn mode(&self) -> &'static str {
        if self.follows_machine {
            "real"
        } else if self.scale > 0.0 {
            "scaled"
        } else {
            "manual"
        }
    }
}

const MAX_SLEEP: Duration = Duration::from_secs(1);

fn machine_time() -> Millis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Millis(0).plus(u64::try_from(since.as_millis()).unwrap_or(0))
}

fn scaled(real: Duration, scale: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and the value is not negative"
    )]
    let ms = (real.as_secs_f64() * 1000.0 * scale) as u64;
    ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_stepped() {
        let mut c = Clock::start(&Mode::Manual("2026-01-01T00:00:00Z".to_owned()));
        let t = c.now();
        assert_eq!(t.iso(), "2026-01-01T00:00:00.000Z");
        assert_eq!(c.now(), t);
        assert_eq!(c.until(t.plus(5)), None);
        c.step(5);
        assert_eq!(
            (c.now(), c.until(t.plus(5))),
            (t.plus(5), Some(Duration::ZERO))
        );
        assert_eq!(c.mode(), "manual");
    }

    #[test]
    fn clock_in_real_mode_shows_machine_time() {
        assert!(Clock::start(&Mode::Real).shows_machine_time());
    }

    #[test]
    fn setting_scale_makes_manual_clock_run() {
        let mut c = Clock::start(&Mode::Manual("2026-01-01T00:00:00Z".to_owned()));
        c.set_scale(1_000_000.0);
        assert_eq!(c.mode(), "scaled");
        let at = c.now().plus(1_000);
        assert!(c.until(at).is_some());
    }
}
