//! Whether what is mounted here appears where the volumes are used.
//!
//! A mount beneath a private or slave mount stays in this mount namespace. Kubelet and the pods would find an empty directory in its place, and
//! write to the node's own disk what was meant for the volume.
use crate::beneath;
use crate::journal;
use crate::mount_table::{MountTable, mount_of};
use crate::place::Root;
use rustix::io::Errno;

/// Beneath these the places of `policy/mounts.toml` lie. Each may be a mount of its own.
pub const PLACES: [&str; 2] = ["plugins/kubernetes.io/csi", "pods"];

/// What to tell whoever wrote the container's specification.
const WAY_OUT: &str = "not a shared mount: what is mounted beneath it stays unseen by kubelet and pods; give the container's volume mount \
     Bidirectional propagation, or say --allow-private-mounts when whoever uses the volumes is in this very mount namespace";

/// Mounts appear where they are used, or need not; the journal says what is missing otherwise.
pub fn suffices(root: &Root, table: &MountTable, allow_private: bool) -> bool {
    match first_private(root, table) {
        Ok(None) => true,
        Ok(Some(place)) if allow_private => {
            journal::warn("private-mounts", &[("place", &place)]);
            true
        }
        Ok(Some(place)) => {
            journal::error("start", &[("what", &place), ("why", WAY_OUT)]);
            false
        }
        Err(errno) => {
            let why = errno.to_string();
            journal::error("start", &[("what", "mount propagation"), ("why", &why)]);
            false
        }
    }
}

/// The first place whose mounts nobody else would see; none when all are shared.
fn first_private(root: &Root, table: &MountTable) -> Result<Option<String>, Errno> {
    let mounts = table.read()?;
    for place in PLACES {
        let held = deepest(root, place)?;
        let id = mount_of(&held)?;
        let shared = mounts.iter().any(|mount| mount.id == id && mount.shared);
        if !shared {
            return Ok(Some(format!("{}/{place}", root.path())));
        }
    }
    Ok(None)
}

/// A handle on the place, or on the deepest directory above it that exists already.
fn deepest(root: &Root, place: &str) -> Result<rustix::fd::OwnedFd, Errno> {
    let mut place = place;
    loop {
        match beneath::hold_directory(root.held(), place) {
            Err(Errno::NOENT) if place != "." => place = beneath::split(place).0,
            other => return other,
        }
    }
}
