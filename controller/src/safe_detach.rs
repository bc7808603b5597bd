//! Whether a volume may leave a node: the facts for the decision of `ebs-csi-safe-detach`, gathered
//! after the call began, and the socket on which node-lifecycle asks for the decision and reports
//! what EC2 does not show.

mod attach_limits;
mod checks;
mod evidence;
mod fence;
mod node_reports;
mod override_order;
mod service;
pub(crate) mod verdict_text;

pub(crate) use ebs_csi_safe_detach::{
    Evidence, Fact, Facts, Phase, Refusal, Verdict, Waiting, decide,
};
pub use ebs_csi_safe_detach::{Mode, OldAgents};
pub(crate) use evidence::gather;
use fence::Fences;
pub use fence::{FencePermission, FenceSettings};
use node_reports::NodeReports;
use override_order::OverrideOrders;
pub use service::Service;

/// The evidence. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterEvidence {
    pub(crate) reports: NodeReports,
    pub(crate) overrides: OverrideOrders,
    pub(crate) fences: Fences,
}

impl ClusterEvidence {
    pub(crate) fn new(fence: FenceSettings, old_agents: OldAgents) -> Self {
        Self {
            reports: NodeReports::new(old_agents),
            fences: Fences::new(fence),
            ..Self::default()
        }
    }
}
