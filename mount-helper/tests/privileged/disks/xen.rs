//! Disks without a serial, as on instance types that are built on Xen: identified by the device
//! name that EC2 received, unless a fact contradicts the name. The helper runs with the policy of a
//! node. `/sys` is simulated, and the disks are loop devices.
use crate::disks::partitions::parted_image;
use crate::rig::{
    Elsewhere, MIB, Rig, Xen, assert_refused, block_target, claim, descriptors, disk, done,
    expanded, make_filesystem, retry_refused, send_signal, staged, staging, target, text, unstaged,
    usage, volume,
};
use ebs_csi_wire::{
    DeviceName, Disk, FsType, NvmeStatistics, Operation, Origin, Outcome, Refusal, Staged, Usage,
    VolumeId,
};
use rustix::process::Signal;
use std::fs;
use std::num::NonZeroU32;

/// mkfs.xfs refuses much smaller disks.
const SIZE: u64 = 320 * MIB;

pub(crate) fn named_disk(volume: &VolumeId, name: &str) -> Disk {
    Disk { device_hint: Some(DeviceName::parse(name).expect("a name")), ..disk(volume) }
}

fn stage(rig: &Rig, volume: &VolumeId, name: &str, fs_type: FsType) -> Outcome {
    stage_of(rig, named_disk(volume, name), fs_type)
}

fn stage_of(rig: &Rig, disk: Disk, fs_type: FsType) -> Outcome {
    rig.stage_with(&disk.volume.clone(), fs_type, |request| request.disk = disk)
}

fn publish(rig: &Rig, volume: &VolumeId, name: &str) -> Outcome {
    rig.publish_with(volume, "p", |request| request.disk = named_disk(volume, name))
}

fn publish_raw(rig: &Rig, volume: &VolumeId, name: &str, pod: &str) -> Outcome {
    rig.publish_disk(&named_disk(volume, name), pod, false)
}

/// Checks that a stage and a raw publish are refused for this reason.
#[track_caller]
fn refuses_both(rig: &Rig, volume: &VolumeId, name: &str, fs_type: FsType, reason: Refusal) {
    assert_refused(stage(rig, volume, name, fs_type), reason);
    assert_refused(publish_raw(rig, volume, name, "p"), reason);
}

/// Formats a new volume here and unstages it. Returns the volume and the name of its image.
fn formatted(rig: &Rig, fs_type: FsType) -> (VolumeId, String) {
    let volume = volume();
    let image = format!("{volume}.img");
    let xen = rig.attach_xen("xvdzy", &image, SIZE);
    assert!(staged(stage(rig, &volume, "/dev/xvdzy", fs_type)).formatted);
    done(rig.unstage(&volume));
    drop(xen);
    (volume, image)
}

fn attach_parted(rig: &Rig, name: &str) -> Xen {
    parted_image(&rig.path("volumes/parted.img"));
    let mut xen = rig.attach_xen(name, "parted.img", 0);
    xen.attached.add_partitions();
    for part in [1, 2] {
        rig.xen_part(&mut xen, part);
    }
    xen
}

/// The kernel calls the disk xvdba, also where the request names /dev/sdba.
#[test]
fn lifecycle_works_by_xvd_and_sd_name() {
    for (fs_type, called) in [(FsType::Ext4, "/dev/xvdba"), (FsType::Xfs, "/dev/sdba")] {
        println!("{fs_type} {called}");
        life_of(fs_type, called);
    }
}

