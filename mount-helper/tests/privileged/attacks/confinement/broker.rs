//! What a broker with its own filter and user can reach of disks and of the node.
use super::script::{self, ScriptEnd};
use super::sys;
use crate::rig::{Rig, able, children, done, role, set_mode};
use ebs_csi_confine::Entering;
use ebs_csi_mount_helper::mount::privilege;
use ebs_csi_mount_helper::roles::confinement;
use ebs_csi_wire::FsType;
use rustix::fd::AsRawFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::fs;
use std::process::exit;

/// Calls openat2(2), the only call with which the broker opens files, without any RESOLVE flag: the
/// filter cannot see these flags.
fn open(path: &str, flags: OFlags) -> Result<(), Errno> {
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty()).map(drop)
}

fn etc_at(path: &str) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = open_tree(CWD, "/etc", flags)?;
    move_mount(&copy, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn thaw(path: &str) -> Result<(), Errno> {
    let directory = openat2(CWD, path, OFlags::RDONLY, Mode::empty(), ResolveFlags::empty())?;
    let was_frozen = ebs_csi_mount_helper::sys::thaw(directory);
    assert!(!was_frozen.map_err(|e| Errno::from_io_error(&e).expect("an errno"))?);
    Ok(())
}

fn freeze(path: &str) -> Result<(), Errno> {
    const FIFREEZE: i64 = 0xc004_5877;
    let directory = openat2(CWD, path, OFlags::RDONLY, Mode::empty(), ResolveFlags::empty())?;
    let frozen = sys::call(libc::SYS_ioctl, [directory.as_raw_fd().into(), FIFREEZE, 0, 0]);
    frozen.map(drop).map_err(|e| Errno::from_io_error(&e).expect("an errno"))
}

/// Makes an attempt in the broker's profile, and exits with its errno.
pub(super) fn reach(what: &str, path: &str) {
    confinement::broker().and_then(Entering::calls).expect("confined");
    let (read, write) = (OFlags::RDONLY, OFlags::RDWR);
    let result = match what {
        "read" => open(path, read),
        "write" => open(path, write),
        "read-with-search" => privilege::with_search(|| open(path, read)),
        "write-with-search" => privilege::with_search(|| open(path, write)),
        "mount-elsewhere" => etc_at(path),
        "thaw" => thaw(path),
        "freeze" => freeze(path),
        other => panic!("{other:?} is nothing to try"),
    };
    exit(result.map_or_else(Errno::raw_os_error, |()| 0));
}

/// Returns the errno of an attempt, or 0 when the attempt succeeds.
fn errno(what: &str, path: &str) -> i32 {
    let run = if what == "mount-elsewhere" { script::run_apart } else { script::run };
    match run("broker", &[what, path]).end {
        ScriptEnd::Exited(errno) => errno,
        ScriptEnd::Signalled(signal) => panic!("{what} {path}: signal {signal}"),
    }
}

/// N17: With CAP_DAC_READ_SEARCH the broker can still read a file of root, and it can mount.
#[test]
fn broker_cannot_open_disk_or_write_root_file() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    let shown = rig.path("outside");
    let secret = shown.join("secret");
    fs::write(&secret, "of root alone").expect("write");
    set_mode(&secret, 0o600);
    let secret = secret.display().to_string();
    // The disk's device node has mode 0660 and the group that owns disks.
    let disk = rig.path("dev").join(&attached.name).display().to_string();
    let refused = Errno::ACCESS.raw_os_error();
    for path in [&disk, &secret] {
        for what in ["read", "write", "write-with-search"] {
            assert_eq!(errno(what, path), refused, "{what} {path}");
        }
    }
    // What remains possible: the capability that opens the roots of volumes reads every file, where
    // the host grants it, and the broker's purpose is to mount.
    let shown = shown.display().to_string();
    assert_eq!(errno("read-with-search", &secret), 0);
    assert_eq!(errno("mount-elsewhere", &shown), 0);
    done(rig.unstage(&volume));
}

#[test]
fn broker_may_thaw_but_not_freeze() {
    if !able() {
        return;
    }
    // Nobody can freeze this file system, whatever the filter does.
    assert_eq!(errno("thaw", "/proc"), 0);
    assert_eq!(script::run("broker", &["freeze", "/proc"]).end, ScriptEnd::Signalled(libc::SIGSYS));
}

/// N17: look for the node's network, IPC and UTS namespaces in each process of the helper.
#[test]
fn the_helper_shares_no_network_with_the_node() {
    let Some(rig) = Rig::start() else { return };
    let namespaces = |pid: &str| {
        ["net", "ipc", "uts"].map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap())
    };
    let ours = namespaces("self");
    let supervisors = namespaces(&rig.pid().to_string());
    for pid in children(rig.pid()).into_iter().chain([rig.pid()]) {
        let its = namespaces(&pid.to_string());
        assert_eq!(its, supervisors, "the roles share one set");
        for (its, ours) in its.iter().zip(&ours) {
            assert_ne!(its, ours, "{}", role(pid));
        }
    }
}
