//! What is known besides what EC2 shows.

use super::fence::{FenceSettings, Fences};
use super::glass::Glasses;
use super::words::Words;

/// Nodes' words, orders of persons, fences. Clones share everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) words: Words,
    pub(crate) glasses: Glasses,
    pub(crate) fences: Fences,
}

impl Testimony {
    /// Nothing is known yet.
    pub(crate) fn new(fence: FenceSettings) -> Self {
        Self {
            fences: Fences::new(fence),
            ..Self::default()
        }
    }
}
