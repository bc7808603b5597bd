//! A tool that its disk's content has compromised, on a kernel without Landlock or whose Landlock
//! does not restrict signals.
use super::script::{self, ScriptEnd};
use super::sys;
use crate::rig::{able, become_user};
use ebs_csi_confine::Entering;
use ebs_csi_confine::tool::Filters;
use ebs_csi_mount_helper::sys::{Fork, fork};
use ebs_csi_policy::profile;
use ebs_csi_policy::tool::ToolId;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use std::process::exit;

/// Commands of fcntl(2), from linux/fcntl.h.
const F_SETOWN: i64 = 8;
const F_SETSIG: i64 = 10;
const F_SETOWN_EX: i64 = 15;
const F_SETLEASE: i64 = 1024;
const F_NOTIFY: i64 = 1026;
const F_GETFL: i64 = 3;

/// The attempts, and how the attempting process ends.
const TRIES: [(&str, ScriptEnd); 12] = [
    ("abort", ScriptEnd::Signalled(libc::SIGABRT)),
    ("getfl", ScriptEnd::Exited(0)),
    ("own-limit", ScriptEnd::Exited(0)),
    ("tgkill", ScriptEnd::Signalled(libc::SIGSYS)),
    ("tkill", ScriptEnd::Signalled(libc::SIGSYS)),
    ("kill", ScriptEnd::Signalled(libc::SIGSYS)),
    ("setown", ScriptEnd::Exited(libc::EINVAL)),
    ("setown-ex", ScriptEnd::Exited(libc::EINVAL)),
    ("setsig", ScriptEnd::Exited(libc::EINVAL)),
    ("setlease", ScriptEnd::Exited(libc::EINVAL)),
    ("notify", ScriptEnd::Exited(libc::EINVAL)),
    ("limit", ScriptEnd::Exited(libc::EPERM)),
];

/// Makes an attempt in the tool's profile, beside another process of the tool's user.
pub(super) fn reach(what: &str) {
    let (ended, end) = std::io::pipe().expect("pipe");
    let Fork::Parent(neighbour) = fork().expect("fork") else {
        drop(end);
        become_user(profile::TOOL.identity.uid, &[]);
        let _ = rustix::io::read(&ended, &mut [0_u8]);
        exit(0);
    };
    drop(ended);
    let filters = Filters::compile().expect("filters");
    let entering = Entering::begin(profile::SUPERVISOR).and_then(Entering::identity);
    entering.and_then(Entering::calls).expect("confined");
    filters.install(ToolId::Mke2fs).expect("confined");
    let (it, kill) = (i64::from(neighbour), i64::from(libc::SIGKILL));
    let fcntl = |command, value| sys::call(libc::SYS_fcntl, [0, command, value, 0]);
    let limit = |of| {
        let few = Rlimit { current: Some(100), maximum: Some(100) };
        Ok(prlimit(of, Resource::Cpu, few).map(|_| 0)?)
    };
    let result = match what {
        "abort" => std::process::abort(),
        "getfl" => fcntl(F_GETFL, 0),
        "own-limit" => limit(None),
        "tgkill" => sys::call(libc::SYS_tgkill, [it, it, kill, 0]),
        "tkill" => sys::call(libc::SYS_tkill, [it, kill, 0, 0]),
        "kill" => sys::call(libc::SYS_kill, [it, kill, 0, 0]),
        "setown" => fcntl(F_SETOWN, it),
        "setown-ex" => fcntl(F_SETOWN_EX, 0),
        "setsig" => fcntl(F_SETSIG, kill),
        "setlease" => fcntl(F_SETLEASE, libc::F_RDLCK.into()),
        "notify" => fcntl(F_NOTIFY, 1),
        "limit" => limit(Pid::from_raw(neighbour)),
        other => panic!("{other:?} is nothing to try"),
    };
    drop(end);
    // The standard library's exit makes a call that the tool's filter forbids.
    let status = result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0);
    let _ = sys::call(libc::SYS_exit_group, [status.into(), 0, 0, 0]);
}

/// N19: tgkill, tkill, kill, prlimit64 on a process of the same uid, fcntl F_SETOWN, F_SETSIG,
/// F_NOTIFY, F_SETLEASE, all without Landlock.
#[test]
fn tool_cannot_reach_other_processes_of_its_user() {
    if !able() {
        return;
    }
    let found = TRIES.map(|(what, _)| script::run("tool", &[what]).end);
    assert_eq!(found, TRIES.map(|(_, end)| end));
}
