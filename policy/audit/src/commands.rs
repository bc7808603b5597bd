//! The commands of `ebs-csi-policy`.

pub(crate) mod audit;
pub(crate) mod diff;
pub(crate) mod digest;
pub(crate) mod explain;
pub(crate) mod export;
mod json;
pub(crate) mod show;

use std::path::{Path, PathBuf};

/// Returns the `policy/` directory of a checkout, or the directory itself.
fn policy_of(checkout: &Path) -> PathBuf {
    let inside = checkout.join("policy");
    if inside.is_dir() { inside } else { checkout.to_owned() }
}
