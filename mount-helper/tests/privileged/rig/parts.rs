//! The helper's processes, as /proc shows them.
use ebs_csi_policy::profile::{BROKER, OPENER, RUNNER};
use std::fs;

pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
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