fn life_of(fs_type: FsType, called: &str) {
    let Some(mut rig) = Rig::start_xen() else { return };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", &format!("{volume}.img"), SIZE);
    let first = staged(stage(&rig, &volume, called, fs_type));
    assert!(first.formatted && !first.already);
    rig.wait_for("disk-by-name");
    assert!(staged(stage(&rig, &volume, called, fs_type)).already);
    assert!(!done(publish(&rig, &volume, called)));
    assert!(done(publish(&rig, &volume, called)));
    let place = target(&volume, "p");
    let file = rig.inside(&place).join("file");
    fs::write(&file, "kept").expect("write");

    // Requests without a device name, to this helper and to the next one.
    for again in [false, true] {
        if again {
            rig.restart(&[]);
        }
        let usage = usage(rig.stats(&volume, &place));
        assert!(!usage.block && usage.total_bytes > 200 * MIB);
        let held = rig.inventory().volumes;
        assert_eq!(
            held.iter().map(|one| (one.staged, one.by_name)).collect::<Vec<_>>(),
            [(true, true), (false, true)]
        );
        let request = NvmeStatistics { volume: volume.clone() };
        assert_refused(rig.call(Operation::NvmeStatistics(request)), Refusal::Unsupported);
    }
    xen.attached.resize(512 * MIB);
    xen.look_again();
    // Growth of a mounted ext4 needs a capability that not every host grants; the next stage grows
    // the file system.
    if fs_type == FsType::Xfs {
        let grown = expanded(rig.expand(&volume, &staging(&volume)));
        assert_eq!(grown.filesystem_bytes, 512 * MIB);
    }
    assert_refused(rig.unstage(&volume), Refusal::StillHeld);
    done(rig.unpublish(&volume, &place));
    done(rig.unstage(&volume));
    assert!(done(rig.unstage(&volume)));
    assert_eq!(rig.mounts(&xen.attached), 0);
    let again = staged(stage(&rig, &volume, called, fs_type));
    assert!(!again.formatted && again.grown == (fs_type != FsType::Xfs), "{again:?}");
    assert_eq!(rig.staged_file(&volume, "file"), "kept");
    done(rig.unstage(&volume));
}

#[test]
fn raw_disk_lifecycle_works_by_device_name() {
    let Some(mut rig) = Rig::start_xen() else { return };
    let volume = volume();
    let _xen = rig.attach_xen("xvdba", &format!("{volume}.img"), SIZE);
    assert!(!done(publish_raw(&rig, &volume, "/dev/xvdba", "p")));
    assert!(done(publish_raw(&rig, &volume, "/dev/xvdba", "p")));
    assert!(!done(publish_raw(&rig, &volume, "/dev/xvdba", "q")));
    rig.restart(&[]);
    let usage = Usage { block: true, total_bytes: SIZE, ..Usage::default() };
    let place = block_target(&volume, "p");
    assert_eq!(rig.stats(&volume, &place), Outcome::Usage(usage));
    assert!(rig.inventory().volumes.iter().all(|one| one.volume == volume && one.by_name));
    // Another volume can neither publish nor stage the same disk.
    let other = self::volume();
    refuses_both(&rig, &other, "/dev/xvdba", FsType::Ext4, Refusal::DeviceMismatch);
    for pod in ["p", "q"] {
        done(rig.unpublish_block(&volume, pod));
    }
    assert!(rig.inventory().volumes.is_empty());
}

