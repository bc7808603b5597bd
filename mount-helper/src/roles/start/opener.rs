//! The process that opens and reads disks, from its fork on. It holds `/sys` and `/dev` and has the
//! groups of the disks' nodes, and cannot mount.
use super::opened::Opened;
use super::{READY, confined, started};
use crate::disk::device::opener_messages::{
    Answer, KnownRequest, OpenRequest, Request, encode_answer, parse_request,
};
use crate::disk::device::{Access, Device, DeviceError, DiskRoots};
use crate::disk::reader::DiskReader;
use crate::roles::confinement;
use crate::settings::HelperSettings;
use crate::{channel, journal, sys};
use ebs_csi_confine::ThreadStarts;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Runs the opener until its lanes are closed; returns the exit status.
pub(super) fn run(
    settings: &HelperSettings,
    opened: Opened,
    memory: OwnedFd,
    lanes: Vec<OwnedFd>,
    life: &OwnedFd,
) -> Result<u8, u8> {
    journal::set_role("opener");
    sys::limit_allocator();
    sys::unblock_signals();
    sys::ignore_stop_signals();
    let (disks, nodes) = opened.into_disks();
    let written = disks.written_descriptor();
    let entering = confinement::opener(&nodes, written.as_slice(), settings.allow_missing_landlock);
    let entering = confined(entering)?;
    let threads = started("threads", start(lanes, disks, memory), 1)?;
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
/// closed. Formats are made again in `memory`.
pub fn start(
    lanes: Vec<OwnedFd>,
    disks: DiskRoots,
    memory: OwnedFd,
) -> io::Result<Vec<JoinHandle<()>>> {
    let starts = ThreadStarts::default();
    let served = Arc::new((disks, DiskReader::start(memory, &starts)?));
    let answering = |lane: OwnedFd| {
        let served = Arc::clone(&served);
        let thread = Builder::new().stack_size(128 << 10);
        starts.spawn(thread, move || serve(&lane, &served.0, &served.1))
    };
    let threads = lanes.into_iter().map(answering).collect();
    starts.wait();
    threads
}

/// Answers requests on a lane until its other end is closed.
fn serve(lane: &OwnedFd, disks: &DiskRoots, reader: &DiskReader) {
    while let Ok((message, mut descriptors)) = channel::receive(lane) {
        if message.is_empty() || answer(lane, &message, descriptors.pop(), disks, reader).is_err() {
            return;
        }
    }
}

fn answer(
    lane: &OwnedFd,
    message: &[u8],
    disk: Option<OwnedFd>,
    disks: &DiskRoots,
    reader: &DiskReader,
) -> io::Result<()> {
    let send = |answer: &Answer, descriptor: Option<BorrowedFd<'_>>| {
        channel::send(lane, &encode_answer(answer), descriptor.as_slice())
    };
    let failed = |error| send(&Answer::Failed(error), None);
    let hand_over = |opened: Result<Device, DeviceError>| match opened {
        Ok(device) => send(&Answer::Opened(device.opened().clone()), Some(device.as_fd())),
        Err(error) => failed(error),
    };
    match parse_request(message) {
        None => failed(Errno::INVAL.into()),
        Some(Request::Open(request)) => {
            let opened = open(disks, &request);
            let claimed = opened.is_ok() && request.exclusive;
            hand_over(opened)?;
            // From here on only the broker holds the claim, and the claim ends when the broker
            // closes it.
            if claimed { send(&Answer::HandedOver, None) } else { Ok(()) }
        }
        Some(Request::FindNamed(request)) => {
            hand_over(only_to_read(request.access).and_then(|()| disks.open_named(&request)))
        }
        Some(Request::OpenKnown(KnownRequest { disk, partition, access })) => {
            let opened = only_to_read(access);
            hand_over(opened.and_then(|()| disks.open_known(disk, partition, access)))
        }
        Some(Request::DiskAt { number }) => send(&Answer::DiskAt(disks.known_disk(number)), None),
        Some(Request::DisksOf { volume }) => match disks.disks_taken_for(volume.as_ref()) {
            Ok(known) => send(&Answer::Disks(known), None),
            Err(error) => failed(error),
        },
        Some(Request::Remember(known)) => match disks.remember(&known) {
            Ok(remembered) => send(&Answer::Remembered(remembered), None),
            Err(error) => failed(error),
        },
        Some(Request::Read(request)) => {
            // When the message cannot be sent, the answer cannot, either.
            let seems_blank = || drop(send(&Answer::SeemsBlank, None));
            match reader.answer(request, disk, seems_blank) {
                Ok((answer, memory)) => send(&answer, memory.as_ref().map(AsFd::as_fd)),
                Err(errno) => failed(errno.into()),
            }
        }
    }
}

/// Opens a disk of the recognised kind, whose proof is checked before and after the open. For
/// writing, it opens only with a claim, so that a disk that is claimed by somebody else, such as a
/// mounted one, cannot be written to.
fn open(disks: &DiskRoots, request: &OpenRequest) -> Result<Device, DeviceError> {
    if !request.exclusive {
        only_to_read(request.access)?;
    }
    disks.open_in_this_process(request)
}

fn only_to_read(access: Access) -> Result<(), DeviceError> {
    match access {
        Access::ReadWrite => Err(DeviceError::Os(Errno::PERM)),
        Access::ReadOnly => Ok(()),
    }
}
