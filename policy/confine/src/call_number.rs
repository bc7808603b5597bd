//! Numbers of the system calls that the policy may name, on the machine that this build is for.

/// A table of names and numbers, sorted by name.
macro_rules! numbers {
    ($($name:ident => $number:ident,)+) => {
        &[$((stringify!($name), libc::$number),)+]
    };
}

const EVERYWHERE: &[(&str, i64)] = numbers! {
    accept4 => SYS_accept4,
    bind => SYS_bind,
    brk => SYS_brk,
    capget => SYS_capget,
    capset => SYS_capset,
    chdir => SYS_chdir,
    clock_getres => SYS_clock_getres,
    clock_gettime => SYS_clock_gettime,
    clock_nanosleep => SYS_clock_nanosleep,
    clone => SYS_clone,
    clone3 => SYS_clone3,
    close => SYS_close,
    close_range => SYS_close_range,
    connect => SYS_connect,
    dup => SYS_dup,
    dup3 => SYS_dup3,
    epoll_create1 => SYS_epoll_create1,
    epoll_ctl => SYS_epoll_ctl,
    epoll_pwait => SYS_epoll_pwait,
    epoll_pwait2 => SYS_epoll_pwait2,
    eventfd2 => SYS_eventfd2,
    execve => SYS_execve,
    exit => SYS_exit,
    exit_group => SYS_exit_group,
    faccessat => SYS_faccessat,
    faccessat2 => SYS_faccessat2,
    fadvise64 => SYS_fadvise64,
    fallocate => SYS_fallocate,
    fchmod => SYS_fchmod,
    fchmodat => SYS_fchmodat,
    fcntl => SYS_fcntl,
    fdatasync => SYS_fdatasync,
    fsconfig => SYS_fsconfig,
    fsmount => SYS_fsmount,
    fsopen => SYS_fsopen,
    fstat => SYS_fstat,
    fstatfs => SYS_fstatfs,
    fsync => SYS_fsync,
    ftruncate => SYS_ftruncate,
    futex => SYS_futex,
    getcpu => SYS_getcpu,
    getcwd => SYS_getcwd,
    getdents64 => SYS_getdents64,
    getegid => SYS_getegid,
    geteuid => SYS_geteuid,
    getgid => SYS_getgid,
    getgroups => SYS_getgroups,
    getpeername => SYS_getpeername,
    getpid => SYS_getpid,
    getppid => SYS_getppid,
    getrandom => SYS_getrandom,
    getresgid => SYS_getresgid,
    getresuid => SYS_getresuid,
    getrusage => SYS_getrusage,
    getsockname => SYS_getsockname,
    getsockopt => SYS_getsockopt,
    gettid => SYS_gettid,
    gettimeofday => SYS_gettimeofday,
    getuid => SYS_getuid,
    ioctl => SYS_ioctl,
    kill => SYS_kill,
    landlock_add_rule => SYS_landlock_add_rule,
    landlock_create_ruleset => SYS_landlock_create_ruleset,
    landlock_restrict_self => SYS_landlock_restrict_self,
    linkat => SYS_linkat,
    listen => SYS_listen,
    lseek => SYS_lseek,
    madvise => SYS_madvise,
    membarrier => SYS_membarrier,
    mkdirat => SYS_mkdirat,
    mknodat => SYS_mknodat,
    mmap => SYS_mmap,
    mount_setattr => SYS_mount_setattr,
    move_mount => SYS_move_mount,
    mprotect => SYS_mprotect,
    mremap => SYS_mremap,
    munmap => SYS_munmap,
    nanosleep => SYS_nanosleep,
    newfstatat => SYS_newfstatat,
    open_tree => SYS_open_tree,
    openat => SYS_openat,
    openat2 => SYS_openat2,
    pidfd_open => SYS_pidfd_open,
    pidfd_send_signal => SYS_pidfd_send_signal,
    pipe2 => SYS_pipe2,
    ppoll => SYS_ppoll,
    prctl => SYS_prctl,
    pread64 => SYS_pread64,
    preadv => SYS_preadv,
    prlimit64 => SYS_prlimit64,
    process_vm_readv => SYS_process_vm_readv,
    pwrite64 => SYS_pwrite64,
    pwritev => SYS_pwritev,
    read => SYS_read,
    readlinkat => SYS_readlinkat,
    readv => SYS_readv,
    recvfrom => SYS_recvfrom,
    recvmmsg => SYS_recvmmsg,
    recvmsg => SYS_recvmsg,
    renameat => SYS_renameat,
    renameat2 => SYS_renameat2,
    restart_syscall => SYS_restart_syscall,
    rseq => SYS_rseq,
    rt_sigaction => SYS_rt_sigaction,
    rt_sigprocmask => SYS_rt_sigprocmask,
    rt_sigreturn => SYS_rt_sigreturn,
    rt_sigtimedwait => SYS_rt_sigtimedwait,
    sched_getaffinity => SYS_sched_getaffinity,
    sched_yield => SYS_sched_yield,
    seccomp => SYS_seccomp,
    sendmmsg => SYS_sendmmsg,
    sendmsg => SYS_sendmsg,
    sendto => SYS_sendto,
    set_robust_list => SYS_set_robust_list,
    set_tid_address => SYS_set_tid_address,
    setpgid => SYS_setpgid,
    setrlimit => SYS_setrlimit,
    setsid => SYS_setsid,
    setsockopt => SYS_setsockopt,
    shutdown => SYS_shutdown,
    sigaltstack => SYS_sigaltstack,
    signalfd4 => SYS_signalfd4,
    socket => SYS_socket,
    socketpair => SYS_socketpair,
    statx => SYS_statx,
    syncfs => SYS_syncfs,
    sysinfo => SYS_sysinfo,
    tgkill => SYS_tgkill,
    timer_create => SYS_timer_create,
    timer_delete => SYS_timer_delete,
    timer_settime => SYS_timer_settime,
    tkill => SYS_tkill,
    umask => SYS_umask,
    umount2 => SYS_umount2,
    uname => SYS_uname,
    unlinkat => SYS_unlinkat,
    wait4 => SYS_wait4,
    waitid => SYS_waitid,
    write => SYS_write,
    writev => SYS_writev,
};

/// Calls that the `…at` forms replace on newer architectures.
#[cfg(target_arch = "x86_64")]
const HERE: &[(&str, i64)] = numbers! {
    access => SYS_access,
    arch_prctl => SYS_arch_prctl,
    dup2 => SYS_dup2,
    epoll_wait => SYS_epoll_wait,
    fork => SYS_fork,
    chmod => SYS_chmod,
    link => SYS_link,
    lstat => SYS_lstat,
    mkdir => SYS_mkdir,
    open => SYS_open,
    poll => SYS_poll,
    readlink => SYS_readlink,
    rename => SYS_rename,
    stat => SYS_stat,
    unlink => SYS_unlink,
    vfork => SYS_vfork,
};
#[cfg(not(target_arch = "x86_64"))]
const HERE: &[(&str, i64)] = &[];

/// Returns the number of a call; `None` when this machine or this build does not know it.
pub(crate) fn of(name: &str) -> Option<i64> {
    [EVERYWHERE, HERE]
        .into_iter()
        .flatten()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// Returns every name that each machine knows.
#[cfg(test)]
pub(crate) fn everywhere() -> impl Iterator<Item = &'static str> {
    EVERYWHERE.iter().map(|(name, _)| *name)
}

/// Returns every name that is known here.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    [EVERYWHERE, HERE].into_iter().flatten().map(|(name, _)| *name)
}
