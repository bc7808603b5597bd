//! What a poller asks EC2 for.

use std::collections::BTreeMap;
use std::future::Future;

use tokio::time::Instant;

use crate::calls::Action;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::model::look_result::LookResult;

/// A Describe API that a poller calls.
pub(crate) trait Source: Send + Sync + 'static {
    /// The identifier of a resource.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// The resource.
    type Value: Clone + Send + 'static;
    /// The Describe action.
    const ACTION: Action;

    /// Asks for all keys, page by page. A key that is missing from a complete answer is absent.
    fn fetch(
        &self,
        keys: &[Self::Key],
        deadline: Instant,
    ) -> impl Future<Output = Result<BTreeMap<Self::Key, LookResult<Self::Value>>, Ec2Error>> + Send;
}

/// Returns the answer for a call that panicked, or that the end of the runtime dropped.
pub(super) fn ended_without_answer<S: Source>() -> LookResult<S::Value> {
    let text = "the call that asked for it ended without an answer";
    LookResult::Unknown(Ec2Error::new(Ec2ErrorKind::Other, S::ACTION, Sent::Answered, text))
}
