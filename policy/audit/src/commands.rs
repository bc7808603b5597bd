//! The commands of `ebs-csi-policy`.

pub(crate) mod audit;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
mod json;
pub(crate) mod show;
