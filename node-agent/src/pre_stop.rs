//! The pre-stop hook: while the node is being drained, the hook holds the pod until no volume is
//! staged any more, so that the process that can unmount volumes does so. When the pod ends for
//! another reason, the hook returns at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::keys::DRAINING;

use crate::deadline::Deadline;
use crate::facts::node_facts_file;
use crate::helper::{Helper, Target};
use crate::metrics::Metrics;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The node facts files do not say that the node is being drained.
    NotDraining,
    /// No volume is staged.
    Clear,
    /// The time is over; this many places are still mounted, or `None` when the number could not be
    /// read.
    Overdue(Option<usize>),
}

/// Waits for at most `timeout`.
pub async fn wait(helper: Target, files: &[PathBuf], timeout: Duration) -> Wait {
    let helper = Helper::new(helper, Arc::new(Metrics::default()));
    let deadline = Deadline::after(timeout);
    let mut last = None;
    loop {
        if !is_draining(files) {
            return Wait::NotDraining;
        }
        match helper.held(deadline).await {
            Ok(held) if held.is_empty() => return Wait::Clear,
            Ok(held) => last = Some(held.len()),
            Err(error) => tracing::warn!(%error, "cannot see which volumes are staged"),
        }
        if deadline.left() <= PAUSE {
            return Wait::Overdue(last);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether the node facts files say that the node is being drained.
#[must_use]
pub fn is_draining(files: &[PathBuf]) -> bool {
    node_facts_file::entries(files).get(DRAINING).is_some_and(|value| value == "true")
}
