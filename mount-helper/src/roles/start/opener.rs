//! The process that opens disks, from its fork on. It holds `/sys` and `/dev` and has the groups of
//! the disks' nodes, and cannot mount.
use super::opened::Opened;
use super::{READY, confined, started};
use crate::disk::area_search::Readers;
use crate::disk::device::opener_requests::{
    HANDED_OVER, OpenRequest, SearchRequest, encode_error, encode_opened, encode_search_result,
    parse_request, parse_search,
};
use crate::disk::device::{Access, Device, DeviceError, DiskRoots};
use crate::roles::confinement;
use crate::settings::HelperSettings;
use crate::{channel, journal, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
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

/// Starts the readers, and a thread for each lane, which ends when the other end of its lane is
/// closed.
pub fn start(lanes: Vec<OwnedFd>, disks: DiskRoots) -> io::Result<Vec<JoinHandle<()>>> {
    let (disks, readers) = (Arc::new(disks), Readers::start()?);
    let answering = |lane: OwnedFd| {
        let (disks, readers) = (Arc::clone(&disks), readers.clone());
        Builder::new().stack_size(128 << 10).spawn(move || serve(&lane, &disks, &readers))
    };
    lanes.into_iter().map(answering).collect()
}

/// Answers requests on a lane until its other end is closed, in the opener. Each disk's proof is
/// checked here, before and after the open.
fn serve(lane: &OwnedFd, disks: &DiskRoots, readers: &Readers) {
    while let Ok((message, mut descriptors)) = channel::receive(lane) {
        if message.is_empty() {
            return;
        }
        if let Some(SearchRequest { size, within }) = parse_search(&message) {
            let disk = descriptors.pop().ok_or(Errno::BADF);
            drop(descriptors);
            let found = disk.and_then(|disk| readers.search(disk, size, &within));
            if channel::send(lane, &encode_search_result(&found), &[]).is_err() {
                return;
            }
            continue;
        }
        // Descriptors that come with a request to open are not used.
        drop(descriptors);
        let opened = parse_request(&message)
            .ok_or(DeviceError::Os(Errno::INVAL))
            .and_then(|request| Ok((open(disks, &request)?, request.exclusive)));
        let sent = match opened {
            Ok((device, exclusive)) => {
                let sent = channel::send(lane, &encode_opened(&device), &[device.as_fd()]);
                drop(device);
                // From here on only the broker holds the claim, and the claim ends when the broker
                // closes it.
                match sent {
                    Ok(()) if exclusive => channel::send(lane, HANDED_OVER, &[]),
                    other => other,
                }
            }
            Err(error) => channel::send(lane, &encode_error(&error), &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Opens a disk of the recognised kind. For writing, it opens only with a claim, so that a disk
/// that is claimed by somebody else, such as a mounted one, cannot be written to.
fn open(disks: &DiskRoots, request: &OpenRequest) -> Result<Device, DeviceError> {
    if request.access == Access::ReadWrite && !request.exclusive {
        return Err(DeviceError::Os(Errno::PERM));
    }
    disks.open_in_this_process(request)
}
