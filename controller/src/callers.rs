//! The callers that wait for the result of an operation.
//!
//! The caller's next request may go to another process and ask for the opposite. An operation that
//! nobody waits for therefore only observes and begins nothing new.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebs_csi_proto::{Condition, Failure};

/// A check whether somebody still waits for the change that a call makes; made right before the
/// call is sent.
pub(crate) type Wanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// The callers of one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers(Arc<AtomicUsize>);

/// One caller that waits. It is dropped when the call ends, also when the client goes away.
#[derive(Debug)]
pub(crate) struct Caller(Arc<AtomicUsize>);

impl Callers {
    /// Counts one more caller.
    pub(crate) fn join(&self) -> Caller {
        self.0.fetch_add(1, Ordering::Relaxed);
        Caller(Arc::clone(&self.0))
    }

    /// Succeeds while somebody waits.
    ///
    /// # Errors
    /// [`Condition::OperationPending`] when nobody waits: the result of an operation whose next
    /// step would begin something for nobody.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.any() {
            return Ok(());
        }
        Err(Failure::new(
            Condition::OperationPending,
            "nobody waits for it any more; ask again if it is still wanted",
        ))
    }

    /// Returns whether somebody waits.
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
    fn callers_count_from_join_until_drop() {
        let callers = Callers::default();
        assert!(callers.check().is_err());
        let (first, second) = (callers.join(), callers.clone().join());
        drop(first);
        assert!(callers.check().is_ok());
        drop(second);
        assert!(callers.check().is_err());
    }
}
