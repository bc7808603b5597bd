//! Contents of disks, and what a tool needs to examine them.
use crate::rig::{
    LONG, MIB, Repeated, Rig, assert_refused, descriptors, done, format_options, reason, shell,
    staged,
};
use ebs_csi_policy::blank;
use ebs_csi_wire::{FsType, Operation, Origin, Outcome, Refusal, VolumeId};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// N2: Such file systems are restores of volumes that were grown or that have stripes.
#[test]
fn xfs_with_31_to_2000_groups_is_checked() {
    let Some(rig) = Rig::start() else { return };
    for groups in [31, 32, 64, 65, 2000_u64] {
        let (volume, attached) = rig.new_disk(groups.max(48) * GIB / 8);
        let asked_for = format!("agcount={groups}");
        shell("mkfs.xfs", &["-q", "-d", &asked_for, &attached.path()]);
        let result = staged(rig.stage_copy(&volume, FsType::Xfs));
        assert!(result.checked, "{groups} groups: {result:?}");
        done(rig.unstage(&volume));
    }
}

/// Returns bytes without a known signature and without a zero.
fn noise(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 | 1).collect()
}

/// N7: The disk is like that of a database that keeps its data on the raw disk, away from the
/// disk's beginning.
#[test]
fn raw_data_between_the_signatures_is_not_formatted() {
    let Some(rig) = Rig::start() else { return };
    let data = noise(200 * MIB);
    for (size, at) in [(2 * GIB, 300), (4 * GIB, 2500), (12 * GIB, 7000)] {
        for fs in [FsType::Ext4, FsType::Xfs] {
            let (volume, attached) = rig.new_disk(size);
            attached.write(at * MIB, &data);
            let reason = reason(rig.stage(&volume, fs));
            assert_eq!(reason, Refusal::UnknownContent, "{fs} at {at} MiB");
            assert!(attached.read(at * MIB, data.len()) == data, "{fs} at {at} MiB: changed");
        }
    }
}

/// N7: a disk is formatted that holds 4 KiB where nobody looks.
#[test]
fn a_format_discards_nothing() {
    let Some(rig) = Rig::start() else { return };
    let size = 2 * GIB;
    // An offset that the helper does not read and that no format writes.
    let at = (900 * MIB..)
        .step_by(65_536)
        .find(|at| {
            let ranges = blank::ranges(size);
            ranges.iter().all(|(start, length)| at + 4096 <= *start || start + length <= *at)
        })
        .expect("a place");
    for fs in FsType::ALL {
        let (volume, attached) = rig.new_disk(size);
        attached.write(at, &noise(4096));
        assert!(staged(rig.stage(&volume, *fs)).formatted);
        done(rig.unstage(&volume));
        assert!(attached.read(at, 4096) == noise(4096), "{fs}");
    }
}

/// N7: The helper runs no tool on a disk of unknown origin or after a raw publish. A new attachment
/// ends the raw use, and an existing file system needs no origin.
#[test]
fn blank_disk_untold_or_used_raw_is_refused() {
    for fs in [FsType::Ext4, FsType::Xfs] {
        let Some(rig) = Rig::start() else { return };
        let (volume, attached) = rig.new_disk(512 * MIB);
        let stage_unknown =
            || rig.stage_with(&volume, fs, |request| request.disk.origin = Origin::Unknown);
        assert_refused(stage_unknown(), Refusal::OriginUntold);
        assert!(!rig.journal().contains(" tool "));
        // A container had the raw disk, and may have written anywhere.
        done(rig.publish_block(&volume, "p"));
        done(rig.unpublish_block(&volume, "p"));
        assert_refused(rig.stage(&volume, fs), Refusal::UsedRaw);
        assert!(!rig.journal().contains(" tool "));
        let _attached = rig.reattach(attached);
        assert!(staged(rig.stage(&volume, fs)).formatted);
        done(rig.unstage(&volume));
        assert!(!staged(stage_unknown()).formatted);
        done(rig.unstage(&volume));
    }
}

/// Returns how many bytes the broker keeps in files in memory.
fn kept_in_memory(broker: u32) -> u64 {
    // A file without a name has its content only in memory.
    let nameless = descriptors(broker).into_iter().filter(|(_, to)| to.ends_with(" (deleted)"));
    nameless
        .filter_map(|(number, _)| fs::metadata(format!("/proc/{broker}/fd/{number}")).ok())
        .filter(|facts| facts.is_file())
        .map(|facts| facts.blocks() * 512)
        .sum()
}

/// N12: The remains of other data on a disk are compared with what a format of this volume would
/// write.
#[test]
fn a_comparison_is_bounded_and_made_once() {
    let Some(rig) = Rig::start() else { return };
    let broker = rig.part("broker");
    let comparisons = || rig.journal().matches(" made-in-memory ").count();
    // With these options a format of 4 TiB writes more than a gigabyte.
    let stage = |volume: &VolumeId| {
        let mut request = rig.stage_request(volume, FsType::Ext4);
        request.format = format_options(&[("blockSize", 1024)]);
        let end = Instant::now() + LONG * 5;
        loop {
            assert!(Instant::now() < end, "never answered");
            match rig.call(Operation::Stage(request.clone())) {
                Outcome::Refused(refused) if refused.reason == Refusal::Busy => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Outcome::Pending => {}
                other => return reason(other),
            }
        }
    };
    let disks: Vec<_> = (0..4).map(|_| rig.new_disk(4 << 40)).collect();
    disks.iter().for_each(|(_, attached)| attached.write(3000, &noise(100)));
    let watch = Repeated::start(0, Duration::from_millis(10), move |most: &mut u64| {
        *most = (*most).max(kept_in_memory(broker));
    });
    std::thread::scope(|scope| {
        let stages: Vec<_> =
            disks.iter().map(|(volume, _)| scope.spawn(|| stage(volume))).collect();
        for thread in stages {
            assert_eq!(thread.join().expect("an answer"), Refusal::UnknownContent);
        }
    });
    let most = watch.end();
    println!("at most {} MiB were kept in memory", most / MIB);
    assert!(most <= 160 * MIB, "{} MiB", most / MIB);
    assert_eq!(comparisons(), 4);
    // Kubelet repeats its request.
    for (volume, _) in &disks {
        assert_eq!(stage(volume), Refusal::UnknownContent);
    }
    assert_eq!(comparisons(), 4);
    // Changed content and a new attachment are compared again.
    disks[0].1.write(2000, &noise(100));
    assert_eq!(stage(&disks[0].0), Refusal::UnknownContent);
    assert_eq!(comparisons(), 5);
    let (volume, attached) = disks.into_iter().last().expect("a disk");
    let _attached = rig.reattach(attached);
    assert_eq!(stage(&volume), Refusal::UnknownContent);
    assert_eq!(comparisons(), 6);
}
