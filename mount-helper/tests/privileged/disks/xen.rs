//! Disks without a serial, as on instance types that are built on Xen: identified by the device
//! name that EC2 received, unless a fact contradicts the name. The helper runs with the policy of a
//! node. `/sys` is simulated, and the disks are loop devices.
use crate::rig::{
    Elsewhere, LONG, Rig, able, assert_refused, block_target, disk, done, refused, shell, staged,
    staging, target, unstaged, volume,
};
use ebs_csi_wire::{
    DeviceName, Disk, Expanded, FsType, HeldVolume, Inspect, NvmeStatistics, Operation, Origin,
    Outcome, PublishBlock, Refusal, Staged, Usage, VolumeId,
};
use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
/// mkfs.xfs refuses much smaller disks.
const SIZE: u64 = 320 * MIB;

pub(crate) fn told(volume: &VolumeId, name: &str) -> Disk {
    Disk { device_hint: Some(DeviceName::parse(name).expect("a name")), ..disk(volume) }
}

fn stage(rig: &Rig, volume: &VolumeId, name: &str, fs_type: FsType) -> Outcome {
    stage_of(rig, told(volume, name), fs_type)
}

fn stage_of(rig: &Rig, disk: Disk, fs_type: FsType) -> Outcome {
    let mut asked = rig.staging(&disk.volume, fs_type);
    asked.disk = disk;
    rig.ask(Operation::Stage(asked))
}

fn publish(rig: &Rig, volume: &VolumeId, name: &str) -> Outcome {
    let mut asked = rig.publishing(volume, "p");
    asked.disk = told(volume, name);
    rig.ask(Operation::PublishFilesystem(asked))
}

fn publish_raw(rig: &Rig, volume: &VolumeId, name: &str, pod: &str) -> Outcome {
    rig.ask(Operation::PublishBlock(PublishBlock {
        disk: told(volume, name),
        target: rig.kubelet(&block_target(volume, pod)),
        read_only: false,
    }))
}

