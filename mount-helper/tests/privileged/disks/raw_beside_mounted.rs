//! A disk is either mounted or published raw: a raw writer and a file system on the same bytes
//! would destroy each other's data.
use crate::disks::partitions::parted;
use crate::rig::{
    Rig, assert_refused, block_target, disk, done, shell, staged, staging, told, volume,
};
use ebs_csi_wire::{
    FsType, Observation, Operation, Outcome, PublishBlock, Refusal, Stage, VolumeId,
};
use std::num::NonZeroU32;

const MIB: u64 = 1 << 20;

/// Checks that the answer is the refusal `StillHeld`, which names `place`.
#[track_caller]
fn held_at(rig: &Rig, outcome: Outcome, place: &str) {
    let told = told(outcome);
    assert_eq!(told.reason, Refusal::StillHeld);
    assert_eq!(told.seen, Some(Observation::MountedAt(rig.kubelet(place))));
}

/// The refusal names the raw target. A raw publish beside a stage is refused with the staging path.
#[test]
fn raw_published_disk_refuses_stage_and_unstage() {
    let Some(rig) = Rig::start() else { return };
    for read_only in [false, true] {
        let (volume, attached) = rig.new_disk(64 * MIB);
        let place = block_target(&volume, "one");
        let shown = PublishBlock { disk: disk(&volume), target: rig.kubelet(&place), read_only };
        assert!(!done(rig.ask(Operation::PublishBlock(shown))));
        // The disk is still blank, and what the pod writes next must not overwrite a file system.
        held_at(&rig, rig.stage(&volume, FsType::Ext4), &place);
        // After an unstage, the volume would be detached from the pod.
        held_at(&rig, rig.unstage(&volume), &place);
        done(rig.unpublish(&volume, &place));
        assert!(done(rig.unstage(&volume)), "nothing was staged");
        if !read_only {
            // The pod may have written outside the areas that are read to find a blank disk.
            assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::UsedRaw);
            shell("mke2fs", &["-q", "-F", "-t", "ext4", &attached.path()]);
        }
        assert_eq!(staged(rig.stage(&volume, FsType::Ext4)).formatted, read_only);
        held_at(&rig, rig.publish_block(&volume, "one"), &staging(&volume));
        done(rig.unstage(&volume));
    }
}

/// One partition can be mounted beside another one that is published raw. Unstage is refused until
/// the raw partition is unpublished.
#[test]
fn partition_conflicts_with_whole_disk_not_with_neighbour() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let _attached = parted(&rig, &volume);
    let show = |part: Option<u32>, pod: &str| {
        let mut asked = PublishBlock {
            disk: disk(&volume),
            target: rig.kubelet(&block_target(&volume, pod)),
            read_only: false,
        };
        asked.disk.partition = part.and_then(NonZeroU32::new);
        rig.ask(Operation::PublishBlock(asked))
    };
    let mount = |part: u32| rig.ask(Operation::Stage(of_part(&rig, &volume, part)));
    let hide = |pod: &str| done(rig.unpublish(&volume, &block_target(&volume, pod)));

    assert!(!done(show(Some(1), "first")));
    assert!(staged(mount(2)).formatted);
    for (part, pod) in [(None, "whole"), (Some(2), "second")] {
        held_at(&rig, show(part, pod), &staging(&volume));
    }
    // Unstage concerns the whole volume.
    held_at(&rig, rig.unstage(&volume), &block_target(&volume, "first"));
    hide("first");
    done(rig.unstage(&volume));
    assert_refused(mount(1), Refusal::UsedRaw);

    assert!(!done(show(None, "whole")));
    held_at(&rig, mount(2), &block_target(&volume, "whole"));
    hide("whole");
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::PartitionTable);
}

fn of_part(rig: &Rig, volume: &VolumeId, part: u32) -> Stage {
    let mut asked = rig.staging(volume, FsType::Ext4);
    asked.disk.partition = NonZeroU32::new(part);
    asked
}
