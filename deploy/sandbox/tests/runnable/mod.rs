//! Whether a world can run here.

use ebs_csi_sandbox::WorldOptions;
use ebs_csi_sandbox::binaries::Binaries;

/// The programs of a world with nodes.
pub(crate) const ALL: [&str; 5] = [
    "ebs-csi-sandbox",
    "ec2-sim",
    "ebs-csi-controller",
    "ebs-csi-node-agent",
    "ebs-csi-mount-helper",
];

/// Returns options for a world of the built programs, or prints the reason and returns `None` where
/// no world can run.
pub(crate) fn options(needed: &[&str]) -> Option<WorldOptions> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a world needs root");
        return None;
    }
    let binaries = Binaries::of_this_build().unwrap();
    if let Some(error) = needed.iter().find_map(|program| binaries.path(program).err()) {
        println!("skipped: {error}");
        return None;
    }
    Some(WorldOptions::new(binaries))
}