fn held(rig: &Rig) -> Vec<HeldVolume> {
    match rig.ask(Operation::Inspect(Inspect::default())) {
        Outcome::Inventory(inventory) => inventory.volumes,
        other => panic!("{other:?}"),
    }
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

fn life_of(fs_type: FsType, called: &str) {
    let Some(mut rig) = Rig::start_xen() else {
        return;
    };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", &format!("{volume}.img"), SIZE);
    let first = staged(stage(&rig, &volume, called, fs_type));
    assert!(first.formatted && !first.already);
    rig.wait_for("disk-by-name");
    assert!(staged(stage(&rig, &volume, called, fs_type)).already);
    assert!(!done(publish(&rig, &volume, called)));
    assert!(done(publish(&rig, &volume, called)));
    let place = target(&volume, "p");
    let file = rig.inside(&rig.kubelet(&place)).join("file");
    fs::write(&file, "kept").expect("write");

    // Requests without a device name, to this helper and to the next one.
    for again in [false, true] {
        if again {
            rig.stop();
            rig.run(&[]);
        }
        let Outcome::Usage(usage) = rig.stats(&volume, &place) else {
            panic!("usage expected");
        };
        assert!(!usage.block && usage.total_bytes > 200 * MIB);
        let held = held(&rig);
        assert_eq!(
            held.iter().map(|one| (one.staged, one.by_name)).collect::<Vec<_>>(),
            [(true, true), (false, true)]
        );
        let asked = NvmeStatistics { volume: volume.clone() };
        assert_refused(rig.ask(Operation::NvmeStatistics(asked)), Refusal::Unsupported);
    }
    xen.attached.resize(512 * MIB);
    xen.look_again();
    // Growth of a mounted ext4 needs a capability that not every host grants; the next stage grows
    // the file system.
    if fs_type == FsType::Xfs {
        let Outcome::Expanded(Expanded { filesystem_bytes, .. }) =
            rig.expand(&volume, &staging(&volume))
        else {
            panic!("growth expected");
        };
        assert_eq!(filesystem_bytes, 512 * MIB);
    }
    assert_refused(rig.unstage(&volume), Refusal::StillHeld);
    done(rig.unpublish(&volume, &place));
    done(rig.unstage(&volume));
    assert!(done(rig.unstage(&volume)));
    assert_eq!(rig.mounts(&xen.attached), 0);
    let again = staged(stage(&rig, &volume, called, fs_type));
    assert!(!again.formatted && again.grown == (fs_type != FsType::Xfs), "{again:?}");
    let kept = rig.inside(&rig.kubelet(&staging(&volume))).join("file");
    assert_eq!(fs::read_to_string(kept).expect("read"), "kept");
    done(rig.unstage(&volume));
}

#[test]
fn ext4_lifecycle_works_by_xvd_device_name() {
    life_of(FsType::Ext4, "/dev/xvdba");
}

/// The request names /dev/sdba, and the kernel calls the same disk xvdba.
#[test]
fn xfs_lifecycle_works_by_translated_sd_name() {
    life_of(FsType::Xfs, "/dev/sdba");
}

/// Stats still work after a helper restart. Another volume can neither publish nor stage the same
/// disk.
#[test]
fn raw_disk_lifecycle_works_by_device_name() {
    let Some(mut rig) = Rig::start_xen() else {
        return;
    };
    let volume = volume();
    let _xen = rig.attach_xen("xvdba", &format!("{volume}.img"), SIZE);
    assert!(!done(publish_raw(&rig, &volume, "/dev/xvdba", "p")));
    assert!(done(publish_raw(&rig, &volume, "/dev/xvdba", "p")));
    assert!(!done(publish_raw(&rig, &volume, "/dev/xvdba", "q")));
    rig.stop();
    rig.run(&[]);
    let usage = Usage { block: true, total_bytes: SIZE, ..Usage::default() };
    let place = block_target(&volume, "p");
    assert_eq!(rig.stats(&volume, &place), Outcome::Usage(usage));
    assert!(held(&rig).iter().all(|one| one.volume == volume && one.by_name));
    // Another volume can neither publish nor stage the same disk.
    let other = volume_after(&volume);
    for outcome in [
        publish_raw(&rig, &other, "/dev/xvdba", "r"),
        stage(&rig, &other, "/dev/xvdba", FsType::Ext4),
    ] {
        assert_refused(outcome, Refusal::DeviceMismatch);
    }
    for pod in ["p", "q"] {
        done(rig.unpublish(&volume, &block_target(&volume, pod)));
    }
    assert!(held(&rig).is_empty());
}

/// Returns another id than `first`.
fn volume_after(first: &VolumeId) -> VolumeId {
    let other = volume();
    assert_ne!(*first, other);
    other
}

/// Partition 2 of xvdba mounts as /dev/xvdba2, and the whole disk then belongs to the volume.
#[test]
fn xen_partition_mounts_under_its_kernel_name() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let image = rig.path("volumes").join("parted.img");
    fs::File::create(&image).and_then(|file| file.set_len(512 * MIB)).expect("image");
    let table = rig.path("table");
    fs::write(&table, "label: gpt\n,64M\n,340M\n").expect("write");
    let arguments = format!("sfdisk -q {} < {}", image.display(), table.display());
    shell("/bin/sh", &["-c", &arguments]);
    let mut xen = rig.attach_xen("xvdba", "parted.img", 0);
    shell("partx", &["--add", &xen.attached.path()]);
    for part in [1, 2] {
        rig.xen_part(&mut xen, part);
    }
    let mut asked = told(&volume, "/dev/xvdba");
    asked.partition = NonZeroU32::new(2);
    let first = staged(stage_of(&rig, asked.clone(), FsType::Ext4));
    assert_eq!((first.formatted, first.device_bytes), (true, 340 * MIB));
    assert!(matches!(rig.stats(&volume, &staging(&volume)), Outcome::Usage(_)));
    assert!(rig.mountinfo().contains(" /dev/xvdba2 "), "{}", rig.mountinfo());
    // The whole disk belongs to the volume, not only the partition.
    let other = volume_after(&volume);
    let mut one = told(&other, "/dev/xvdba");
    one.partition = NonZeroU32::new(1);
    assert_refused(stage_of(&rig, one, FsType::Ext4), Refusal::DeviceMismatch);
    done(rig.unstage(&volume));
    assert!(!staged(stage_of(&rig, asked, FsType::Ext4)).formatted);
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
        let second = volume_after(&first);
        for outcome in [
            stage(&rig, &second, "/dev/xvdba", fs_type),
            publish_raw(&rig, &second, "/dev/xvdba", "p"),
        ] {
            assert_refused(outcome, Refusal::DeviceMismatch);
        }
        rig.wait_for(&format!("identifier-of={first}"));
        // A snapshot keeps the identifier of its volume.
        let copy = Disk { origin: Origin::Copy, ..told(&second, "/dev/xvdba") };
        assert!(!staged(stage_of(&rig, copy, fs_type)).formatted);
        done(rig.unstage(&second));
        drop(xen);
        let _xen = rig.attach_xen("xvdba", &image, SIZE);
        let back = staged(stage(&rig, &first, "/dev/xvdba", fs_type));
        assert!(!back.formatted && !back.checked);
        done(rig.unstage(&first));
    }
}

