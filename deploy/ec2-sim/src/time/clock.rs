//! The clock of a running server: the machine's time at the start, then a clock that never goes
//! back.

use super::Millis;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug)]
pub(crate) struct Clock {
    base: Millis,
    since: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            base: Millis(0).plus(u64::try_from(machine.as_millis()).unwrap_or(0)),
            since: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Millis {
        let passed = self.since.elapsed().as_millis();
        self.base.plus(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}
