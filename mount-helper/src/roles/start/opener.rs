//! The process that opens disks, from its fork on. It holds `/sys` and `/dev` and has the groups of
//! the disks' nodes, and cannot mount.
use super::opened::Opened;
use super::{READY, not_confined, started};
use crate::channel;
use crate::disk::device::{DiskRoots, opener_requests};
use crate::journal;
use crate::roles::confinement;
use crate::settings::HelperSettings;
use crate::sys;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Runs the opener until its lanes are closed; returns the exit status.
pub(super) fn run(
    settings: &HelperSettings,
    opened: Opened,
    lanes: Vec<OwnedFd>,
    life: &OwnedFd,
) -> u8 {
    journal::set_role("opener");
    sys::limit_allocator();
    sys::unblock_signals();
    sys::ignore_stop_signals();
    let (disks, nodes) = opened.into_disks();
    let entering = match confinement::opener(&nodes, settings.allow_missing_landlock) {
        Ok(entering) => entering,
        Err(fault) => return not_confined(&fault),
    };
    let Some(threads) = started("threads", start(lanes, disks)) else {
        return 1;
    };
    match entering.calls_of_all_threads() {
        Ok(enforced) => confinement::log(&enforced),
        Err(fault) => return not_confined(&fault),
    }
    // The supervisor has closed its end because the broker did not start. The broker's exit status
    // is the one that counts.
    if channel::send(life, READY, &[]).is_err() {
        return 0;
    }
    for thread in threads {
        // A panic would have ended the process already.
        let _ = thread.join();
    }
    0
}

/// Starts a thread for each lane; a thread ends when the other end of its lane is closed.
pub fn start(lanes: Vec<OwnedFd>, disks: DiskRoots) -> io::Result<Vec<JoinHandle<()>>> {
    let disks = Arc::new(disks);
    let serve = |lane: OwnedFd| {
        let disks = Arc::clone(&disks);
        let serve = move || opener_requests::serve(&lane, &disks);
        Builder::new().stack_size(128 << 10).spawn(serve)
    };
    lanes.into_iter().map(serve).collect()
}
