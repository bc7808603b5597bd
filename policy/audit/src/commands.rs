//! The commands of `ebs-csi-policy`.

pub(crate) mod audit;
pub(crate) mod explain;
mod json;
pub(crate) mod show;
