//! A file system that somebody froze (fsfreeze(8)), as backup hooks do, and did not thaw. The
//! freeze outlasts the last unmount: it keeps the file system alive and the disk claimed.
use crate::journal;
use crate::sys;
use ebs_csi_wire::VolumeId;
use rustix::fd::AsFd;

/// Ends a freeze of the file system with this root directory. Returns whether it was frozen.
pub(super) fn thaw(volume: &VolumeId, root: impl AsFd) -> bool {
    let of_volume = ("volume", volume.as_str());
    match sys::thaw(root) {
        Ok(true) => {
            let meaning = "somebody froze the file system and did not thaw it";
            journal::warn("thawed", &[of_volume, ("meaning", meaning)]);
            true
        }
        Ok(false) => false,
        // What the freeze prevents fails by itself.
        Err(why) => {
            journal::warn("not-thawed", &[of_volume, ("why", &why.to_string())]);
            false
        }
    }
}
