//! Evidence that the cluster gives: kubelets' reports, override orders and fences.

use super::fence::{FenceSettings, Fences};
use super::kubelet_report::KubeletReports;
use super::override_order::OverrideOrders;

/// The evidence. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterEvidence {
    pub(crate) reports: KubeletReports,
    pub(crate) overrides: OverrideOrders,
    pub(crate) fences: Fences,
}

impl ClusterEvidence {
    /// Starts without any fact.
    pub(crate) fn new(fence: FenceSettings) -> Self {
        Self { fences: Fences::new(fence), ..Self::default() }
    }
}