/// A second volume on the same disk, a second disk for the same volume and a path of another volume
/// are refused.
#[test]
fn disk_and_volume_bind_exclusively() {
    let Some(rig) = Rig::start_xen() else { return };
    let (first, second) = (volume(), volume());
    let _one = rig.attach_xen("xvdba", "one.img", SIZE);
    let _two = rig.attach_xen("xvdbb", "two.img", SIZE);
    staged(stage(&rig, &first, "/dev/xvdba", FsType::Ext4));
    for outcome in [
        stage(&rig, &second, "/dev/xvdba", FsType::Ext4),
        publish_raw(&rig, &second, "/dev/xvdba", "p"),
    ] {
        assert_refused(outcome, Refusal::DeviceMismatch);
    }
    rig.wait_for(&format!("taken-for={first}"));
    assert_refused(stage(&rig, &first, "/dev/xvdbb", FsType::Ext4), Refusal::DeviceAmbiguous);
    // Another volume cannot use the first volume's paths either.
    let mut asked = rig.publishing(&second, "p");
    asked.disk = told(&second, "/dev/xvdbb");
    asked.staging = rig.kubelet(&staging(&first));
    assert_refused(rig.ask(Operation::PublishFilesystem(asked)), Refusal::NotStaged);
    assert_refused(rig.stats(&second, &staging(&first)), Refusal::VolumeNotAtPath);
    assert_refused(rig.unpublish(&second, &staging(&first)), Refusal::VolumeNotAtPath);
    done(rig.unstage(&first));
}

/// The staged disk was detached, and another disk took its name and number.
#[test]
fn swapped_disk_can_only_be_unstaged() {
    let Some(mut rig) = Rig::start_xen() else {
        return;
    };
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "one.img", SIZE);
    staged(stage(&rig, &volume, "/dev/xvdba", FsType::Ext4));
    xen.swap();
    for again in [false, true] {
        if again {
            rig.stop();
            rig.run(&[]);
        }
        for outcome in
            [rig.stats(&volume, &staging(&volume)), rig.expand(&volume, &staging(&volume))]
        {
            assert_refused(outcome, Refusal::DeviceWithoutSerial);
        }
        for outcome in [
            publish(&rig, &volume, "/dev/xvdba"),
            stage(&rig, &volume, "/dev/xvdba", FsType::Ext4),
            publish_raw(&rig, &volume, "/dev/xvdba", "p"),
        ] {
            assert_refused(outcome, Refusal::DeviceMismatch);
        }
    }
    // Here `/sys` and the disk itself show two attachments, as at the moment of a swap. The first
    // unstage removes the mount. Only the next one, after this moment, reports that nobody holds
    // the disk.
    assert_refused(rig.unstage(&volume), Refusal::DeviceMismatch);
    assert_eq!(rig.mounts(&xen.attached), 0);
    assert!(done(rig.unstage(&volume)));
}

/// Publish names the disk and restores the record. Without the record, statistics and growth are
/// refused, while unpublish and unstage work.
#[test]
fn lost_disk_record_is_rebuilt_by_named_requests() {
    let Some(mut rig) = Rig::start_xen() else {
        return;
    };
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
    assert_eq!(held(&rig).len(), 3);
    assert!(matches!(rig.stats(&mounted, &staging(&mounted)), Outcome::Usage(_)));
    done(rig.unpublish(&mounted, &target(&mounted, "p")));
    // A lost record does not prevent the drain of a node.
    lose(&mut rig);
    done(rig.unpublish(&raw, &block_target(&raw, "p")));
    let copy = rig.copy_of_mounts();
    let path = rig.kubelet(&staging(&mounted));
    let open = fs::File::open(format!("/proc/{}/root{path}", copy.pid())).expect("the copy");
    assert!(unstaged(rig.unstage(&mounted)).copied);
    drop((open, copy));
    done(rig.unstage(&mounted));
    assert_eq!(rig.mounts(&one.attached), 0);
}

