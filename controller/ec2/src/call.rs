//! The work that calls serve.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::Action;
use crate::pacing::lane::QueuePlace;

/// A check whether somebody still waits for the change that a call makes; made right before the
/// call is sent.
pub type Wanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// What calls to EC2 need to know of the work that they serve.
///
/// The default is work without a deadline: each call may take the default timeout.
#[derive(Clone, Default)]
pub struct Call {
    deadline: Option<Instant>,
    began: Option<Instant>,
    wanted: Option<Wanted>,
    /// When the answers to looks are needed, if not at once.
    pub(crate) answers_by: Option<Instant>,
    place: Option<Arc<QueuePlace>>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Call {
    /// Work that begins now and must be answered by `deadline`: calls that have not had their turn
    /// by then fail.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), began: Some(Instant::now()), ..Self::default() }
    }

    /// Returns the same work, whose changes are sent only while `wanted` holds: a call may wait
    /// long for its turn or its retry, and meanwhile the caller may have asked another process for
    /// the opposite.
    #[must_use]
    pub fn while_wanted(self, wanted: Wanted) -> Self {
        Self { wanted: Some(wanted), ..self }
    }

    /// Returns the same work, whose looks need their answers only at `at`.
    pub(crate) fn with_answers_by(&self, at: Instant) -> Self {
        Self { answers_by: Some(at), ..self.clone() }
    }

    /// Returns the same work, whose change of the place's action is sent from `place`.
    pub(crate) fn with_place(self, place: QueuePlace) -> Self {
        Self { place: Some(Arc::new(place)), ..self }
    }

    /// Returns the place in the queue of the action, when one was taken.
    pub(crate) fn place(&self, action: Action) -> Option<&QueuePlace> {
        self.place.as_deref().filter(|place| place.action() == action)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted())
    }

    /// Returns how long the work has gone on.
    pub(crate) fn waited(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    pub(crate) fn deadline_or(&self, default_timeout: Duration) -> Instant {
        self.deadline.unwrap_or_else(|| Instant::now() + default_timeout)
    }
}
