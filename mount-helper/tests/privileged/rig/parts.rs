//! The helper's processes, as /proc shows them.
use ebs_csi_audit::Process;
use ebs_csi_policy::SANDBOX;
use ebs_csi_policy::profile::{BROKER, OPENER, RELAY, RUNNER};
use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;

/// Gives this thread another user, the group of the same number, and supplementary groups.
pub(crate) fn become_user(user: u32, groups: &[u32]) {
    let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups).expect("groups");
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_res_gid(gid, gid, gid).expect("gid");
    set_thread_res_uid(uid, uid, uid).expect("uid");
}

/// Sends a signal to a process that has not ended.
pub(crate) fn send_signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("pid");
    kill_process(pid, signal).expect("kill");
}

/// Sends a signal to a process that may have ended.
pub(crate) fn try_signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Returns the numbers of a process's open descriptors and what each one refers to. A descriptor
/// that is closed meanwhile is left out.
pub(crate) fn descriptors(pid: u32) -> Vec<(String, String)> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("fd").flatten();
    let mut open: Vec<_> = open
        .filter_map(|entry| {
            let to = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
            Some((entry.file_name().to_string_lossy().into_owned(), to))
        })
        .collect();
    open.sort();
    open
}

/// Returns a copy of a descriptor of a process.
pub(crate) fn copy_descriptor(pid: u32, number: &str) -> rustix::io::Result<OwnedFd> {
    let process = Pid::from_raw(pid.cast_signed()).expect("pid");
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(process, number.parse().expect("a number"), PidfdGetfdFlags::empty())
}

/// Returns which part of the helper a process is, by the process's user or group.
pub(crate) fn role(pid: u32) -> &'static str {
    // The opener's user may be 0.
    let gid = status(pid, "Gid");
    if gid.split_whitespace().next() == Some(&OPENER.identity.gid.to_string()) {
        return "opener";
    }
    let uid = status(pid, "Uid");
    let Some(uid) = uid.split_whitespace().next().and_then(|n| n.parse().ok()) else {
        return "gone";
    };
    match uid {
        0 => "directories",
        uid if uid == BROKER.identity.uid => "broker",
        uid if uid == RUNNER.identity.uid => "runner",
        uid if uid == RELAY.identity.uid => "relay",
        _ => "gone",
    }
}

/// Returns whether this host lets a mounted ext4 grow, which means that it grants CAP_SYS_RESOURCE.
pub(crate) fn grows_mounted() -> bool {
    let bounds = status(std::process::id(), "CapBnd");
    u64::from_str_radix(&bounds, 16).is_ok_and(|bits| bits & 1 << 24 != 0)
}

/// Returns a field of /proc/PID/status, or an empty string when the process has ended.
pub(crate) fn status(pid: u32, field: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{field}:")))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Checks with the auditor that each process of a helper with the policy of tests is as its profile
/// says.
#[track_caller]
pub(crate) fn check_profiles(supervisor: u32) {
    let tree = Process::tree(supervisor).expect("the tree");
    for process in &tree {
        let profile = process.expected(&tree).expect("a profile");
        let found = [process.deviations(profile, SANDBOX), process.deviations_in(&tree)].concat();
        assert!(found.is_empty(), "{}: {found:?}", profile.name);
    }
}
