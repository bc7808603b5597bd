//! The system calls without a safe wrapper: loop device control, and subvolumes of btrfs.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

// From linux/loop.h; `LOOP_CONFIGURE` needs Linux 5.8.
const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LOOP_CLR_FD: u64 = 0x4C01;
const LOOP_SET_CAPACITY: u64 = 0x4C07;
// From linux/fs.h.
const BLKROSET: u64 = 0x125D;
const LO_FLAGS_DIRECT_IO: u32 = 16;
// From linux/btrfs.h.
const BTRFS_IOC_SNAP_CREATE: u64 = 0x5000_9401;
const BTRFS_IOC_SUBVOL_CREATE: u64 = 0x5000_940E;
const BTRFS_IOC_SNAP_DESTROY: u64 = 0x5000_940F;

/// `struct loop_info64`, linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`, linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct btrfs_ioctl_vol_args`, linux/btrfs.h.
#[repr(C)]
struct SubvolumeArguments {
    fd: i64,
    name: [u8; 4088],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);
const _: () = assert!(size_of::<SubvolumeArguments>() == 4096);

/// Returns the number of a loop device that was free a moment ago, through `/dev/loop-control`.
pub(crate) fn free_loop(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument; the descriptor is open for the whole call.
    let n = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    u32::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Binds a file to a loop device, with 512-byte sectors and, if the file supports it, direct I/O,
/// and makes the device writable: the kernel keeps the read-only flag of the file bound before.
/// Fails with `EBUSY` if another process took the device.
pub(crate) fn bind_loop(device: &File, image: &File, name: &str) -> io::Result<()> {
    let mut file_name = [0; 64];
    for (to, from) in file_name[..63].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let config = LoopConfig {
        fd: u32::try_from(image.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 512,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_DIRECT_IO,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads a `loop_config` of exactly this size and layout (asserted above)
    // during the call and keeps no pointer; both descriptors are open for the whole call.
    let r = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    let read_only: libc::c_int = 0;
    // SAFETY: the kernel reads one `int` during the call and keeps no pointer; the descriptor is
    // open for the whole call.
    let r = unsafe { libc::ioctl(device.as_raw_fd(), BLKROSET as _, &raw const read_only) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unbinds a loop device. If others have the device open, the kernel unbinds it on the last close.
pub(crate) fn clear_loop(device: &File) -> io::Result<()> {
    plain(device, LOOP_CLR_FD)
}

pub(crate) fn grow_loop(device: &File) -> io::Result<()> {
    plain(device, LOOP_SET_CAPACITY)
}

fn plain(device: &File, request: u64) -> io::Result<()> {
    // SAFETY: the requests that reach this call take no argument (0 is ignored); the descriptor is
    // open for the whole call.
    let r = unsafe { libc::ioctl(device.as_raw_fd(), request as _, 0) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Creates an empty subvolume in a directory. Fails on a file system other than btrfs.
pub(crate) fn create_subvolume(directory: &File, name: &str) -> io::Result<()> {
    subvolume(directory, BTRFS_IOC_SUBVOL_CREATE, 0, name)
}

/// Creates a subvolume with the files of another one, all as they were at one moment.
pub(crate) fn snapshot_subvolume(directory: &File, name: &str, source: &File) -> io::Result<()> {
    subvolume(directory, BTRFS_IOC_SNAP_CREATE, source.as_raw_fd().into(), name)
}

pub(crate) fn delete_subvolume(directory: &File, name: &str) -> io::Result<()> {
    subvolume(directory, BTRFS_IOC_SNAP_DESTROY, 0, name)
}

fn subvolume(directory: &File, request: u64, fd: i64, name: &str) -> io::Result<()> {
    let mut arguments = SubvolumeArguments { fd, name: [0; 4088] };
    for (to, from) in arguments.name[..255].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: the kernel reads a `btrfs_ioctl_vol_args` of exactly this size and layout (asserted
    // above) during the call and keeps no pointer; the descriptors are open for the whole call.
    let r = unsafe { libc::ioctl(directory.as_raw_fd(), request as _, &raw const arguments) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
