//! Whether a volume may leave a node: the facts for the decision of `ebs-csi-safe-detach`, gathered
//! after the call began, and the socket on which node-lifecycle asks for the decision and reports
//! what EC2 does not show.

mod checks;
mod cluster_evidence;
mod evidence;
mod fence;
mod instance_fact;
mod kubelet_report;
mod override_order;
mod peers;
mod service;
pub(crate) mod verdict_text;

pub(crate) use cluster_evidence::ClusterEvidence;
pub use ebs_csi_safe_detach::Mode;
pub(crate) use ebs_csi_safe_detach::{Fact, Facts, Phase, Refusal, Rung, Verdict, Waiting, decide};
pub(crate) use evidence::gather;
pub use fence::{FencePermission, FenceSettings};
pub use service::Service;
