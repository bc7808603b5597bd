//! Mounts of other drivers beneath kubelet's directory.
use crate::rig::{
    MIB, Rig, assert_refused, done, make_filesystem, reason, shell, sparse_file, staging, target,
    volume,
};
use ebs_csi_wire::{FsType, Refusal};

/// Mounts whose device number belongs to no disk.
const ANONYMOUS: [(&str, &[&str]); 3] = [
    ("tmpfs", &["-t", "tmpfs", "none"]),
    ("overlay", &["-t", "overlay", "-o", "lowerdir=/usr:/etc", "none"]),
    ("proc", &["-t", "proc", "none"]),
];

/// N4: Mounts of tmpfs, overlay, proc and btrfs have such numbers. Unpublish and unstage refuse
/// these mounts for any volume.
#[test]
fn mounts_with_anonymous_device_number_are_not_removed() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let nobody = crate::rig::volume();
    for (name, arguments) in ANONYMOUS {
        for place in [target(&volume, name), staging(&volume)] {
            let at = rig.make_target(&place);
            rig.within(&[&["mount"], arguments, &[&at]].concat());
            for who in [&volume, &nobody] {
                let outcome = if place.starts_with("pods/") {
                    rig.unpublish(who, &place)
                } else {
                    rig.call(rig.unstage_operation(who, &place))
                };
                assert_eq!(reason(outcome), Refusal::VolumeNotAtPath, "{name} {place}");
            }
            assert!(rig.mountinfo().contains(&format!(" {at} ")), "{name}");
            rig.within(&["umount", &at]);
        }
    }
    // A btrfs has such a number, too, although it is on a disk.
    let disk = rig.attach(&nobody, 128 * MIB);
    shell("mkfs.btrfs", &["-q", &disk.path()]);
    let place = target(&nobody, "btrfs");
    let at = rig.make_target(&place);
    rig.within(&["mount", "-t", "btrfs", &format!("/dev/{}", disk.name), &at]);
    for who in [&volume, &nobody] {
        assert_refused(rig.unpublish(who, &place), Refusal::VolumeNotAtPath);
    }
    rig.within(&["umount", &at]);
}

/// N4: A loop device cannot be a volume of a Xen node. The mount of a detached xvd disk is removed.
#[test]
fn unpublish_refuses_mount_of_detached_non_ebs_disk() {
    // The simulated sysfs contains no loop device, so each loop device looks like a detached disk.
    let Some(rig) = Rig::start_xen() else { return };
    let volume = volume();
    let image = rig.path("volumes/other.img");
    sparse_file(&image, 64 * MIB);
    let other = rig.attach_image(image);
    make_filesystem(FsType::Ext4, &other.path());
    let place = target(&volume, "p");
    let at = rig.make_target(&place);
    rig.within(&["mount", "-t", "ext4", &format!("/dev/{}", other.name), &at]);
    assert_refused(rig.unpublish(&volume, &place), Refusal::VolumeNotAtPath);
    rig.within(&["umount", &at]);
    // The device node of such a disk, bound to a file.
    let raw = rig.make_block_target(&volume, "p");
    rig.within(&["mount", "--bind", &format!("/dev/{}", other.name), &raw]);
    assert_refused(rig.unpublish_block(&volume, "p"), Refusal::VolumeNotAtPath);
    rig.within(&["umount", &raw]);
    // The mount of a detached disk of the kind that can hold volumes is removed.
    let gone = rig.attach_xen("xvdba", "gone.img", 64 * MIB);
    make_filesystem(FsType::Ext4, &gone.attached.path());
    rig.within(&["mount", "-t", "ext4", "/dev/xvdba", &at]);
    drop(gone);
    assert!(!done(rig.unpublish(&volume, &place)));
}
