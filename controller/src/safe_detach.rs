//! Whether a volume may leave a node.
//!
//! [`decide`] is a pure function of [`Facts`]: no clock, no I/O. What EC2 shows is read by [`evidence`], after the call began.

mod decide;
mod evidence;
mod facts;

pub use decide::{Refusal, Rung, Verdict, Waiting, decide};
pub(crate) use evidence::gather;
pub use facts::{AttachmentFact, BrokenGlass, Fact, Facts, InstanceFact, Mode, NodeWord, Phase};