/// Partition 2 of xvdba mounts as /dev/xvdba2, and the whole disk then belongs to the volume.
#[test]
fn xen_partition_mounts_under_its_kernel_name() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let _xen = attach_parted(&rig, "xvdba");
    let second = Disk { partition: NonZeroU32::new(2), ..named_disk(&volume, "/dev/xvdba") };
    let first = staged(stage_of(&rig, second.clone(), FsType::Ext4));
    assert_eq!((first.formatted, first.device_bytes), (true, 340 * MIB));
    usage(rig.stats(&volume, &staging(&volume)));
    assert!(rig.mountinfo().contains(" /dev/xvdba2 "), "{}", rig.mountinfo());
    let other = self::volume();
    let one = Disk { partition: NonZeroU32::new(1), ..named_disk(&other, "/dev/xvdba") };
    assert_refused(stage_of(&rig, one, FsType::Ext4), Refusal::DeviceMismatch);
    done(rig.unstage(&volume));
    assert!(!staged(stage_of(&rig, second, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}

/// The file system's identifier names the volume. A copy is accepted, because a snapshot keeps the
/// identifier of its volume.
#[test]
fn disk_formatted_for_another_volume_is_refused() {
    let Some(rig) = Rig::start_xen() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let (first, image) = formatted(&rig, fs_type);
        // The name is the same, and the kernel shows another disk.
        let xen = rig.attach_xen("xvdba", &image, SIZE);
        let second = volume();
        refuses_both(&rig, &second, "/dev/xvdba", fs_type, Refusal::DeviceMismatch);
        rig.wait_for(&format!("identifier-of={first}"));
        let copy = Disk { origin: Origin::Copy, ..named_disk(&second, "/dev/xvdba") };
        assert!(!staged(stage_of(&rig, copy, fs_type)).formatted);
        done(rig.unstage(&second));
        drop(xen);
        let _xen = rig.attach_xen("xvdba", &image, SIZE);
        let back = staged(stage(&rig, &first, "/dev/xvdba", fs_type));
        assert!(!back.formatted && !back.checked);
        done(rig.unstage(&first));
    }
}

#[test]
fn disk_and_volume_bind_exclusively() {
    let Some(rig) = Rig::start_xen() else { return };
    let (first, second) = (volume(), volume());
    let _one = rig.attach_xen("xvdba", "one.img", SIZE);
    let _two = rig.attach_xen("xvdbb", "two.img", SIZE);
    staged(stage(&rig, &first, "/dev/xvdba", FsType::Ext4));
    refuses_both(&rig, &second, "/dev/xvdba", FsType::Ext4, Refusal::DeviceMismatch);
    rig.wait_for(&format!("taken-for={first}"));
    assert_refused(stage(&rig, &first, "/dev/xvdbb", FsType::Ext4), Refusal::DeviceAmbiguous);
    // Another volume cannot use the first volume's paths either.
    let mut request = rig.publish_request(&second, "p");
    request.disk = named_disk(&second, "/dev/xvdbb");
    request.staging = rig.kubelet(&staging(&first));
    assert_refused(rig.call(Operation::PublishFilesystem(request)), Refusal::NotStaged);
    assert_refused(rig.stats(&second, &staging(&first)), Refusal::VolumeNotAtPath);
    assert_refused(rig.unpublish(&second, &staging(&first)), Refusal::VolumeNotAtPath);
    done(rig.unstage(&first));
}

/// The staged disk was detached, and another disk took its name and number.
#[test]
fn swapped_disk_can_only_be_unstaged() {
    let Some(mut rig) = Rig::start_xen() else { return };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "one.img", SIZE);
    staged(stage(&rig, &volume, "/dev/xvdba", FsType::Ext4));
    xen.swap();
    for again in [false, true] {
        if again {
            rig.restart(&[]);
        }
        for outcome in
            [rig.stats(&volume, &staging(&volume)), rig.expand(&volume, &staging(&volume))]
        {
            assert_refused(outcome, Refusal::DeviceWithoutSerial);
        }
        assert_refused(publish(&rig, &volume, "/dev/xvdba"), Refusal::DeviceMismatch);
        refuses_both(&rig, &volume, "/dev/xvdba", FsType::Ext4, Refusal::DeviceMismatch);
    }
    // Here `/sys` and the disk itself show two attachments, as at the moment of a swap. The first
    // unstage removes the mount. Only the next one, after this moment, reports that nobody holds
    // the disk.
    assert_refused(rig.unstage(&volume), Refusal::DeviceMismatch);
    assert_eq!(rig.mounts(&xen.attached), 0);
    assert!(done(rig.unstage(&volume)));
}

