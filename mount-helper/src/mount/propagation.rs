//! Checks that mounts made here appear where the volumes are used.
//!
//! A mount beneath a private or slave mount stays in this mount namespace. Kubelet and the pods
//! would see an empty directory instead, and would write to the node's own disk what was meant for
//! the volume.
use crate::journal;
use crate::mount::kubelet_root::KubeletRoot;
use crate::mount::mount_table::{MountTable, mount_of};
use crate::path_resolution::{self, HeldPath};
use rustix::io::Errno;

/// The directories beneath which the places of `policy/mounts.toml` lie. Each may be a mount of its
/// own.
pub(crate) const PLACES: [&str; 2] = ["plugins/kubernetes.io/csi", "pods"];

/// The advice for the author of the container's specification.
const REMEDY: &str = "not a shared mount: what is mounted beneath it stays unseen by kubelet and pods; give the container's volume mount \
     Bidirectional propagation, or say --allow-private-mounts when whoever uses the volumes is in this very mount namespace";

/// Returns whether mounts appear where they are used, or `allow_private` says that they need not.
/// Logs the reason otherwise.
pub(crate) fn check(root: &KubeletRoot, table: &MountTable, allow_private: bool) -> bool {
    match first_private(root, table) {
        Ok(None) => true,
        Ok(Some(place)) if allow_private => {
            journal::warn("private-mounts", &[("place", &place)]);
            true
        }
        Ok(Some(place)) => {
            journal::error("start", &[("what", &place), ("why", REMEDY)]);
            false
        }
        Err(errno) => {
            let why = errno.to_string();
            journal::error("start", &[("what", "mount propagation"), ("why", &why)]);
            false
        }
    }
}

/// Returns the first place whose mounts nobody else would see; None when all are shared.
fn first_private(root: &KubeletRoot, table: &MountTable) -> Result<Option<String>, Errno> {
    let mounts = table.read()?;
    for place in PLACES {
        let held = hold_deepest_existing(root, place)?;
        let id = mount_of(&held)?;
        let shared = mounts.iter().any(|mount| mount.id == id && mount.shared);
        if !shared {
            return Ok(Some(format!("{}/{place}", root.path())));
        }
    }
    Ok(None)
}

/// Opens the place, or the deepest directory above it that exists already, with O_PATH.
fn hold_deepest_existing(root: &KubeletRoot, place: &str) -> Result<HeldPath, Errno> {
    let mut place = place;
    loop {
        match path_resolution::hold_directory(root.held(), place) {
            Err(Errno::NOENT) if place != "." => place = path_resolution::split(place).0,
            other => return other,
        }
    }
}
