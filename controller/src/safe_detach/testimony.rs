//! Facts from other sources than EC2.

use super::fence::{FenceSettings, Fences};
use super::kubelet_report::KubeletReports;
use super::override_order::OverrideOrders;

/// Kubelets' reports, override orders and fences. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) words: KubeletReports,
    pub(crate) glasses: OverrideOrders,
    pub(crate) fences: Fences,
}

impl Testimony {
    /// Starts without any fact.
    pub(crate) fn new(fence: FenceSettings) -> Self {
        Self {
            fences: Fences::new(fence),
            ..Self::default()
        }
    }
}
