//! Tests with a simulated sysfs.
use super::*;
use crate::disk::device::{Access, DeviceError};
use ebs_csi_wire::{DeviceName, Disk, Origin, Source, VolumeId};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Creates a sysfs with the kernel's layout for NVMe: `block/NAME` is a link into the device tree,
/// and `device` in that directory is a link to the controller above.
fn nvme(root: &Path, name: &str, number: &str, model: &str, serial: &str) {
    let controller = root.join(format!("devices/pci/nvme/{}", &name[..5]));
    let disk = controller.join(name);
    fs::create_dir_all(&disk).expect("mkdir");
    fs::create_dir_all(root.join("block")).expect("mkdir");
    fs::write(controller.join("model"), format!("{model:<40}\n")).expect("write");
    fs::write(controller.join("serial"), format!("{serial:<20}\n")).expect("write");
    fs::write(disk.join("dev"), format!("{number}\n")).expect("write");
    std::os::unix::fs::symlink("..", disk.join("device")).expect("symlink");
    let target = format!("../devices/pci/nvme/{}/{name}", &name[..5]);
    std::os::unix::fs::symlink(&target, root.join("block").join(name)).expect("symlink");
    fs::create_dir_all(root.join("dev/block")).expect("mkdir");
    std::os::unix::fs::symlink(format!("../{target}"), root.join("dev/block").join(number))
        .expect("symlink");
    // Plain files stand for the device nodes: a later step finds that they are no block devices.
    fs::write(root.join("dev").join(name), "").expect("write");
}

fn roots(root: &Path, class: DiskClass) -> DiskRoots {
    let devices = root.join("dev");
    DiskRoots::at(root.to_str().expect("utf-8"), devices.to_str().expect("utf-8"), class)
        .expect("roots")
}

#[test]
fn only_ebs_nvme_models_yield_volume_serials() {
    let directory = tempfile::tempdir().expect("tempdir");
    let root = directory.path();
    let ebs = "Amazon Elastic Block Store";
    nvme(root, "nvme1n1", "259:1", ebs, "vol0123456789abcdef0");
    nvme(root, "nvme2n1", "259:2", "Amazon EC2 NVMe Instance Storage", "AWS1");
    nvme(root, "nvme3n1", "259:3", "Another", "vol0123456789abcdef1");
    nvme(root, "nvme4n1", "259:4", ebs, "vol-0123456789abcdef2");
    for name in ["nvme1", "nvme1n1p1", "nvme-fabrics", "nvme", "loop1", "nvme9n1"] {
        fs::write(root.join("dev").join(name), "").expect("write");
    }
    let roots = roots(root, DiskClass::Ebs);
    let mut found: Vec<_> =
        roots.names().expect("names").into_iter().map(|name| (roots.serial(&name), name)).collect();
    found.sort();
    let serial = |text: &str| Some(text.to_owned());
    assert_eq!(
        found,
        [
            (None, "nvme2n1".to_owned()),
            (None, "nvme3n1".to_owned()),
            // A device node whose disk the kernel does not know.
            (None, "nvme9n1".to_owned()),
            (serial("vol0123456789abcdef0"), "nvme1n1".to_owned()),
            (serial("vol0123456789abcdef2"), "nvme4n1".to_owned()),
        ]
    );
    let number = |minor| DeviceNumber(rustix::fs::makedev(259, minor));
    assert_eq!(roots.serial_of(number(1)), found[3].0.clone());
    assert_eq!(roots.serial_of(number(9)), None);
    // The kernel knows the disk, but the disk has no device node, so the disk counts as absent.
    let find = roots.find_part("vol0123456789abcdef0", None, Access::ReadOnly, Duration::ZERO);
    assert_eq!(find.err(), Some(DeviceError::Absent));
}

/// Creates a disk of virtio-blk, which is its own directory's `serial` and the bus's `modalias`.
fn virtio(root: &Path, name: &str, modalias: &str, serial: &str) {
    let disk = root.join("block").join(name);
    fs::create_dir_all(disk.join("device")).expect("mkdir");
    fs::write(disk.join("device/modalias"), format!("{modalias}\n")).expect("write");
    fs::write(disk.join("serial"), serial).expect("write");
    fs::create_dir_all(root.join("dev")).expect("mkdir");
    fs::write(root.join("dev").join(name), "").expect("write");
}

