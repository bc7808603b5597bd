//! Names that the policy files may use for numbers of the kernel's interface (asm-generic; the same
//! on x86_64 and aarch64).

const VALUES: &[(&str, u64)] = &[
    // linux/fs.h, linux/blkdev.h
    ("BLKROSET", 0x125d),
    ("BLKROGET", 0x125e),
    ("BLKGETSIZE", 0x1260),
    ("BLKFLSBUF", 0x1261),
    ("BLKSSZGET", 0x1268),
    ("BLKBSZSET", 0x4008_1271),
    ("BLKGETSIZE64", 0x8008_1272),
    ("BLKDISCARD", 0x1277),
    ("BLKIOMIN", 0x1278),
    ("BLKIOOPT", 0x1279),
    ("BLKALIGNOFF", 0x127a),
    ("BLKPBSZGET", 0x127b),
    ("BLKDISCARDZEROES", 0x127c),
    ("BLKZEROOUT", 0x127f),
    ("BLKGETDISKSEQ", 0x8008_1280),
    ("BLKGETZONESZ", 0x8004_1284),
    ("FIGETBSZ", 2),
    ("FITHAW", 0xc004_5878),
    // linux/fd.h, linux/hdreg.h: asked by tools that look for floppies and geometry
    ("FDGETFDCSTAT", 0x8028_0215),
    ("HDIO_GETGEO", 0x301),
    // linux/cdrom.h: asked by libblkid
    ("CDROM_GET_CAPABILITY", 0x5331),
    ("CDROM_LAST_WRITTEN", 0x5395),
    // asm-generic/ioctls.h
    ("TCGETS", 0x5401),
    ("TIOCGWINSZ", 0x5413),
    ("FIONREAD", 0x541b),
    ("FIONBIO", 0x5421),
    ("FIOCLEX", 0x5451),
    // fs/xfs/libxfs/xfs_fs.h
    ("XFS_IOC_FSGEOMETRY_V1", 0x8070_5864),
    ("XFS_IOC_FSGEOMETRY", 0x8100_587e),
    ("XFS_IOC_FSGROWFSDATA", 0x4010_586e),
    // fs/ext4/ext4.h
    ("EXT4_IOC_RESIZE_FS", 0x4008_6610),
    // linux/nvme_ioctl.h
    ("NVME_IOCTL_ADMIN_CMD", 0xc048_4e41),
    // linux/seccomp.h
    ("SECCOMP_IOCTL_NOTIF_RECV", 0xc050_2100),
    ("SECCOMP_IOCTL_NOTIF_SEND", 0xc018_2101),
    ("SECCOMP_IOCTL_NOTIF_ID_VALID", 0x4008_2102),
    ("SECCOMP_IOCTL_NOTIF_ADDFD", 0x4018_2103),
    ("SECCOMP_IOCTL_NOTIF_SET_FLAGS", 0x4008_2104),
    // linux/sched.h
    ("CLONE_THREAD", 0x1_0000),
    // Also linux/sched.h: the flags that fork(3) of glibc and pthread_create(3) of both C libraries
    // pass. fork(3) of musl passes SIGCHLD alone.
    ("CLONE_OF_FORK", 0x0120_0011),
    ("CLONE_OF_THREAD", 0x003d_0f00),
    ("CLONE_OF_THREAD_MUSL", 0x007d_0f00),
    // linux/fcntl.h
    ("F_DUPFD", 0),
    ("F_GETFD", 1),
    ("F_SETFD", 2),
    ("F_GETFL", 3),
    ("F_SETFL", 4),
    ("F_DUPFD_CLOEXEC", 1030),
    // linux/mman.h
    ("PROT_EXEC", 4),
    ("MAP_SHARED", 1),
    // linux/mount.h
    ("MOUNT_ATTR_NODEV", 4),
    // prlimit64(2): the calling process
    ("OWN_PROCESS", 0),
    // linux/prctl.h
    ("PR_GET_DUMPABLE", 3),
    ("PR_SET_NAME", 15),
    ("PR_SET_VMA", 0x5356_4d41),
    // asm-generic/signal.h
    ("SIGKILL", 9),
    ("SIGTERM", 15),
    ("SIGCHLD", 17),
    // linux/socket.h
    ("AF_UNIX", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("AF_NETLINK", 16),
    ("AF_VSOCK", 40),
    ("MSG_FASTOPEN", 0x2000_0000),
    // linux/in.h: 0 chooses TCP for a stream and UDP for datagrams
    ("IPPROTO_IP", 0),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    // linux/securebits.h
    ("SECBIT_NOROOT", 1),
    ("SECBIT_NOROOT_LOCKED", 1 << 1),
    ("SECBIT_NO_SETUID_FIXUP", 1 << 2),
    ("SECBIT_NO_SETUID_FIXUP_LOCKED", 1 << 3),
    ("SECBIT_KEEP_CAPS_LOCKED", 1 << 5),
    ("SECBIT_NO_CAP_AMBIENT_RAISE", 1 << 6),
    ("SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED", 1 << 7),
    // linux/stat.h
    ("S_IFMT", 0o170_000),
    ("S_IFREG", 0o100_000),
];

/// The bits of an argument that the kernel reads, by its declaration (SYSCALL_DEFINE of its
/// sources). A comparison of more bits than the kernel reads lets other values stand for one that
/// is refused, and so does a comparison of fewer.
const ARGUMENTS: &[(&str, u8, u64)] = &[
    // int, pid_t, unsigned int, umode_t: the kernel ignores the upper half.
    ("close", 0, INT),
    ("fcntl", 1, INT),
    ("fsmount", 2, INT),
    ("ftruncate", 0, INT),
    ("ioctl", 1, INT),
    ("kill", 1, INT),
    ("mknodat", 2, INT),
    ("prctl", 0, INT),
    ("prlimit64", 0, INT),
    ("sendto", 3, INT),
    ("socket", 0, INT),
    ("socket", 2, INT),
    ("socketpair", 0, INT),
    ("tgkill", 0, INT),
    ("write", 0, INT),
    // unsigned long
    ("clone", 0, LONG),
    ("mmap", 2, LONG),
    ("mmap", 3, LONG),
];
/// Calls that newer machines do not have: there, the `…at` forms replace them.
pub(crate) const ONLY_X86_64: &[&str] = &[
    "access",
    "arch_prctl",
    "chmod",
    "dup2",
    "epoll_wait",
    "fork",
    "link",
    "mkdir",
    "open",
    "poll",
    "readlink",
    "rename",
    "stat",
    "unlink",
    "vfork",
];

const INT: u64 = u32::MAX as u64;
const LONG: u64 = u64::MAX;

const ERRORS: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("EACCES", 13),
    ("EINVAL", 22),
    ("ENOTTY", 25),
    ("ENOSYS", 38),
    ("EAFNOSUPPORT", 97),
];

