//! What happens to a node that died, as a function of what is seen of it.
//!
//! [`step`] looks at one node and says what it is and what should be done; [`brake::admit`] says for which of the nodes it may be done now.
//! Neither knows the time or remembers anything: what was done before is read from the objects that it was done to, so a process that
//! is killed at any instruction and started again goes on where it was.

pub mod brake;
mod eligible;
mod fence;
mod node;
mod step;

pub use eligible::{Claim, Ineligible, Pod, Toleration, eligible};
pub use fence::{FenceWhen, fence, left_alone, may_be_fenced};
pub use node::{
    Attachment, Evidence, InstanceEvidence, Node, NodeFacts, OutOfService, Readiness, Return,
};
pub use step::{FailoverMode, Intent, Phase, Step, step};

#[cfg(test)]
mod properties;
