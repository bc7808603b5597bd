//! Prints the steps, with the time since the start and the duration of each step.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Narrator {
    began: Instant,
    last: Instant,
    steps: u32,
}

impl Default for Narrator {
    fn default() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, steps: 0 }
    }
}

impl Narrator {
    pub(super) fn chapter(&mut self, title: &str) {
        println!("\n== {title}");
        self.last = Instant::now();
    }

    /// Prints a verified step with the time since the step before.
    pub(super) fn done(&mut self, step: &str, proof: &str) {
        let took = self.last.elapsed();
        self.steps += 1;
        println!(
            "[{:7.2} s] {step:<46} {:>9}  {proof}",
            self.began.elapsed().as_secs_f64(),
            seconds(took)
        );
        self.last = Instant::now();
    }

    /// Returns the number of verified steps and the total time.
    pub(super) fn summary(&self) -> (u32, Duration) {
        (self.steps, self.began.elapsed())
    }
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_millis(100) {
        format!("{:.1} ms", duration.as_secs_f64() * 1e3)
    } else {
        format!("{:.2} s", duration.as_secs_f64())
    }
}