/// linux/mount.h
const MOUNT_ATTRIBUTES: &[(&str, u64)] = &[
    ("NOSUID", 0x2),
    ("NODEV", 0x4),
    ("NOEXEC", 0x8),
    ("ATIME", 0x70),
    ("RELATIME", 0),
    ("NOATIME", 0x10),
    ("STRICTATIME", 0x20),
    ("NODIRATIME", 0x80),
    ("NOSYMFOLLOW", 0x20_0000),
];

/// linux/capability.h
const CAPABILITIES: &[(&str, u8)] =
    &[("DAC_READ_SEARCH", 2), ("KILL", 5), ("SYS_ADMIN", 21), ("SYS_RESOURCE", 24)];

/// The kinds of namespaces in `/proc/PID/ns`, and the flag of linux/sched.h that makes one.
const NAMESPACES: &[(&str, u64)] = &[
    ("cgroup", 0x0200_0000),
    ("ipc", 0x0800_0000),
    ("mnt", 0x0002_0000),
    ("net", 0x4000_0000),
    ("pid", 0x2000_0000),
    ("user", 0x1000_0000),
    ("uts", 0x0400_0000),
];

fn find<T: Copy>(table: &[(&str, T)], name: &str, what: &str) -> Result<T, String> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("{name:?} is not a known {what}"))
}

pub(crate) fn value(name: &str) -> Result<u64, String> {
    find(VALUES, name, "constant")
}

pub(crate) fn argument_bits(call: &str, argument: u8) -> Result<u64, String> {
    let known = ARGUMENTS.iter().find(|(of, index, _)| *of == call && *index == argument);
    let missing = || format!("argument {argument} of {call} is not a known argument");
    known.map(|(_, _, bits)| *bits).ok_or_else(missing)
}

pub(crate) fn error(name: &str) -> Result<i32, String> {
    find(ERRORS, name, "errno")
}

pub(crate) fn mount_attribute(name: &str) -> Result<u64, String> {
    find(MOUNT_ATTRIBUTES, name, "mount attribute")
}

pub(crate) fn capability(name: &str) -> Result<u8, String> {
    find(CAPABILITIES, name, "capability")
}

pub(crate) fn namespace(kind: &str) -> Result<u64, String> {
    find(NAMESPACES, kind, "kind of namespace")
}
