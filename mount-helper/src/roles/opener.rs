//! The process that opens disks. It holds `/sys` and `/dev` and has the groups of the disks' nodes,
//! and cannot mount. The broker names a disk and the proof by which it knows the disk. The opener
//! checks this proof itself, before and after the open, and passes the descriptor to the broker.
use crate::channel;
use crate::disk::device::opener_requests::{self, HANDED_OVER, OpenRequest};
use crate::disk::device::{Access, Device, DeviceError, DiskRoots};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Starts a thread for each lane; a thread ends when the other end of its lane is closed.
pub fn start(
    lanes: Vec<OwnedFd>,
    disks: DiskRoots,
) -> io::Result<Vec<std::thread::JoinHandle<()>>> {
    let disks = Arc::new(disks);
    lanes
        .into_iter()
        .map(|lane| {
            let disks = Arc::clone(&disks);
            std::thread::Builder::new().stack_size(128 << 10).spawn(move || serve(&lane, &disks))
        })
        .collect()
}

/// Answers requests until the other end is closed.
fn serve(lane: &OwnedFd, disks: &DiskRoots) {
    while let Ok((message, descriptors)) = channel::receive(lane) {
        if message.is_empty() {
            return;
        }
        // Descriptors that come with a request are not used.
        drop(descriptors);
        let opened = opener_requests::parse_request(&message)
            .ok_or(DeviceError::Os(Errno::INVAL))
            .and_then(|request| Ok((open(disks, &request)?, request.exclusive)));
        let sent = match opened {
            Ok((device, exclusive)) => {
                let sent = channel::send(
                    lane,
                    &opener_requests::encode_opened(&device),
                    &[device.as_fd()],
                );
                drop(device);
                // From here on only the broker holds the claim, and the claim ends when the broker
                // closes it.
                match sent {
                    Ok(()) if exclusive => channel::send(lane, HANDED_OVER, &[]),
                    other => other,
                }
            }
            Err(error) => channel::send(lane, &opener_requests::encode_error(&error), &[]),
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
