//! Whether a volume may leave a node.
//!
//! [`decide`] is a pure function of [`Facts`]: no clock, no I/O. [`decide_instance`] gives the same
//! answer for all volumes at one instance. [`lifecycle`] derives what a process that acts in
//! Kubernetes does about a dead node. The crate links neither AWS nor Kubernetes, so that the
//! controller, node-lifecycle and the model share one decision.

mod decide;
mod facts;
pub mod lifecycle;
mod node_evidence;

pub use decide::{Evidence, Refusal, Verdict, Waiting, decide, decide_instance};
pub use facts::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, Mode, NodeEvidence, OverrideOrder,
    Phase, Power,
};
pub use node_evidence::{
    Agent, AgentAnswer, FRESH_LEASE, KernelState, NodeReport, OldAgents, node_evidence,
};
