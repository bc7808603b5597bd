//! Disks that appear while the helper looks for them.
use crate::rig::{LONG, Rig, done, staged, volume};
use ebs_csi_mount_helper::disk::device::{Access, DeviceError, DiskRoots};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_wire::{FsType, Node, Outcome, Refusal};
use rustix::fs::{Gid, Uid};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The user and group under which disks are opened (policy/sandbox/mount-helper.toml).
const OPENER: u32 = ebs_csi_policy::profile::OPENER.identity.uid;
const DISK: u32 = 6;

fn disks(rig: &Rig) -> DiskRoots {
    let devices = rig.path("dev");
    DiskRoots::at("/sys", devices.to_str().expect("utf-8"), DiskClass::LoopFile).expect("roots")
}

/// Waits until a thread sleeps, or until `over` returns true.
fn asleep(thread: rustix::process::Pid, over: impl Fn() -> bool) {
    let state = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let end = Instant::now() + LONG;
    while Instant::now() < end && !over() {
        let status = fs::read_to_string(&state).unwrap_or_default();
        if status.contains("State:\tS") {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn disk_look_up_waits_for_late_attachment() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let disks = disks(&rig);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (disks, serial) = (&disks, volume.serial());
        let found = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).expect("a listener");
            disks.find_part(&serial, None, Access::ReadOnly, LONG)
        });
        asleep(told.recv().expect("a thread"), || found.is_finished());
        let attached = rig.attach(&volume, 64 * MIB);
        let device = found.join().expect("the look-up").expect("the disk");
        assert_eq!(device.path(), attached.path());
    });
    // The helper waits for some seconds, and a repeated request finds the disk.
    let volume = self::volume();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let end = Instant::now() + LONG;
            loop {
                match rig.stage(&volume, FsType::Ext4) {
                    Outcome::Refused(refused)
                        if refused.reason == Refusal::DeviceNotFound && Instant::now() < end => {}
                    other => return other,
                }
            }
        });
        let _attached = rig.attach(&volume, 64 * MIB);
        assert!(staged(asked.join().expect("stage")).formatted);
        done(rig.unstage(&volume));
    });
}

/// The kernel makes the node with mode 0600, and udev opens it to the disk group later. A look-up
/// that does not wait fails.
#[test]
fn disk_look_up_waits_for_device_node_permissions() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let node = rig.path("dev").join(&attached.name);
    let mode = |mode| {
        fs::set_permissions(&node, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    let disks = disks(&rig);
    // The mode that the kernel sets, before udev opens the node to its group.
    mode(0o600);
    let look = &|patience: Duration| {
        let (uid, gid) = (Uid::from_raw(OPENER), Gid::from_raw(OPENER));
        rustix::thread::set_thread_groups(&[Gid::from_raw(DISK)]).expect("groups");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("gid");
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("uid");
        let found = disks.find_part(&volume.serial(), None, Access::ReadWrite, patience);
        found.map(|device| device.path())
    };
    std::thread::scope(|scope| {
        let now = scope.spawn(|| look(Duration::ZERO));
        let refused = DeviceError::Closed(Node { uid: 0, gid: DISK, mode: 0o600 });
        assert_eq!(now.join().expect("the look-up"), Err(refused));
        let (tell, told) = mpsc::channel();
        let later = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).expect("a listener");
            look(LONG)
        });
        asleep(told.recv().expect("a thread"), || later.is_finished());
        mode(0o660);
        assert_eq!(later.join().expect("the look-up"), Ok(attached.path()));
    });
}