#[test]
fn lost_disk_record_is_rebuilt_by_named_requests() {
    let Some(mut rig) = Rig::start_xen() else { return };
    let file = rig.path("run/helper.sock.disks");
    let (mounted, raw) = (volume(), volume());
    let one = rig.attach_xen("xvdba", "one.img", SIZE);
    let _two = rig.attach_xen("xvdbb", "two.img", SIZE);
    staged(stage(&rig, &mounted, "/dev/xvdba", FsType::Ext4));
    done(publish_raw(&rig, &raw, "/dev/xvdbb", "p"));
    let lose = |rig: &mut Rig| {
        rig.stop();
        fs::remove_file(&file).expect("remove");
        rig.run(&[]);
    };
    lose(&mut rig);
    for outcome in [
        rig.stats(&mounted, &staging(&mounted)),
        rig.expand(&mounted, &staging(&mounted)),
        rig.stats(&raw, &block_target(&raw, "p")),
    ] {
        assert_refused(outcome, Refusal::DeviceWithoutSerial);
    }
    assert!(!done(publish(&rig, &mounted, "/dev/xvdba")));
    assert!(done(publish_raw(&rig, &raw, "/dev/xvdbb", "p")));
    assert_eq!(rig.inventory().volumes.len(), 3);
    usage(rig.stats(&mounted, &staging(&mounted)));
    done(rig.unpublish(&mounted, &target(&mounted, "p")));
    // A lost record does not prevent the drain of a node.
    lose(&mut rig);
    done(rig.unpublish_block(&raw, "p"));
    let copy = rig.open_copy(&mounted);
    assert!(unstaged(rig.unstage(&mounted)).copied);
    drop(copy);
    done(rig.unstage(&mounted));
    assert_eq!(rig.mounts(&one.attached), 0);
}

#[test]
fn disk_in_use_elsewhere_is_refused() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let is_held = || refuses_both(&rig, &volume, "/dev/xvdb", FsType::Ext4, Refusal::StillHeld);
    // The machine's own disk is mounted outside the places of volumes.
    let own = rig.attach_xen("xvdb", "own.img", SIZE);
    make_filesystem(FsType::Ext4, &own.attached.path());
    let outside = rig.path("outside").display().to_string();
    rig.within(&["mount", &own.attached.path().replace(&own.attached.name, "xvdb"), &outside]);
    is_held();
    // A mount of this disk beneath the kubelet root is not removed either.
    let place = target(&volume, "p");
    let bound = rig.make_target(&place);
    rig.within(&["mount", "--bind", &outside, &bound]);
    assert_refused(rig.unpublish(&volume, &place), Refusal::VolumeNotAtPath);
    rig.within(&["umount", &bound]);
    rig.within(&["umount", &outside]);
    // A mount that is not visible here, or a program, holds the disk's exclusive claim.
    let claimed = claim(own.attached.path());
    is_held();
    drop(claimed);
    // The disk is a member of an array.
    let holder = own.directory().join("holders/md0");
    fs::write(&holder, "").expect("write");
    is_held();
    fs::remove_file(holder).expect("remove");
    assert!(!staged(stage(&rig, &volume, "/dev/xvdb", FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}

#[test]
fn partition_beside_mounted_partition_is_refused() {
    let Some(rig) = Rig::start_xen() else { return };
    let own = attach_parted(&rig, "xvdb");
    let first = format!("{}p1", own.attached.path());
    make_filesystem(FsType::Ext4, &first);
    let elsewhere = Elsewhere::mount(&first, "rw");
    let volume = volume();
    let disk = Disk { partition: NonZeroU32::new(2), ..named_disk(&volume, "/dev/xvdb") };
    let stage = || stage_of(&rig, disk.clone(), FsType::Ext4);
    assert_refused(stage(), Refusal::StillHeld);
    drop(elsewhere);
    assert!(staged(retry_refused(stage)).formatted);
    done(rig.unstage(&volume));
}

#[test]
fn only_unambiguous_xen_disk_without_serial_is_used() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let publish = || publish_raw(&rig, &volume, "/dev/sdf", "p");
    let one = rig.attach_xen("xvdf", "one.img", SIZE);
    let two = rig.attach_xen("sdf", "two.img", SIZE);
    assert_refused(publish(), Refusal::DeviceAmbiguous);
    drop(two);
    let serial = one.directory().join("serial");
    fs::write(&serial, "vol0123456789abcdef0\n").expect("write");
    assert_refused(publish(), Refusal::DeviceNotFound);
    fs::remove_file(serial).expect("remove");
    let modalias = one.directory().join("device/modalias");
    fs::write(&modalias, "virtio:d00000002v00001AF4\n").expect("write");
    assert_refused(publish(), Refusal::DeviceNotFound);
    fs::write(&modalias, "xen:vbd\n").expect("write");
    // A request without the device name finds no disk.
    assert_refused(rig.publish_block(&volume, "p"), Refusal::DeviceNotFound);
    done(publish());
    done(rig.unpublish_block(&volume, "p"));
}

#[test]
fn usual_content_checks_apply_to_xen_disks() {
    let Some(rig) = Rig::start_xen() else { return };
    // A file system of another driver is checked in full and mounted.
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "foreign.img", SIZE);
    make_filesystem(FsType::Ext4, &xen.attached.path());
    let foreign = Disk { origin: Origin::Copy, ..named_disk(&volume, "/dev/xvdba") };
    let Staged { formatted, checked, .. } = staged(stage_of(&rig, foreign, FsType::Ext4));
    assert!(checked && !formatted);
    done(rig.unstage(&volume));
    // A disk that is not blank is not formatted, and the record does not assign a refused disk to
    // the volume.
    let second = self::volume();
    let unknown = rig.attach_xen("xvdbb", "unknown.img", SIZE);
    unknown.attached.write(5000, b"something");
    assert_refused(stage(&rig, &second, "/dev/xvdbb", FsType::Ext4), Refusal::UnknownContent);
    let third = self::volume();
    done(publish_raw(&rig, &third, "/dev/xvdbb", "p"));
    done(rig.unpublish_block(&third, "p"));
    let blank = rig.attach_xen("xvdbc", "blank.img", SIZE);
    let copy = Disk { origin: Origin::Copy, ..named_disk(&second, "/dev/xvdbc") };
    assert_refused(stage_of(&rig, copy, FsType::Ext4), Refusal::CopyWithoutFilesystem);
    drop(blank);
}

