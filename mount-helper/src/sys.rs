//! The system calls that have no safe wrapper. The only file of this crate with `unsafe`.
//!
//! Every function takes and returns owned or borrowed descriptors and plain numbers; no pointer
//! leaves this file.
#![allow(unsafe_code)]

use rustix::event::Timespec;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::time::Duration;

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn checked_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns the number of an error of the system; `EIO` for an error that has none.
pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The side of a fork that this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The new process.
    Child,
    /// The old process, with the process id of the new one.
    Parent(i32),
}

/// Calls fork(2). Only for a process with one thread, because the child goes on to run arbitrary
/// Rust.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the callers are single-threaded (start-up, supervisor and runner never start a
    // thread), so the child inherits no lock that another thread held.
    match checked(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Moves the process into new namespaces (unshare(2)), one for each of these `CLONE_NEW…` flags.
/// Fails with EINVAL for any other flag.
pub fn unshare_namespaces(flags: u64) -> io::Result<()> {
    const KNOWN: c_int = libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS;
    let flags = c_int::try_from(flags).ok().filter(|flags| flags & !KNOWN == 0);
    let flags = flags.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: these flags touch neither memory nor descriptors of the process.
    checked(unsafe { libc::unshare(flags) })?;
    Ok(())
}

/// Returns the user id of the process at the other end of a unix socket (`SO_PEERCRED`, unix(7)). A
/// peer in another pid namespace has pid 0 there, so only the ids are an identity; rustix's
/// `socket_peercred` has no value for that pid.
pub fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` and `length` live across the call, and `length` states the size of the
    // buffer behind the pointer.
    checked(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    })?;
    if length as usize != size_of::<libc::ucred>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(credentials.uid)
}

const VSOCK_BACKLOG: i32 = 64;

/// Listens at a vsock port (vsock(7)) of one CID of this machine, or of all.
pub fn listen_on_vsock(cid: Option<u32>, port: u32) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::VSOCK,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: `sockaddr_vm` consists of integers, for which zero is a value.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = cid.unwrap_or(libc::VMADDR_CID_ANY);
    address.svm_port = port;
    // SAFETY: `address` lives across the call, and the length is that of its type.
    checked(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_vm>() as libc::socklen_t,
        )
    })?;
    rustix::net::listen(&socket, VSOCK_BACKLOG)?;
    Ok(socket)
}

/// Accepts a vsock connection; returns it with the CID of the machine that connected.
pub fn accept_vsock(listener: impl AsFd) -> Result<(OwnedFd, u32), Errno> {
    // SAFETY: `sockaddr_vm` consists of integers, for which zero is a value.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: `address` and `length` live across the call, and `length` states the size of the
    // buffer behind the pointer.
    let accepted = checked(unsafe {
        libc::accept4(
            listener.as_fd().as_raw_fd(),
            (&raw mut address).cast(),
            &raw mut length,
            libc::SOCK_CLOEXEC,
        )
    });
    let number = accepted.map_err(|error| errno_of(&error))?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    if i32::from(address.svm_family) != libc::AF_VSOCK {
        return Err(Errno::AFNOSUPPORT);
    }
    Ok((socket, address.svm_cid))
}

/// Returns the size of a page of memory, in bytes (sysconf(3)).
pub fn page_bytes() -> u32 {
    // SAFETY: the call takes a number and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).unwrap_or(4096)
}

const BLKGETSIZE64: u32 = 0x8008_1272;
const BLKROSET: u32 = 0x125d;
const BLKROGET: u32 = 0x125e;
const BLKGETDISKSEQ: u32 = 0x8008_1280;
const XFS_IOC_FSGEOMETRY_V1: u32 = 0x8070_5864;
const XFS_IOC_FSGROWFSDATA: u32 = 0x4010_586e;
const EXT4_IOC_RESIZE_FS: u32 = 0x4008_6610;
const FITHAW: u32 = 0xc004_5878;
const SECCOMP_IOCTL_NOTIF_SET_FLAGS: u32 = 0x4008_2104;

fn read_number(fd: BorrowedFd<'_>, command: u32) -> io::Result<u64> {
    let mut value = 0_u64;
    // SAFETY: both commands that reach this function write exactly one u64 behind the pointer.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), command as _, &raw mut value) })?;
    Ok(value)
}

/// Returns the size of a block device, in bytes (`BLKGETSIZE64`).
pub fn block_bytes(device: impl AsFd) -> io::Result<u64> {
    read_number(device.as_fd(), BLKGETSIZE64)
}

/// Returns the number that the kernel gives to each attachment of a disk (`BLKGETDISKSEQ`); the
/// kernel uses no number twice until a reboot.
pub fn disk_sequence(device: impl AsFd) -> io::Result<u64> {
    read_number(device.as_fd(), BLKGETDISKSEQ)
}

/// Returns whether the kernel refuses writes to the device, through whatever descriptor
/// (`BLKROGET`).
pub fn is_read_only(device: impl AsFd) -> io::Result<bool> {
    let mut value: c_int = 0;
    // SAFETY: the command writes exactly one int behind the pointer.
    checked(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKROGET as _, &raw mut value) })?;
    Ok(value != 0)
}

/// Makes the kernel refuse writes to the device, or accept them again (`BLKROSET`).
pub fn set_read_only(device: impl AsFd, read_only: bool) -> io::Result<()> {
    let value = c_int::from(read_only);
    // SAFETY: the command reads exactly one int behind the pointer.
    checked(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKROSET as _, &raw const value) })?;
    Ok(())
}

/// Returns the geometry of a mounted XFS: (block size in bytes, data blocks, maximum percentage of
/// inodes).
pub fn xfs_geometry(root: impl AsFd) -> io::Result<(u32, u64, u32)> {
    // struct xfs_fsop_geom_v1: seven u32 (blocksize first), imaxpct, then u64 datablocks.
    let mut words = [0_u64; 14];
    // SAFETY: the command writes the 112 bytes of struct xfs_fsop_geom_v1, which is the size of
    // `words`.
    checked(unsafe {
        libc::ioctl(root.as_fd().as_raw_fd(), XFS_IOC_FSGEOMETRY_V1 as _, words.as_mut_ptr())
    })?;
    let half = |index: usize| {
        let bytes = words[index / 2].to_ne_bytes();
        let at = (index % 2) * 4;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    Ok((half(0), words[4], half(7)))
}

/// Grows the data section of a mounted XFS to `blocks` (`XFS_IOC_FSGROWFSDATA`).
pub fn xfs_grow(root: impl AsFd, blocks: u64, inode_percent: u32) -> io::Result<()> {
    #[repr(C)]
    struct GrowData {
        newblocks: u64,
        imaxpct: u32,
        padding: u32,
    }
    let wanted = GrowData { newblocks: blocks, imaxpct: inode_percent, padding: 0 };
    // SAFETY: the command reads the 16 bytes of struct xfs_growfs_data behind the pointer.
    checked(unsafe {
        libc::ioctl(root.as_fd().as_raw_fd(), XFS_IOC_FSGROWFSDATA as _, &raw const wanted)
    })?;
    Ok(())
}

/// Grows a mounted ext4 to `blocks` (`EXT4_IOC_RESIZE_FS`). The kernel requires `CAP_SYS_RESOURCE`.
pub fn ext4_grow(root: impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: the command reads one u64 behind the pointer.
    checked(unsafe {
        libc::ioctl(root.as_fd().as_raw_fd(), EXT4_IOC_RESIZE_FS as _, &raw const blocks)
    })?;
    Ok(())
}

/// Ends the freeze of a mounted file system (`FITHAW`, fsfreeze(8)); returns whether it was frozen.
pub fn thaw(root: impl AsFd) -> io::Result<bool> {
    // SAFETY: the command uses no argument.
    match checked(unsafe { libc::ioctl(root.as_fd().as_raw_fd(), FITHAW as _, 0) }) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(e) => Err(e),
    }
}

const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
/// Size of EC2's statistics page, in bytes.
pub const STATISTICS_PAGE: usize = 4096;

/// struct nvme_admin_cmd (linux/nvme_ioctl.h).
#[repr(C)]
#[derive(Debug, Default)]
struct NvmeAdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

impl NvmeAdminCommand {
    /// Builds a Get Log Page command for the whole page 0xD0 of namespace 1.
    fn statistics(address: u64) -> Self {
        const GET_LOG_PAGE: u8 = 2;
        const PAGE: u32 = 0xd0;
        // NUMD: the number of 32-bit words minus 1.
        const WORDS: u32 = (STATISTICS_PAGE / 4 - 1) as u32;
        Self {
            opcode: GET_LOG_PAGE,
            namespace: 1,
            address,
            data_length: STATISTICS_PAGE as u32,
            words_10_to_15: [PAGE | WORDS << 16, 0, 0, 0, 0, 0],
            timeout_ms: 2000,
            ..Self::default()
        }
    }
}

/// Reads EC2's statistics page of the NVMe controller behind a disk (log page 0xD0).
pub fn nvme_statistics_page(disk: impl AsFd) -> io::Result<Vec<u8>> {
    #[repr(C, align(4096))]
    struct Page([u8; STATISTICS_PAGE]);
    let mut page = Box::new(Page([0; STATISTICS_PAGE]));
    let address = page.0.as_mut_ptr().expose_provenance() as u64;
    let mut command = NvmeAdminCommand::statistics(address);
    // SAFETY: the command is a whole struct nvme_admin_cmd; the kernel writes at most `data_length`
    // bytes to `address`, which is the start of a page of that size that lives across the call.
    let status = checked(unsafe {
        libc::ioctl(disk.as_fd().as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command)
    })?;
    // A positive number is the controller's own status code.
    if status != 0 {
        return Err(io::Error::from_raw_os_error(libc::EREMOTEIO));
    }
    Ok(page.0.to_vec())
}

/// Sets and clears attributes of one mount in one step (mount_setattr(2)).
pub fn set_mount_attributes(mount: impl AsFd, set: u64, clear: u64) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is an empty C string and the kernel reads size_of(mount_attr) bytes behind
    // the pointer.
    checked_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Keeps the allocator small: one heap for all threads, and large buffers are returned to the
/// kernel when they are freed. By default the C library keeps a heap for each thread and keeps
/// every large buffer that it has allocated.
pub fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 64 << 10),
        (libc::M_TRIM_THRESHOLD, 64 << 10),
    ] {
        // SAFETY: mallopt(3) only changes settings of the allocator; it is called before there is a
        // second thread.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Ignores SIGINT, SIGTERM, SIGHUP and SIGPIPE: the supervisor alone decides when the tree ends.
pub fn ignore_stop_signals() {
    set_action_of_stop_signals(libc::SIG_IGN);
}

/// Restores the default action of the signals that must be able to end a tool.
pub fn default_signals() {
    set_action_of_stop_signals(libc::SIG_DFL);
}

fn set_action_of_stop_signals(action: libc::sighandler_t) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: the callers pass SIG_IGN or SIG_DFL, which install no handler of ours.
        unsafe { libc::signal(signal, action) };
    }
}

/// Calls `act` on SIGUSR1. `act` runs in a signal handler and may only store to an atomic.
#[cfg(feature = "fault-points")]
pub fn on_user_signal(act: fn()) {
    static ACT: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();
    extern "C" fn handle(_signal: c_int) {
        if let Some(act) = ACT.get() {
            act();
        }
    }
    let _ = ACT.set(act);
    let handler: extern "C" fn(c_int) = handle;
    // SAFETY: the handler reads a cell that was set before, and calls a function that only stores
    // to an atomic.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
}

/// Blocks SIGTERM, SIGINT and SIGCHLD and returns the descriptor that reports them (signalfd(2)).
pub fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is read; the calls touch nothing else
    // of ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD] {
            libc::sigaddset(&raw mut set, signal);
        }
        checked(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let fd =
            checked(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        // The descriptor is new and nobody else has it.
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Unblocks every signal: a forked child must not inherit the supervisor's mask.
pub fn unblock_signals() {
    // SAFETY: `set` is initialised by sigemptyset before it is read.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Reads the number of the next signal from a [`signal_descriptor`]; returns None when there is
/// none.
pub fn next_signal(descriptor: impl AsFd) -> io::Result<Option<i32>> {
    let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor.as_fd(), &mut record) {
        Ok(n) if n == record.len() => {
            // ssi_signo is the first u32 of the record.
            let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            Ok(i32::try_from(number).ok())
        }
        Ok(_) => Ok(None),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// A lock of the whole file, of an open file description (fcntl(2)).
fn whole_file(kind: c_int) -> libc::flock {
    // SAFETY: struct flock consists of integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Puts a shared lock on a directory, for as long as its description is open.
pub fn mark_in_use(directory: impl AsFd) -> io::Result<()> {
    let lock = whole_file(libc::F_RDLCK);
    // SAFETY: the command reads one struct flock behind the pointer.
    checked(unsafe {
        libc::fcntl(directory.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock)
    })?;
    Ok(())
}

/// Returns whether another description of the directory has the lock of [`mark_in_use`].
pub fn is_in_use(directory: impl AsFd) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the command reads and writes one struct flock behind the pointer.
    checked(unsafe {
        libc::fcntl(directory.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock)
    })?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Marks every descriptor from `first` on as closed by exec.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range with CLOEXEC closes nothing now, it changes a flag only.
    checked_long(unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })?;
    Ok(())
}

/// Replaces this process by a program. Returns only on failure.
pub fn exec(program: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let argv = pointers(arguments);
    let envp = pointers(environment);
    // SAFETY: both arrays are null-terminated and the strings behind them outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Makes the kernel kill this process when its parent dies. A change of uid resets this, so it is
/// called last.
pub fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(io::Error::other("the parent is gone"));
    }
    Ok(())
}

/// Installs a filter that sends every open to a listener and permits everything else; returns the
/// listener. A second, stricter filter may follow: the kernel takes the most restrictive answer of
/// all filters (seccomp(2)).
pub fn listen_for_opens() -> io::Result<OwnedFd> {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Offset 0 of struct seccomp_data is the call number.
    #[cfg(target_arch = "x86_64")]
    let program = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 1, 0, libc::SYS_openat as u32),
        step(JUMP_EQUAL, 0, 1, libc::SYS_open as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let program = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_openat as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let mut program = program;
    let description = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `description` and the instructions it points to live across the call; the kernel
    // copies them.
    let fd = checked_long(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const description,
        )
    })?;
    // SAFETY: the call returned a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// An open that a tool has called.
#[derive(Debug, Clone, Copy)]
pub struct OpenNotification {
    /// Identifies the notification; the answer repeats it.
    pub id: u64,
    /// Process id of the tool.
    pub pid: i32,
    /// Address of the path in the tool's memory.
    pub path_address: u64,
}

/// Receives the next notification from the listener; returns None when the calling process has
/// ended meanwhile.
pub fn next_open(listener: impl AsFd) -> io::Result<Option<OpenNotification>> {
    // SAFETY: an all-zero seccomp_notif is valid, and the kernel asks for it to be zero.
    let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the command writes one seccomp_notif behind the pointer.
    let result = unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut question)
    };
    if result < 0 {
        let e = io::Error::last_os_error();
        return match e.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(e),
        };
    }
    #[cfg(target_arch = "x86_64")]
    let path_argument = if i64::from(question.data.nr) == libc::SYS_open { 0 } else { 1 };
    #[cfg(not(target_arch = "x86_64"))]
    let path_argument = 1;
    Ok(Some(OpenNotification {
        id: question.id,
        pid: question.pid as i32,
        path_address: question.data.args[path_argument],
    }))
}

/// Makes the kernel wake the tool and the answering process on the same processor, because they
/// take turns and never run at the same time. Linux 6.6 and later; without it an answer takes
/// longer and is the same.
pub fn wake_on_same_processor(listener: impl AsFd) {
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the command takes the flags by value and touches no memory of ours.
    unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, SYNC_WAKE_UP)
    };
}

/// Makes the kernel carry out the open under the tool's own restrictions. It is no error when the
/// calling process has ended.
pub fn continue_open(listener: impl AsFd, id: u64) -> io::Result<()> {
    let answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    // SAFETY: the command reads one seccomp_notif_resp behind the pointer.
    ignore_ended_process(checked(unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer)
    }))
}

/// Answers the open with a copy of `device`: under any number, closed on exec, or under number
/// `at`, inherited by exec. It is no error when the calling process has ended.
pub fn answer_open_with(
    listener: impl AsFd,
    id: u64,
    device: BorrowedFd<'_>,
    at: Option<RawFd>,
) -> io::Result<()> {
    let numbered = at.map_or(0, |_| libc::SECCOMP_ADDFD_FLAG_SETFD as u32);
    let answer = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32 | numbered,
        srcfd: device.as_raw_fd() as u32,
        newfd: at.unwrap_or(0) as u32,
        newfd_flags: at.map_or(libc::O_CLOEXEC as u32, |_| 0),
    };
    // SAFETY: the command reads one seccomp_notif_addfd behind the pointer.
    ignore_ended_process(checked(unsafe {
        libc::ioctl(
            listener.as_fd().as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            &raw const answer,
        )
    }))
}

fn ignore_ended_process(result: io::Result<c_int>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Copies up to `into.len()` bytes from another process of the same uid (process_vm_readv(2));
/// returns the number of bytes.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: into.len() };
    // SAFETY: `local` describes `into`, which is writable for its whole length; the remote address
    // is only read by the kernel, which checks it.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn nvme_statistics_command_matches_kernel_layout() {
        assert_eq!(size_of::<NvmeAdminCommand>(), 72);
        assert_eq!(offset_of!(NvmeAdminCommand, address), 24);
        assert_eq!(offset_of!(NvmeAdminCommand, data_length), 36);
        assert_eq!(offset_of!(NvmeAdminCommand, words_10_to_15), 40);
        assert_eq!(offset_of!(NvmeAdminCommand, timeout_ms), 64);
        let command = NvmeAdminCommand::statistics(0x1000);
        assert_eq!((command.opcode, command.namespace), (2, 1));
        // The 1024 words have the numbers 0 to 1023: one more word would be written beyond the
        // buffer.
        assert_eq!(command.words_10_to_15[0], 0x03ff_00d0);
        assert_eq!(command.data_length, 4096);
    }

    #[test]
    fn nvme_statistics_of_non_nvme_file_return_enotty() {
        let null = std::fs::File::open("/dev/null").expect("open");
        let error = nvme_statistics_page(&null).expect_err("no controller");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
