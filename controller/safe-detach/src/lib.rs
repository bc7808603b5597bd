//! Whether a volume may leave a node.
//!
//! [`decide`] is a pure function of [`Facts`]: no clock, no I/O. [`decide_instance`] gives the same
//! answer for all volumes at one instance. [`lifecycle`] derives what a process that acts in
//! Kubernetes does about a dead node. The crate links neither AWS nor Kubernetes, so that the
//! controller, node-lifecycle and the model share one decision.

mod decide;
mod facts;
mod kubelet_report;
pub mod lifecycle;

pub use decide::{Refusal, Rung, Verdict, Waiting, decide, decide_instance};
pub use facts::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, Mode, OverrideOrder,
    Phase, Power,
};
pub use kubelet_report::{FRESH_LEASE, NodeReport, kubelet_report};