#[test]
fn only_opener_has_disk_record_open() {
    let Some(rig) = Rig::start_xen() else { return };
    let file = rig.path("run/helper.sock.disks");
    let holds = |pid: u32| descriptors(pid).iter().any(|(_, to)| *to == text(&file));
    assert!(holds(rig.part("opener")));
    for other in [rig.part("broker"), rig.part("directories"), rig.pid()] {
        assert!(!holds(other));
    }
}

#[test]
fn refuse_option_rejects_disks_without_serial() {
    let Some(rig) = Rig::start_xen_with(&["--disks-without-serial", "refuse"]) else { return };
    let volume = volume();
    let _xen = rig.attach_xen("xvdba", "one.img", SIZE);
    assert_refused(publish(&rig, &volume, "/dev/xvdba"), Refusal::DeviceWithoutSerial);
    refuses_both(&rig, &volume, "/dev/xvdba", FsType::Ext4, Refusal::DeviceWithoutSerial);
    assert!(!rig.path("run/helper.sock.disks").exists());
}

#[test]
fn helper_without_xen_keeps_no_disk_record() {
    let Some(rig) = Rig::start() else { return };
    assert!(!rig.path("run/helper.sock.disks").exists());
    assert!(!rig.journal().contains("disks-by-name"));
}

/// The broker is killed before the disk is recorded, between the record and the format, and after
/// the mount.
#[test]
fn killed_helper_finds_disk_again_after_restart() {
    for (point, fs_type) in [
        ("stage-looked", FsType::Ext4),
        ("runner-started", FsType::Ext4),
        ("stage-made", FsType::Xfs),
        ("stage-created", FsType::Ext4),
        ("stage-attached", FsType::Xfs),
    ] {
        let Some(mut rig) = Rig::start_xen_with(&["--fault-point", point]) else { return };
        let volume = volume();
        let xen = rig.attach_xen("xvdba", "one.img", SIZE);
        let mut request = rig.stage_request(&volume, fs_type);
        request.disk = named_disk(&volume, "/dev/xvdba");
        let _client = rig.call_until(point, Operation::Stage(request.clone()));
        send_signal(rig.part("broker"), Signal::KILL);
        rig.ended();
        rig.run(&[]);
        staged(rig.call(Operation::Stage(request)));
        usage(rig.stats(&volume, &staging(&volume)));
        done(rig.unstage(&volume));
        assert_eq!(rig.mounts(&xen.attached), 0, "{point}");
    }
}
