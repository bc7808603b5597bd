//! What happens to a dead node, as a function of what is known about it.
//!
//! [`step`] classifies one node and returns what should be done; [`brake::admit`] returns for which
//! of the nodes it may be done now. Neither knows the time or remembers anything: earlier acts are
//! read from the objects that they changed, so a process that is killed at any instruction and
//! restarted continues where it was.

pub mod brake;
mod eligible;
mod fence;
mod node;
mod step;

pub use eligible::{Claim, Ineligible, ObjectVersion, Pod, Toleration, eligible};
pub use fence::{FenceWhen, decide_fence, fence_candidate};
pub use node::{
    Attachment, InstanceEvidence, Node, NodeFacts, OutOfService, TaintedBoot, VolumeEvidence,
};
pub use step::{FailoverMode, Intent, NodePhase, Transition, step};

#[cfg(test)]
mod properties;
