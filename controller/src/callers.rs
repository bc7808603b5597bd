//! Who waits for the result of an operation.
//!
//! The caller that asks next may ask another process, for the opposite: an operation that nobody waits for looks on, and begins nothing
//! more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebs_csi_proto::{Condition, Failure};

/// Whether somebody still waits for what a call would change; asked when the call is about to leave.
pub(crate) type Wanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// The callers of one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers(Arc<AtomicUsize>);

/// One who waits; dropped when the call ends, also when its client goes away.
#[derive(Debug)]
pub(crate) struct Caller(Arc<AtomicUsize>);

impl Callers {
    /// One more waits.
    pub(crate) fn join(&self) -> Caller {
        self.0.fetch_add(1, Ordering::Relaxed);
        Caller(Arc::clone(&self.0))
    }

    /// Whether somebody waits.
    ///
    /// # Errors
    /// [`Condition::OperationPending`] when nobody does: what an operation ends with that would have to begin something for nobody.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.any() {
            return Ok(());
        }
        Err(Failure::new(
            Condition::OperationPending,
            "nobody waits for it any more; ask again if it is still wanted",
        ))
    }

    /// Whether somebody waits.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_count_from_when_they_join_to_when_they_go() {
        let callers = Callers::default();
        assert!(callers.check().is_err());
        let (first, second) = (callers.join(), callers.clone().join());
        drop(first);
        assert!(callers.check().is_ok());
        drop(second);
        assert!(callers.check().is_err());
    }
}
