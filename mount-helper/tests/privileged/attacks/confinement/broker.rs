//! What a broker with its own filter and user can reach of disks and of the node.
use super::script::{self, ScriptEnd};
use super::sys;
use crate::rig::{Rig, able, children, done, role, set_mode, shell, text};
use ebs_csi_confine::Entering;
use ebs_csi_confine::tool::Filters;
use ebs_csi_mount_helper::channel;
use ebs_csi_mount_helper::mount::privilege;
use ebs_csi_mount_helper::roles::confinement;
use ebs_csi_mount_helper::roles::runner::{self, Inherited};
use ebs_csi_mount_helper::sys::{Fork, fork};
use ebs_csi_mount_helper::tool::DISK_MESSAGE;
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::{FsType, Job};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, mknodat, openat2, statx,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
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

/// Mounts the ext4 on a disk, with its device nodes in effect, and opens the node `node` in it for
/// reading and writing.
fn node_on(disk: &str) -> Result<OwnedFd, Errno> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", disk)?;
    fsconfig_create(context.as_fd())?;
    let nodev = MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, nodev)?;
    let cleared = ebs_csi_mount_helper::sys::set_mount_attributes(&mount, 0, nodev.bits().into());
    cleared.map_err(|e| Errno::from_io_error(&e).expect("an errno"))?;
    openat2(&mount, "node", OFlags::RDWR, Mode::empty(), ResolveFlags::empty())
}

/// Has the real, confined runner make a file system on what is opened, and returns the errno of its
/// report. The runner takes the directory of temporary files for `/dev`.
fn format(open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<(), Errno> {
    let (ours, theirs) = channel::pair().expect("pair");
    let filters = Filters::compile().expect("filters");
    let devices = statx(CWD, std::env::temp_dir(), AtFlags::empty(), StatxFlags::MNT_ID);
    let devices_mount = devices.expect("statx").stx_mnt_id;
    if fork().expect("fork") == Fork::Child {
        drop(ours);
        confinement::supervisor(false).expect("confined");
        let inherited = Inherited { filters, devices_mount, allow_missing_landlock: false };
        exit(runner::serve(&theirs, &inherited).into());
    }
    drop(theirs);
    confine();
    let job = Job {
        tool: ToolId::Mke2fs.number(),
        fs: FsType::Ext4,
        uuid: [7; 16],
        format: Vec::new(),
        time: 0,
        deadline: 60,
    };
    channel::send(&ours, &job.encode(), &[]).expect("send");
    let disk = open()?;
    channel::send(&ours, DISK_MESSAGE, &[disk.as_fd()]).expect("send");
    let (report, _) = channel::receive(&ours).expect("a report");
    match report.as_slice() {
        [0, 0, 0, 0, 0, ..] => Ok(()),
        [3, errno @ ..] => Err(Errno::from_raw_os_error(errno[0].into())),
        other => panic!("{other:?}"),
    }
}

fn confine() {
    confinement::broker().and_then(Entering::calls).expect("confined");
}

/// Makes an attempt in the broker's profile, and exits with its errno.
pub(super) fn reach(what: &str, path: &str) {
    // These attempts need a second process.
    if !what.starts_with("format") {
        confine();
    }
    let (read, write) = (OFlags::RDONLY, OFlags::RDWR);
    let result = match what {
        "read" => open(path, read),
        "write" => open(path, write),
        "read-with-search" => privilege::with_search(|| open(path, read)),
        "write-with-search" => privilege::with_search(|| open(path, write)),
        "mount-elsewhere" => etc_at(path),
        "thaw" => thaw(path),
        "freeze" => freeze(path),
        "open-node" => node_on(path).map(drop),
        "write-node" => node_on(path).and_then(|node| rustix::io::write(node, &[0; 512]).map(drop)),
        "format-node" => format(|| node_on(path)),
        "format-disk" => {
            format(|| openat2(CWD, path, OFlags::RDWR, Mode::empty(), ResolveFlags::empty()))
        }
        other => panic!("{other:?} is nothing to try"),
    };
    exit(result.map_or_else(Errno::raw_os_error, |()| 0));
}

/// Returns the errno of an attempt, or 0 when the attempt succeeds.
fn errno(what: &str, path: &str) -> i32 {
    let run = if what == "mount-elsewhere" { script::run_apart } else { script::run };
    let ran = run("broker", &[what, path]);
    match ran.end {
        ScriptEnd::Exited(errno) => errno,
        ScriptEnd::Signalled(signal) => panic!("{what} {path}: signal {signal}: {ran:?}"),
    }
}

/// A broker that mounts a volume with a node of the mounted disk, which everybody may write to. The
/// settings permit nodes on volumes, and no filter sees what mount_setattr clears.
#[test]
fn broker_cannot_write_disk_by_node_on_volume() {
    let Some(rig) = Rig::start() else { return };
    let (volume, mounted) = rig.staged_disk(64 << 20, FsType::Ext4);
    let nodes = rig.path("outside");
    let number = fs::metadata(mounted.path()).expect("a node").rdev();
    let node = nodes.join("node");
    mknodat(CWD, &node, FileType::BlockDevice, Mode::from_raw_mode(0o666), number).expect("mknod");
    set_mode(&node, 0o666);
    let prepared = rig.attach(&crate::rig::volume(), 16 << 20);
    shell("mke2fs", &["-q", "-t", "ext4", "-d", text(&nodes), &prepared.path()]);
    assert_eq!(errno("open-node", &prepared.path()), 0);
    let written = script::run("broker", &["write-node", &prepared.path()]);
    assert_eq!(written.end, ScriptEnd::Signalled(libc::SIGSYS), "{written:?}");
    assert_eq!(errno("format-node", &prepared.path()), Errno::PERM.raw_os_error());
    let own_node = rig.path("dev").join(&prepared.name);
    rig.own(&prepared, (0, 0o666));
    assert_eq!(errno("format-disk", text(&own_node)), 0);
    done(rig.unstage(&volume));
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