#[test]
fn emulated_disks_have_serials_in_guest_class_alone() {
    let directory = tempfile::tempdir().expect("tempdir");
    let root = directory.path();
    let block = "virtio:d00000002v00001AF4";
    virtio(root, "vda", block, "vol0123456789abcdef0");
    virtio(root, "vdb", block, "");
    virtio(root, "vdc", "scsi:t-0x00", "vol0123456789abcdef1");
    let nvmes = [
        ("nvme1n1", "259:1", "QEMU NVMe Ctrl"),
        ("nvme2n1", "259:2", "Amazon Elastic Block Store"),
        ("nvme3n1", "259:3", "Another"),
    ];
    fs::create_dir_all(root.join("block")).expect("mkdir");
    for (name, number, model) in nvmes {
        nvme(root, name, number, model, "vol0123456789abcdef2");
    }
    let found = |class| {
        let roots = roots(root, class);
        let names = roots.names().expect("names");
        let mut found: Vec<_> =
            names.into_iter().filter(|name| roots.serial(name).is_some()).collect();
        found.sort();
        let known = ["vda", "vda1", "nvme1n1p1", "loop7", "sda1"];
        (found, known.map(|name| roots.may_be_disk_name(name)))
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found(DiskClass::Ebs), (names(&["nvme2n1"]), [false, false, true, false, false]));
    assert_eq!(
        found(DiskClass::Guest),
        (names(&["nvme1n1", "nvme2n1", "vda"]), [true, true, true, false, false])
    );
    assert_eq!(found(DiskClass::LoopFile).0, Vec::<String>::new());
}

/// A Xen disk under the device name from EC2 gives WithoutSerial; another kind of disk, no disk or
/// no name gives Absent.
#[test]
fn existing_xen_disk_without_serial_differs_from_absent() {
    let directory = tempfile::tempdir().expect("tempdir");
    let root = directory.path();
    for (name, number, modalias) in [
        ("xvdba", "51712", "xen:vbd"),
        ("xvdf", "51792", "xen:vbd"),
        // The device name alone does not make a disk a Xen disk.
        ("xvdbb", "0", "virtio:d00000002v00001AF4"),
    ] {
        let bus = root.join(format!("devices/vbd-{number}"));
        let disk = bus.join("block").join(name);
        fs::create_dir_all(&disk).expect("mkdir");
        fs::create_dir_all(root.join("block")).expect("mkdir");
        fs::create_dir_all(root.join("dev")).expect("mkdir");
        fs::write(bus.join("modalias"), format!("{modalias}\n")).expect("write");
        std::os::unix::fs::symlink("../../../vbd-".to_owned() + number, disk.join("device"))
            .expect("symlink");
        std::os::unix::fs::symlink(
            format!("../devices/vbd-{number}/block/{name}"),
            root.join("block").join(name),
        )
        .expect("symlink");
    }
    let roots = roots(root, DiskClass::Ebs);
    for (told, error) in [
        (Some("/dev/xvdba"), DeviceError::WithoutSerial),
        (Some("/dev/sdf"), DeviceError::WithoutSerial),
        (Some("/dev/xvdbb"), DeviceError::Absent),
        (Some("/dev/xvdzz"), DeviceError::Absent),
        (None, DeviceError::Absent),
    ] {
        let requested = Disk {
            volume: VolumeId::parse("vol-0123456789abcdef0").expect("an id"),
            device_hint: told.map(|name| DeviceName::parse(name).expect("a name")),
            partition: None,
            size_at_attach: None,
            attached_at: None,
            origin: Origin::Unknown,
            source: Source::Elsewhere,
        };
        let found = roots.find_requested(&requested, Access::ReadOnly, Duration::ZERO);
        assert_eq!(found.err(), Some(error), "{told:?}");
    }
}

#[test]
fn regular_file_as_device_node_is_no_disk() {
    let directory = tempfile::tempdir().expect("tempdir");
    let root = directory.path();
    nvme(root, "nvme1n1", "259:1", "Amazon Elastic Block Store", "vol0123456789abcdef0");
    let roots = roots(root, DiskClass::Ebs);
    let find = roots.find_part("vol0123456789abcdef0", None, Access::ReadWrite, Duration::ZERO);
    assert_eq!(find.err(), Some(DeviceError::Absent));
    assert_eq!(roots.numbers_and_serials(), Ok(Vec::new()));
}
