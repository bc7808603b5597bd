//! A volume whose attribute `partition` selects a partition of its disk.
use crate::rig::{
    Attached, MIB, Rig, assert_refused, block_target, disk, done, expanded, shell, sparse_file,
    staged, staging, target, usage, volume,
};
use ebs_csi_wire::{Disk, FsType, Operation, Refusal, Usage, VolumeId};
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;

pub(crate) fn parted_image(image: &Path) {
    sparse_file(image, 512 * MIB);
    let line = format!("printf 'label: gpt\\n,64M\\n,340M\\n' | sfdisk -q {}", image.display());
    shell("/bin/sh", &["-c", &line]);
}

/// Attaches a disk with a table of two partitions, and makes the device nodes of both.
pub(crate) fn parted(rig: &Rig, volume: &VolumeId) -> Attached {
    let image = rig.image(volume);
    parted_image(&image);
    let attached = rig.attach_image(image);
    attached.add_partitions();
    for part in [1, 2] {
        rig.node_of_part(&attached, part);
    }
    attached
}

#[test]
fn partition_lifecycle_keeps_partition_table_valid() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let volume = volume();
        let attached = parted(&rig, &volume);
        let two = NonZeroU32::new(2);
        // A partition table is no file system, and the helper does not format over it.
        assert_refused(rig.stage(&volume, fs_type), Refusal::PartitionTable);
        let mut request = rig.stage_request(&volume, fs_type);
        request.disk.partition = two;
        // The whole disk was attached, so its size is the size at attach.
        request.disk.size_at_attach = NonZeroU64::new(512 * MIB);
        let first = staged(rig.call(Operation::Stage(request.clone())));
        assert!(first.formatted, "{fs_type}");
        assert_eq!(first.device_bytes, 340 * MIB);
        assert!(staged(rig.call(Operation::Stage(request.clone()))).already);
        assert_refused(rig.stage(&volume, fs_type), Refusal::MountedDifferently);
        done(rig.publish_with(&volume, "p", |request| request.disk.partition = two));
        let file = rig.published_root(&volume, "p").join("file");
        fs::write(&file, "kept").expect("write");
        let usage = usage(rig.stats(&volume, &target(&volume, "p")));
        assert!(usage.total_bytes < 340 * MIB && usage.total_bytes > 200 * MIB);
        let held = rig.inventory();
        let ours = held.volumes.iter().filter(|held| held.volume == volume);
        assert_eq!(ours.map(|held| held.staged).collect::<Vec<_>>(), [true, false]);
        // Growth ends at the end of the partition, although the request asks for the volume's size.
        let expand = rig.expand_operation(&volume, &staging(&volume), 512 * MIB, 0);
        assert_eq!(expanded(rig.call(expand)).device_bytes, 340 * MIB);
        let mut other = rig.stage_request(&volume, fs_type);
        other.disk.partition = NonZeroU32::new(3);
        other.staging = rig.kubelet("plugins/other/globalmount");
        assert_refused(rig.call(Operation::Stage(other)), Refusal::DeviceNotFound);
        rig.withdraw(&volume, "p");
        assert!(!staged(rig.call(Operation::Stage(request))).formatted);
        assert_eq!(rig.staged_file(&volume, "file"), "kept");
        done(rig.unstage(&volume));
        shell("sfdisk", &["--verify", "-q", &attached.path()]);
    }
}

#[test]
fn raw_partition_is_published_writable_never_read_only() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let _attached = parted(&rig, &volume);
    let first = Disk { partition: NonZeroU32::new(1), ..disk(&volume) };
    done(rig.publish_disk(&first, "p", false));
    assert!(done(rig.publish_disk(&first, "p", false)));
    let usage = usage(rig.stats(&volume, &block_target(&volume, "p")));
    assert_eq!(usage, Usage { block: true, total_bytes: 64 * MIB, ..Usage::default() });
    done(rig.unpublish_block(&volume, "p"));
    assert_refused(rig.publish_disk(&first, "p", true), Refusal::Unsupported);
}
