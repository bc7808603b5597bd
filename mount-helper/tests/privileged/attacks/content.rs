//! What a disk may hold, and what a tool may need to look at it.
use super::row;
use crate::rig::{Attached, Rig, able, block_target, done, refused, shell, staged, told, volume};
use ebs_csi_policy::blank;
use ebs_csi_wire::{FsType, Operation, Origin, Outcome, Refusal, VolumeId};
use std::fs;
use std::os::unix::fs::FileExt;

const GIB: u64 = 1 << 30;

/// Restores of volumes that were grown or have stripes.
#[test]
fn an_xfs_of_any_number_of_groups_is_checked() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    for groups in [31, 32, 64, 65, 2000_u64] {
        let volume = volume();
        let attached = rig.attach(&volume, groups.max(48) * GIB / 8);
        let asked_for = format!("agcount={groups}");
        shell("mkfs.xfs", &["-q", "-d", &asked_for, &attached.path()]);
        let mut asked = rig.staging(&volume, FsType::Xfs);
        asked.disk.origin = Origin::Copy;
        let result = staged(rig.ask(Operation::Stage(asked)));
        assert!(result.checked, "{groups} groups: {result:?}");
        done(rig.unstage(&volume));
    }
    row(
        "F2",
        "an XFS of 31, 32, 64, 65 and 2000 groups that was made elsewhere is staged",
        "the checker ends and finds it sound",
    );
}

const MIB: u64 = 1 << 20;

/// Bytes that look like nothing: no signature, and no zero.
fn noise(bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 | 1)
        .collect()
}

fn write_at(attached: &Attached, at: u64, bytes: &[u8]) {
    let disk = fs::File::options().write(true).open(attached.path());
    let disk = disk.expect("device");
    disk.write_all_at(bytes, at).expect("write");
    disk.sync_all().expect("sync");
}

fn read_at(attached: &Attached, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let disk = fs::File::open(attached.path()).expect("device");
    disk.read_exact_at(&mut bytes, at).expect("read");
    bytes
}

/// A stage of a volume that EC2 made blank.
fn stage_blank(rig: &Rig, volume: &VolumeId, fs: FsType) -> Outcome {
    let mut asked = rig.staging(volume, fs);
    asked.disk.origin = Origin::Blank;
    rig.ask(Operation::Stage(asked))
}

/// A database that keeps its data on the disk itself, away from its beginning.
#[test]
fn raw_data_between_the_signatures_is_not_formatted() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let data = noise(200 * MIB);
    for (size, at) in [(2 * GIB, 300), (4 * GIB, 2500), (12 * GIB, 7000)] {
        for fs in [FsType::Ext4, FsType::Xfs] {
            let volume = volume();
            let attached = rig.attach(&volume, size);
            write_at(&attached, at * MIB, &data);
            let told = told(stage_blank(&rig, &volume, fs));
            assert_eq!(told.reason, Refusal::UnknownContent, "{fs} at {at} MiB");
            assert!(
                read_at(&attached, at * MIB, data.len()) == data,
                "{fs} at {at} MiB: changed"
            );
        }
    }
    row(
        "F7",
        "200 MiB of raw data stand where no signature would, on disks of 2 to 12 GiB",
        "refused as unknown content, nothing is changed",
    );
}

#[test]
fn a_format_discards_nothing() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let size = 2 * GIB;
    // Where the look does not come by and no format writes.
    let at = (900 * MIB..)
        .step_by(65_536)
        .find(|at| {
            let ranges = blank::ranges(size);
            ranges
                .iter()
                .all(|(start, length)| at + 4096 <= *start || start + length <= *at)
        })
        .expect("a place");
    for fs in FsType::ALL {
        let volume = volume();
        let attached = rig.attach(&volume, size);
        write_at(&attached, at, &noise(4096));
        assert!(staged(stage_blank(&rig, &volume, *fs)).formatted);
        done(rig.unstage(&volume));
        assert!(read_at(&attached, at, 4096) == noise(4096), "{fs}");
    }
    row(
        "F7",
        "a disk is formatted that holds 4 KiB where nobody looks",
        "the format takes nothing away but what it overwrites",
    );
}

#[test]
fn blank_is_not_enough_where_nobody_says_that_it_began_so() {
    if !able() {
        return;
    }
    for fs in [FsType::Ext4, FsType::Xfs] {
        let rig = Rig::start();
        let volume = volume();
        let attached = rig.attach(&volume, 512 * MIB);
        let mut untold = rig.staging(&volume, fs);
        untold.disk.origin = Origin::Unknown;
        let untold = Operation::Stage(untold);
        assert_eq!(refused(rig.ask(untold.clone())), Refusal::OriginUntold);
        assert!(!rig.journal().contains(" tool "));
        // A container had the disk itself, and may have written anywhere.
        done(rig.publish_block(&volume, "p"));
        done(rig.unpublish(&volume, &block_target(&volume, "p")));
        let raw = stage_blank(&rig, &volume, fs);
        assert_eq!(refused(raw), Refusal::UsedRaw);
        assert!(!rig.journal().contains(" tool "));
        // Whoever attaches it anew says again how it began.
        let image = attached.image.clone();
        drop(attached);
        let _attached = rig.attach_image(image);
        assert!(staged(stage_blank(&rig, &volume, fs)).formatted);
        done(rig.unstage(&volume));
        // What has a file system needs nobody's word.
        assert!(!staged(rig.ask(untold)).formatted);
        done(rig.unstage(&volume));
    }
    row(
        "F7",
        "a disk that reads as blank, of unknown origin or published raw before, is staged",
        "refused with the reason, no tool runs",
    );
}
