//! A volume whose attribute `partition` selects a partition of its disk.
use crate::rig::{
    Attached, LONG, Rig, assert_refused, block_target, disk, done, shell, staged, staging, target,
    volume,
};
use ebs_csi_wire::{
    Expand, Expanded, FsType, Inspect, Operation, Outcome, PublishBlock, Refusal, Usage, VolumeId,
};
use std::fs;
use std::io::Write;
use std::num::{NonZeroU32, NonZeroU64};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// Attaches a disk with a table of two partitions, and makes the device nodes of both.
pub(crate) fn parted(rig: &Rig, volume: &VolumeId) -> Attached {
    let image = rig.path("volumes").join(format!("{volume}.img"));
    fs::File::create(&image).and_then(|file| file.set_len(512 * MIB)).expect("image");
    let mut child =
        Command::new("sfdisk").arg("-q").arg(&image).stdin(Stdio::piped()).spawn().expect("sfdisk");
    let table = b"label: gpt\n,64M\n,340M\n";
    child.stdin.take().expect("stdin").write_all(table).expect("write");
    assert!(child.wait().expect("wait").success());
    let attached = rig.attach_image(image);
    shell("partx", &["--add", &attached.path()]);
    for part in [1, 2] {
        rig.node_of_part(&attached, part);
    }
    attached
}

/// Stage, publish, statistics and growth use the partition alone. A stage of the whole disk or of
/// another partition is refused.
#[test]
fn partition_lifecycle_keeps_partition_table_valid() {
    let Some(rig) = Rig::start() else { return };
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        let volume = volume();
        let attached = parted(&rig, &volume);
        let two = NonZeroU32::new(2);
        // The whole disk holds a partition table. The table is no file system, and the helper does
        // not format over it.
        assert_refused(rig.stage(&volume, fs_type), Refusal::PartitionTable);
        let mut asked = rig.staging(&volume, fs_type);
        asked.disk.partition = two;
        // The whole disk was attached, so its size is the size at attach.
        asked.disk.size_at_attach = NonZeroU64::new(512 * MIB);
        let first = staged(rig.ask(Operation::Stage(asked.clone())));
        assert!(first.formatted, "{fs_type}");
        assert_eq!(first.device_bytes, 340 * MIB);
        assert!(staged(rig.ask(Operation::Stage(asked.clone()))).already);
        assert_refused(rig.stage(&volume, fs_type), Refusal::MountedDifferently);
        let mut publish = rig.publishing(&volume, "p");
        publish.disk.partition = two;
        done(rig.ask(Operation::PublishFilesystem(publish)));
        let file = rig.inside(&rig.kubelet(&target(&volume, "p"))).join("file");
        fs::write(&file, "kept").expect("write");
        let Outcome::Usage(usage) = rig.stats(&volume, &target(&volume, "p")) else {
            panic!("usage expected");
        };
        assert!(usage.total_bytes < 340 * MIB && usage.total_bytes > 200 * MIB);
        let Outcome::Inventory(held) = rig.ask(Operation::Inspect(Inspect::default())) else {
            panic!("inventory expected");
        };
        let ours = held.volumes.iter().filter(|held| held.volume == volume);
        assert_eq!(ours.map(|held| held.staged).collect::<Vec<_>>(), [true, false]);
        // Growth ends at the end of the partition, although the request asks for the volume's size.
        let outcome = rig.client().ask(
            Operation::Expand(Expand {
                volume: volume.clone(),
                path: rig.kubelet(&staging(&volume)),
                required_bytes: NonZeroU64::new(512 * MIB),
                limit_bytes: None,
            }),
            LONG,
        );
        let Outcome::Expanded(Expanded { device_bytes, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(device_bytes, 340 * MIB);
        // A partition that does not exist is not found.
        assert_refused(
            rig.ask(Operation::Stage({
                let mut other = rig.staging(&volume, fs_type);
                other.disk.partition = NonZeroU32::new(3);
                other.staging = rig.kubelet("plugins/other/globalmount");
                other
            })),
            Refusal::DeviceNotFound,
        );
        done(rig.unpublish(&volume, &target(&volume, "p")));
        done(rig.unstage(&volume));
        assert!(!staged(rig.ask(Operation::Stage(asked))).formatted);
        let kept = rig.inside(&rig.kubelet(&staging(&volume))).join("file");
        assert_eq!(fs::read_to_string(kept).expect("read"), "kept");
        done(rig.unstage(&volume));
        shell("sfdisk", &["--verify", "-q", &attached.path()]);
    }
}

#[test]
fn raw_partition_is_published_writable_never_read_only() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let _attached = parted(&rig, &volume);
    let place = block_target(&volume, "p");
    let mut asked =
        PublishBlock { disk: disk(&volume), target: rig.kubelet(&place), read_only: false };
    asked.disk.partition = NonZeroU32::new(1);
    done(rig.ask(Operation::PublishBlock(asked.clone())));
    assert!(done(rig.ask(Operation::PublishBlock(asked.clone()))));
    assert_eq!(
        rig.stats(&volume, &place),
        Outcome::Usage(Usage { block: true, total_bytes: 64 * MIB, ..Usage::default() })
    );
    done(rig.unpublish(&volume, &place));
    asked.read_only = true;
    assert_refused(rig.ask(Operation::PublishBlock(asked)), Refusal::Unsupported);
}
