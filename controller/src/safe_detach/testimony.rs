//! Facts from other sources than EC2.

use super::fence::{FenceSettings, Fences};
use super::override_order::Glasses;
use super::kubelet_report::Words;

/// Kubelets' reports, override orders and fences. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) words: Words,
    pub(crate) glasses: Glasses,
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
