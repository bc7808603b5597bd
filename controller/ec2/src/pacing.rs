//! When a call is sent: EC2's request rates, the queue of each action, the budget of the pollers,
//! and the pauses before a repetition.

pub(super) mod bucket;
pub(super) mod duration_estimate;
pub(super) mod lane;
pub(super) mod poll_budget;
pub(super) mod random;
pub(super) mod refill;
pub(super) mod retry;
