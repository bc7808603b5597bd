//! The operations within which a process or a disk goes, and the states in which they begin.
use crate::rig::{
    Attached, MIB, Rig, copy_sparse, disk, done, shell, staged, staging, target, try_signal,
    volume, write_synced,
};
use ebs_csi_wire::{FsType, Operation, Origin, VolumeId};
use rustix::process::Signal;

/// The content of the file `kept` of a disk that was used before.
pub(super) const KEPT: &str = "written before";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    Format,
    /// The check of a file system that was not unmounted cleanly (ext4), or that was made elsewhere
    /// (XFS).
    Check,
    /// The repair of wrong counters (ext4), or of a log that was not replayed (XFS).
    Repair,
    /// The stage of a file system whose disk has grown.
    Growth,
    Mount,
    Attach,
    Publish,
    PublishRaw,
    Unpublish,
    Unstage,
    /// The growth of a mounted file system.
    Expand,
}

pub(super) const FORMAT: [&str; 8] = [
    "stage-found",
    "stage-looked",
    "runner-started",
    "tool-started",
    "runner-finished",
    "stage-made",
    "stage-formatted",
    "stage-prepared",
];
pub(super) const EXAMINED: [&str; 5] =
    ["runner-started", "tool-started", "runner-finished", "stage-checked", "stage-prepared"];

pub(super) fn in_a_runner(point: &str) -> bool {
    matches!(point, "runner-started" | "tool-started" | "runner-finished")
}

/// Lets the process continue that a fault point holds.
pub(super) fn release(rig: &Rig, point: &str) {
    let held = if in_a_runner(point) { "runner" } else { "broker" };
    if let Some(pid) = rig.part_now(held) {
        try_signal(pid, Signal::USR1);
    }
}

/// Brings a volume to the state in which the act begins, and returns the request for the act.
pub(super) fn prepared(rig: &Rig, act: Act, fs: FsType) -> (VolumeId, Attached, Operation) {
    // mkfs.xfs refuses much smaller disks.
    let (first, attached) = rig.new_disk(320 * MIB);
    let untouched = match act {
        Act::Format => Some(rig.stage_operation(&first, fs)),
        Act::PublishRaw => Some(rig.block_operation(&disk(&first), "p", false)),
        _ => None,
    };
    if let Some(operation) = untouched {
        return (first, attached, operation);
    }
    staged(rig.stage(&first, fs));
    write_synced(&rig.staged_root(&first).join("kept"), KEPT);
    if matches!(act, Act::Check | Act::Repair) && fs == FsType::Xfs {
        // The disk is staged as another volume, which did not make the file system: cleanly
        // unmounted, or as after a power cut.
        if act == Act::Check {
            done(rig.unstage(&first));
        }
        let copy = volume();
        copy_sparse(&attached.image, &rig.image(&copy));
        done(rig.unstage(&first));
        drop(attached);
        let attached = rig.attach_image(rig.image(&copy));
        let mut request = rig.stage_request(&copy, fs);
        request.disk.origin = Origin::Copy;
        return (copy, attached, Operation::Stage(request));
    }
    let in_use = match act {
        Act::Publish => Some(rig.publish_operation(&first, "p")),
        Act::Unpublish => {
            done(rig.publish(&first, "p"));
            Some(rig.unpublish_operation(&first, &target(&first, "p")))
        }
        Act::Unstage => Some(rig.unstage_operation(&first, &staging(&first))),
        Act::Expand => {
            attached.resize(512 * MIB);
            Some(rig.expand_operation(&first, &staging(&first), 0, 0))
        }
        _ => None,
    };
    if let Some(operation) = in_use {
        return (first, attached, operation);
    }
    done(rig.unstage(&first));
    let debugfs = |command| drop(shell("debugfs", &["-w", "-R", command, &attached.path()]));
    if act == Act::Repair {
        debugfs("ssv free_inodes_count 7");
    }
    match act {
        Act::Check | Act::Repair => debugfs("ssv state 0"),
        Act::Growth => attached.resize(512 * MIB),
        _ => {}
    }
    let operation = rig.stage_operation(&first, fs);
    (first, attached, operation)
}
