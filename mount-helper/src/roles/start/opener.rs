//! The process that opens disks, from its fork on. It holds `/sys` and `/dev` and has the groups of
//! the disks' nodes, and cannot mount.
use super::opened::Opened;
use super::{READY, confined, started};
use crate::disk::device::{DiskRoots, opener_requests};
use crate::roles::confinement;
use crate::settings::HelperSettings;
use crate::{channel, journal, sys};
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
) -> Result<u8, u8> {
    journal::set_role("opener");
    sys::limit_allocator();
    sys::unblock_signals();
    sys::ignore_stop_signals();
    let (disks, nodes) = opened.into_disks();
    let entering = confined(confinement::opener(&nodes, settings.allow_missing_landlock))?;
    let threads = started("threads", start(lanes, disks), 1)?;
    confinement::log(&confined(entering.calls_of_all_threads())?);
    // The supervisor has closed its end because the broker did not start. The broker's exit status
    // is the one that counts.
    channel::send(life, READY, &[]).map_err(|_| 0)?;
    for thread in threads {
        // A panic would have ended the process already.
        let _ = thread.join();
    }
    Ok(0)
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
