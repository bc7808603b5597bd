//! A disk is either mounted or published raw: a raw writer and a file system on the same bytes
//! would destroy each other's data.
use crate::disks::partitions::parted;
use crate::rig::{
    MIB, Rig, assert_refused, block_target, disk, done, make_filesystem, refusal, staged, staging,
    volume,
};
use ebs_csi_wire::{Disk, FsType, Observation, Outcome, Refusal, Refused};
use std::num::NonZeroU32;

/// Checks that the answer is the refusal `StillHeld`, which names `place`.
#[track_caller]
fn held_at(rig: &Rig, outcome: Outcome, place: &str) {
    let there = Observation::MountedAt(rig.kubelet(place));
    assert_eq!(refusal(outcome), Refused::because(Refusal::StillHeld, there));
}

#[test]
fn raw_published_disk_refuses_stage_and_unstage() {
    let Some(rig) = Rig::start() else { return };
    for read_only in [false, true] {
        let (volume, attached) = rig.new_disk(64 * MIB);
        let place = block_target(&volume, "one");
        assert!(!done(rig.publish_disk(&disk(&volume), "one", read_only)));
        // The disk is still blank, and what the pod writes next must not overwrite a file system.
        held_at(&rig, rig.stage(&volume, FsType::Ext4), &place);
        // After an unstage, the volume would be detached from the pod.
        held_at(&rig, rig.unstage(&volume), &place);
        done(rig.unpublish(&volume, &place));
        assert!(done(rig.unstage(&volume)), "nothing was staged");
        if !read_only {
            // The pod may have written outside the areas that are read to find a blank disk.
            assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::UsedRaw);
            make_filesystem(FsType::Ext4, &attached.path());
        }
        assert_eq!(staged(rig.stage(&volume, FsType::Ext4)).formatted, read_only);
        held_at(&rig, rig.publish_block(&volume, "one"), &staging(&volume));
        done(rig.unstage(&volume));
    }
}

#[test]
fn partition_conflicts_with_whole_disk_not_with_neighbour() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    let _attached = parted(&rig, &volume);
    let publish = |part: u32, pod: &str| {
        let disk = Disk { partition: NonZeroU32::new(part), ..disk(&volume) };
        rig.publish_disk(&disk, pod, false)
    };
    let stage = |part: u32| rig.stage_part(&volume, FsType::Ext4, part);
    let unpublish = |pod: &str| done(rig.unpublish_block(&volume, pod));

    assert!(!done(publish(1, "first")));
    assert!(staged(stage(2)).formatted);
    for (part, pod) in [(0, "whole"), (2, "second")] {
        held_at(&rig, publish(part, pod), &staging(&volume));
    }
    // Unstage concerns the whole volume.
    held_at(&rig, rig.unstage(&volume), &block_target(&volume, "first"));
    unpublish("first");
    done(rig.unstage(&volume));
    assert_refused(stage(1), Refusal::UsedRaw);

    assert!(!done(publish(0, "whole")));
    held_at(&rig, stage(2), &block_target(&volume, "whole"));
    unpublish("whole");
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::PartitionTable);
}
