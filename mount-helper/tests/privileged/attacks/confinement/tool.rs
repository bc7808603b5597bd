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
use std::io;
use std::process::exit;

/// Commands of fcntl(2), from linux/fcntl.h.
const F_SETOWN: i64 = 8;
const F_SETSIG: i64 = 10;
const F_SETOWN_EX: i64 = 15;
const F_SETLEASE: i64 = 1024;
const F_NOTIFY: i64 = 1026;
const F_GETFL: i64 = 3;

/// Makes an attempt that concerns another process of the tool's user.
type Attempt = fn(i64) -> io::Result<i64>;

const KILL: i64 = libc::SIGKILL as i64;

/// The attempts, and how the attempting process ends.
const TRIES: [(&str, ScriptEnd, Attempt); 12] = [
    ("abort", ScriptEnd::Signalled(libc::SIGABRT), |_| std::process::abort()),
    ("getfl", ScriptEnd::Exited(0), |_| fcntl(F_GETFL, 0)),
    ("own-limit", ScriptEnd::Exited(0), |_| limit(None)),
    ("tgkill", ScriptEnd::Signalled(libc::SIGSYS), |it| {
        sys::call(libc::SYS_tgkill, [it, it, KILL, 0])
    }),
    ("tkill", ScriptEnd::Signalled(libc::SIGSYS), |it| {
        sys::call(libc::SYS_tkill, [it, KILL, 0, 0])
    }),
    ("kill", ScriptEnd::Signalled(libc::SIGSYS), |it| sys::call(libc::SYS_kill, [it, KILL, 0, 0])),
    ("setown", ScriptEnd::Exited(libc::EINVAL), |it| fcntl(F_SETOWN, it)),
    ("setown-ex", ScriptEnd::Exited(libc::EINVAL), |_| fcntl(F_SETOWN_EX, 0)),
    ("setsig", ScriptEnd::Exited(libc::EINVAL), |_| fcntl(F_SETSIG, KILL)),
    ("setlease", ScriptEnd::Exited(libc::EINVAL), |_| fcntl(F_SETLEASE, libc::F_RDLCK.into())),
    ("notify", ScriptEnd::Exited(libc::EINVAL), |_| fcntl(F_NOTIFY, 1)),
    ("limit", ScriptEnd::Exited(libc::EPERM), |it| limit(Pid::from_raw(it as i32))),
];

fn fcntl(command: i64, value: i64) -> io::Result<i64> {
    sys::call(libc::SYS_fcntl, [0, command, value, 0])
}

fn limit(of: Option<Pid>) -> io::Result<i64> {
    let few = Rlimit { current: Some(100), maximum: Some(100) };
    Ok(prlimit(of, Resource::Cpu, few).map(|_| 0)?)
}

/// Makes an attempt in the tool's profile, beside another process of the tool's user.
pub(super) fn reach(what: &str) {
    let (_, _, attempt) = TRIES.iter().find(|(name, ..)| *name == what).expect(what);
    let (ended, end) = io::pipe().expect("pipe");
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
    let result = attempt(neighbour.into());
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
    let found = TRIES.map(|(what, ..)| script::run("tool", &[what]).end);
    assert_eq!(found, TRIES.map(|(_, end, _)| end));
}