/// A mount outside the kubelet root, an exclusive open and an array member each count as use.
#[test]
fn disk_in_use_elsewhere_is_refused() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let all = |name: &str| {
        [stage(&rig, &volume, name, FsType::Ext4), publish_raw(&rig, &volume, name, "p")]
            .map(refused)
    };
    // The machine's own disk is mounted outside the places of volumes.
    let own = rig.attach_xen("xvdb", "own.img", SIZE);
    shell("mke2fs", &["-q", "-t", "ext4", &own.attached.path()]);
    let outside = rig.path("outside").to_str().expect("utf-8").to_owned();
    rig.within(&["mount", &own.attached.path().replace(&own.attached.name, "xvdb"), &outside]);
    assert_eq!(all("/dev/xvdb"), [Refusal::StillHeld; 2]);
    // A mount of this disk beneath the kubelet root is not removed either.
    let place = target(&volume, "p");
    let bound = rig.inside(&rig.kubelet(&place));
    fs::create_dir_all(&bound).expect("mkdir");
    rig.within(&["mount", "--bind", &outside, rig.kubelet(&place).as_str()]);
    assert_refused(rig.unpublish(&volume, &place), Refusal::VolumeNotAtPath);
    rig.within(&["umount", rig.kubelet(&place).as_str()]);
    rig.within(&["umount", &outside]);
    // A mount that is not visible here, or a program, holds the disk's exclusive claim.
    let claimed = fs::File::from(
        rustix::fs::open(
            own.attached.path(),
            // O_CLOEXEC keeps the claim from programs that other tests start meanwhile.
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .expect("claim"),
    );
    assert_eq!(all("/dev/xvdb"), [Refusal::StillHeld; 2]);
    drop(claimed);
    // The disk is a member of an array.
    let holder = own.directory().join("holders/md0");
    fs::write(&holder, "").expect("write");
    assert_eq!(all("/dev/xvdb"), [Refusal::StillHeld; 2]);
    fs::remove_file(holder).expect("remove");
    assert!(!staged(stage(&rig, &volume, "/dev/xvdb", FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}

/// The neighbour is mounted outside the helper. The stage succeeds after the end of that mount.
#[test]
fn partition_beside_mounted_partition_is_refused() {
    let Some(rig) = Rig::start_xen() else { return };
    let image = rig.path("volumes").join("own.img");
    fs::File::create(&image).and_then(|file| file.set_len(512 * MIB)).expect("image");
    let line = format!("printf 'label: gpt\\n,64M\\n,340M\\n' | sfdisk -q {}", image.display());
    shell("/bin/sh", &["-c", &line]);
    let mut own = rig.attach_xen("xvdb", "own.img", 0);
    shell("partx", &["--add", &own.attached.path()]);
    for part in [1, 2] {
        rig.xen_part(&mut own, part);
    }
    let first = format!("{}p1", own.attached.path());
    shell("mke2fs", &["-q", "-t", "ext4", &first]);
    let elsewhere = Elsewhere::mount(&first, "rw");
    let volume = volume();
    let mut asked = told(&volume, "/dev/xvdb");
    asked.partition = NonZeroU32::new(2);
    let outcome = stage_of(&rig, asked.clone(), FsType::Ext4);
    assert_refused(outcome, Refusal::StillHeld);
    drop(elsewhere);
    // The kernel takes some time to remove a namespace.
    let end = std::time::Instant::now() + LONG;
    loop {
        match stage_of(&rig, asked.clone(), FsType::Ext4) {
            Outcome::Staged(result) => break assert!(result.formatted),
            other => assert!(std::time::Instant::now() < end, "{other:?}"),
        }
    }
    done(rig.unstage(&volume));
}

/// Two matching disks, a serial, another bus or a request without a device name cause a refusal.
#[test]
fn only_unambiguous_xen_disk_without_serial_is_used() {
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let ask = || refused(publish_raw(&rig, &volume, "/dev/sdf", "p"));
    let one = rig.attach_xen("xvdf", "one.img", SIZE);
    let two = rig.attach_xen("sdf", "two.img", SIZE);
    assert_eq!(ask(), Refusal::DeviceAmbiguous);
    drop(two);
    let serial = one.directory().join("serial");
    fs::write(&serial, "vol0123456789abcdef0\n").expect("write");
    assert_eq!(ask(), Refusal::DeviceNotFound);
    fs::remove_file(serial).expect("remove");
    let modalias = one.directory().join("device/modalias");
    fs::write(&modalias, "virtio:d00000002v00001AF4\n").expect("write");
    assert_eq!(ask(), Refusal::DeviceNotFound);
    fs::write(&modalias, "xen:vbd\n").expect("write");
    // A request without the device name finds no disk.
    assert_refused(rig.publish_block(&volume, "p"), Refusal::DeviceNotFound);
    done(publish_raw(&rig, &volume, "/dev/sdf", "p"));
    done(rig.unpublish(&volume, &block_target(&volume, "p")));
}

/// A foreign ext4 is checked and mounted; unknown content and a blank copy are refused.
#[test]
fn usual_content_checks_apply_to_xen_disks() {
    let Some(rig) = Rig::start_xen() else { return };
    // A file system of another driver is checked in full and mounted.
    let volume = volume();
    let xen = rig.attach_xen("xvdba", "foreign.img", SIZE);
    shell("mke2fs", &["-q", "-t", "ext4", &xen.attached.path()]);
    let foreign = Disk { origin: Origin::Copy, ..told(&volume, "/dev/xvdba") };
    let Staged { formatted, checked, .. } = staged(stage_of(&rig, foreign, FsType::Ext4));
    assert!(checked && !formatted);
    done(rig.unstage(&volume));
    // A disk that is not blank is not formatted, and the record does not assign a refused disk to
    // the volume.
    let second = volume_after(&volume);
    let unknown = rig.attach_xen("xvdbb", "unknown.img", SIZE);
    let image = fs::File::options().write(true).open(&unknown.attached.image).expect("image");
    image.write_all_at(b"something", 5000).expect("write");
    image.sync_all().expect("sync");
    assert_refused(stage(&rig, &second, "/dev/xvdbb", FsType::Ext4), Refusal::UnknownContent);
    let third = volume_after(&second);
    done(publish_raw(&rig, &third, "/dev/xvdbb", "p"));
    done(rig.unpublish(&third, &block_target(&third, "p")));
    let blank = rig.attach_xen("xvdbc", "blank.img", SIZE);
    let copy = Disk { origin: Origin::Copy, ..told(&second, "/dev/xvdbc") };
    assert_refused(stage_of(&rig, copy, FsType::Ext4), Refusal::CopyWithoutFilesystem);
    drop(blank);
}

#[test]
fn only_broker_has_disk_record_open() {
    let Some(rig) = Rig::start_xen() else { return };
    let file = rig.path("run/helper.sock.disks");
    let holds = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
        open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == file))
    };
    assert!(holds(rig.part("broker")));
    for other in [rig.part("directories"), rig.pid()] {
        assert!(!holds(other));
    }
}

