//! Numbers of the system calls that the policy may name, on the machine that this build is for.

/// A table of names and numbers: the name of a call is that of its constant without `SYS_`.
macro_rules! numbers {
    ($($constant:ident)+) => {
        &[$((stringify!($constant).split_at("SYS_".len()).1, libc::$constant)),+]
    };
}

const EVERYWHERE: &[(&str, i64)] = numbers! {
    SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_gettime
    SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close SYS_close_range SYS_connect SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group
    SYS_faccessat SYS_fadvise64 SYS_fallocate SYS_fchmod SYS_fchmodat SYS_fcntl SYS_fsconfig
    SYS_fsmount SYS_fsopen SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_getcpu
    SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getpeername SYS_getpid
    SYS_getppid SYS_getrandom SYS_getrusage SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_ioctl SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset
    SYS_landlock_restrict_self SYS_linkat SYS_listen SYS_lseek SYS_madvise SYS_membarrier
    SYS_mkdirat SYS_mknodat SYS_mmap SYS_mount_setattr SYS_move_mount SYS_mprotect SYS_mremap
    SYS_munmap SYS_nanosleep SYS_newfstatat SYS_open_tree SYS_openat SYS_openat2 SYS_pidfd_open
    SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64 SYS_prlimit64 SYS_process_vm_readv SYS_pwrite64
    SYS_read SYS_readlinkat SYS_recvfrom SYS_recvmsg SYS_renameat SYS_renameat2 SYS_restart_syscall
    SYS_rseq SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigtimedwait
    SYS_sched_getaffinity SYS_sched_yield SYS_seccomp SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_set_robust_list SYS_set_tid_address SYS_setsockopt SYS_shutdown SYS_sigaltstack SYS_socket
    SYS_socketpair SYS_statx SYS_syncfs SYS_sysinfo SYS_tgkill SYS_timer_create SYS_timer_delete
    SYS_timer_settime SYS_umask SYS_umount2 SYS_uname SYS_unlinkat SYS_wait4 SYS_write SYS_writev
};

/// Calls that the `…at` forms replace on newer architectures.
#[cfg(target_arch = "x86_64")]
const HERE: &[(&str, i64)] = numbers! {
    SYS_access SYS_arch_prctl SYS_dup2 SYS_epoll_wait SYS_fork SYS_chmod SYS_link SYS_mkdir SYS_open
    SYS_poll SYS_readlink SYS_rename SYS_stat SYS_unlink SYS_vfork
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

#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    [EVERYWHERE, HERE].into_iter().flatten().map(|(name, _)| *name)
}
