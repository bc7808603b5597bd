//! Disks that appear while the helper looks for them.
use crate::rig::{
    LONG, MIB, Rig, become_user, done, retry_refused, set_mode, staged, text, volume, wait_until,
};
use ebs_csi_mount_helper::disk::device::{Access, DeviceError, DiskRoots};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_wire::{FsType, Node};

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

/// The user and group under which disks are opened (policy/sandbox/mount-helper.toml).
const OPENER: u32 = ebs_csi_policy::profile::OPENER.identity.uid;
const DISK: u32 = 6;

fn disks(rig: &Rig) -> DiskRoots {
    let devices = rig.path("dev");
    DiskRoots::at("/sys", text(&devices), DiskClass::LoopFile).expect("roots")
}

/// Waits until a thread sleeps, or until `over` returns true.
fn wait_until_asleep(thread: rustix::process::Pid, over: impl Fn() -> bool) {
    let state = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let sleeps = || fs::read_to_string(&state).is_ok_and(|text| text.contains("State:\tS"));
    wait_until(|| format!("{state} does not sleep"), || over() || sleeps());
}

#[test]
fn disk_look_up_waits_for_late_attachment() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let disks = disks(&rig);
    std::thread::scope(|scope| {
        let (send_thread, thread) = mpsc::channel();
        let (disks, serial) = (&disks, volume.serial());
        let found = scope.spawn(move || {
            send_thread.send(rustix::thread::gettid()).expect("a listener");
            disks.find_part(&serial, None, Access::ReadOnly, LONG)
        });
        wait_until_asleep(thread.recv().expect("a thread"), || found.is_finished());
        let attached = rig.attach(&volume, 64 * MIB);
        let device = found.join().expect("the look-up").expect("the disk");
        assert_eq!(device.path(), attached.path());
    });
    // The helper waits for some seconds, and a repeated request finds the disk.
    let volume = self::volume();
    std::thread::scope(|scope| {
        let stage = scope.spawn(|| retry_refused(|| rig.stage(&volume, FsType::Ext4)));
        let _attached = rig.attach(&volume, 64 * MIB);
        assert!(staged(stage.join().expect("stage")).formatted);
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

    let disks = disks(&rig);
    // The mode that the kernel sets, before udev opens the node to its group.
    set_mode(&node, 0o600);
    let look = &|timeout: Duration| {
        become_user(OPENER, &[DISK]);
        let found = disks.find_part(&volume.serial(), None, Access::ReadWrite, timeout);
        found.map(|device| device.path())
    };
    std::thread::scope(|scope| {
        let now = scope.spawn(|| look(Duration::ZERO));
        let refused = DeviceError::Closed(Node { uid: 0, gid: DISK, mode: 0o600 });
        assert_eq!(now.join().expect("the look-up"), Err(refused));
        let (send_thread, thread) = mpsc::channel();
        let later = scope.spawn(move || {
            send_thread.send(rustix::thread::gettid()).expect("a listener");
            look(LONG)
        });
        wait_until_asleep(thread.recv().expect("a thread"), || later.is_finished());
        set_mode(&node, 0o660);
        assert_eq!(later.join().expect("the look-up"), Ok(attached.path()));
    });
}