#[test]
fn refuse_option_rejects_disks_without_serial() {
    if !able() {
        return;
    }
    let rig = Rig::start_xen_with(&["--disks-without-serial", "refuse"]);
    let volume = volume();
    let _xen = rig.attach_xen("xvdba", "one.img", SIZE);
    for outcome in [
        stage(&rig, &volume, "/dev/xvdba", FsType::Ext4),
        publish(&rig, &volume, "/dev/xvdba"),
        publish_raw(&rig, &volume, "/dev/xvdba", "p"),
    ] {
        assert_refused(outcome, Refusal::DeviceWithoutSerial);
    }
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
    if !able() {
        return;
    }
    for (point, fs_type) in [
        ("stage-looked", FsType::Ext4),
        ("runner-started", FsType::Ext4),
        ("stage-made", FsType::Xfs),
        ("stage-created", FsType::Ext4),
        ("stage-attached", FsType::Xfs),
    ] {
        let mut rig = Rig::start_xen_with(&["--fault-point", point]);
        let volume = volume();
        let xen = rig.attach_xen("xvdba", "one.img", SIZE);
        let mut client = rig.client();
        let mut asked = rig.staging(&volume, fs_type);
        asked.disk = told(&volume, "/dev/xvdba");
        client.send(Operation::Stage(asked.clone()), LONG);
        rig.wait_for(&format!("fault-point name={point}"));
        let broker = rustix::process::Pid::from_raw(rig.part("broker").cast_signed());
        rustix::process::kill_process(broker.expect("pid"), rustix::process::Signal::KILL)
            .expect("kill");
        rig.ended();
        rig.run(&[]);
        staged(rig.ask(Operation::Stage(asked)));
        assert!(matches!(rig.stats(&volume, &staging(&volume)), Outcome::Usage(_)), "{point}");
        done(rig.unstage(&volume));
        assert_eq!(rig.mounts(&xen.attached), 0, "{point}");
    }
}
