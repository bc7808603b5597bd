//! File systems with features that the kernel or the checker does not have, as newer tools make
//! them.
use crate::rig::{
    Attached, MIB, Rig, format_options, make_filesystem, refusal, shell, sparse_file, staged, text,
};
use ebs_csi_mount_helper::disk::content::crc32c;
use ebs_csi_mount_helper::sys::page_bytes;
use ebs_csi_wire::{
    FsType, KernelVersion, MountFlag, Observation, Origin, Outcome, Refusal, Refused, VolumeId,
    largest_block,
};
use std::fs;
use std::os::unix::fs::FileExt;

fn made_elsewhere(rig: &Rig, fs: FsType, change: impl FnOnce(&str)) -> (VolumeId, Attached) {
    let image = rig.path("outside/newer.img");
    sparse_file(&image, 512 * MIB);
    make_filesystem(fs, text(&image));
    change(text(&image));
    rig.attach_copy(&image)
}

/// Sets bits of the incompatible features of an XFS, and corrects the checksum.
fn add_xfs_features(image: &str, bits: u32) {
    let file = fs::File::options().read(true).write(true).open(image).expect("open");
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, 0).expect("read");
    let features = u32::from_be_bytes(sector[216..220].try_into().expect("four bytes")) | bits;
    sector[216..220].copy_from_slice(&features.to_be_bytes());
    sector[224..228].fill(0);
    let sum = !crc32c(!0, &sector);
    sector[224..228].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&sector, 0).expect("write");
}

fn add_ext_feature(image: &str, name: &str) {
    shell("debugfs", &["-w", "-R", &format!("feature {name}"), image]);
}

#[track_caller]
fn assert_lacking(outcome: Outcome, reason: Refusal, names: &str) {
    let refused = refusal(outcome);
    assert_eq!(refused.reason, reason, "{refused:?}");
    let seen = refused.seen.map(|seen| seen.to_string()).unwrap_or_default();
    assert!(seen.ends_with(names), "{seen}");
}

/// The kernel refuses these features, whichever version it is.
#[test]
fn feature_that_kernel_lacks_is_named() {
    let Some(rig) = Rig::start() else { return };
    for (fs, feature) in
        [(FsType::Ext4, "FEATURE_I21"), (FsType::Ext4, "FEATURE_R20"), (FsType::Xfs, "FEATURE_I30")]
    {
        let (volume, _attached) = made_elsewhere(&rig, fs, |image| match fs {
            FsType::Xfs => add_xfs_features(image, 1 << 30),
            _ => add_ext_feature(image, feature),
        });
        let release = shell("uname", &["-r"]);
        let version: Vec<&str> = release.split(['.', '-']).take(2).collect();
        let what = if fs == FsType::Xfs { "an XFS file system" } else { "an ext4 file system" };
        let words = format!("Linux {} lacks what {what} needs: {feature}", version.join("."));
        // A second request gets the same answer.
        for _ in 0..2 {
            assert_lacking(rig.stage(&volume, fs), Refusal::KernelLacksFeature, &words);
        }
    }
}

/// A read-only mount needs no read-only compatible feature.
#[test]
fn read_only_stage_ignores_read_only_compatible_feature() {
    let Some(rig) = Rig::start() else { return };
    let change = |image: &str| add_ext_feature(image, "FEATURE_R20");
    let (volume, _attached) = made_elsewhere(&rig, FsType::Ext4, change);
    staged(rig.stage_with(&volume, FsType::Ext4, |request| request.read_only = true));
}

/// The kernel would mount all of these: what the checker does not know is refused where a check is
/// due, and no mount replaces the check.
#[test]
fn filesystem_newer_than_checker_is_refused_unchecked() {
    let Some(rig) = Rig::start() else { return };
    let unclean = |image: &str| {
        add_ext_feature(image, "FEATURE_C15");
        shell("debugfs", &["-w", "-R", "ssv state 0", image]);
    };
    let foreign = |image: &str| add_ext_feature(image, "FEATURE_C15");
    let xfs = |image: &str| add_xfs_features(image, 0xc0);
    type Row<'r> = (FsType, &'r dyn Fn(&str), Origin, bool, &'r str);
    let rows: [Row<'_>; 5] = [
        (FsType::Ext4, &unclean, Origin::Blank, false, "FEATURE_C15"),
        (FsType::Ext4, &foreign, Origin::Copy, false, "FEATURE_C15"),
        (FsType::Ext4, &foreign, Origin::Copy, true, "FEATURE_C15"),
        (FsType::Xfs, &xfs, Origin::Copy, false, "exchange, parent"),
        (FsType::Xfs, &xfs, Origin::Copy, true, "exchange, parent"),
    ];
    for (fs, change, origin, read_only, names) in rows {
        let (volume, attached) = made_elsewhere(&rig, fs, change);
        let before = fs::read(&attached.image).expect("read");
        let outcome = rig.stage_with(&volume, fs, |request| {
            (request.disk.origin, request.read_only) = (origin, read_only);
        });
        assert_lacking(outcome, Refusal::NewerThanChecker, names);
        assert!(before == fs::read(&attached.image).expect("read"), "{fs} {names}: changed");
    }
}

/// Only a new file system gets the block size of a request.
#[test]
fn block_size_above_page_is_refused_before_format() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    let release = KernelVersion::parse(&shell("uname", &["-r"])).expect("a version");
    if largest_block(FsType::Ext4, release, page_bytes()) == 65_536 {
        println!("skipped: this kernel mounts every block size");
        return;
    }
    let stage = || {
        rig.stage_with(&volume, FsType::Ext4, |request| {
            request.format = format_options(&[("blockSize", 65_536)]);
        })
    };
    assert_lacking(stage(), Refusal::KernelLacksFeature, "needs: blocks of 65536 bytes");
    assert!(fs::read(&attached.image).expect("read").iter().all(|byte| *byte == 0), "written");
    rig.stage_once(&volume, FsType::Ext4);
    staged(stage());
}

/// A kernel without SELinux does not know the parameter, and says so in the mount's context.
#[test]
fn refused_mount_parameter_is_named_in_kernels_words() {
    if fs::exists("/sys/fs/selinux").expect("exists") {
        println!("skipped: the kernel has SELinux");
        return;
    }
    let Some(mut rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let flag = MountFlag::new("context", Some("system_u:object_r:t:s0")).expect("a flag");
    let refused = refusal(rig.stage_with(&volume, FsType::Ext4, |request| {
        request.flags = vec![flag.clone()];
    }));
    let named = Refused::because(Refusal::MountFlag, Observation::MountFlag(flag));
    assert_eq!(refused, named);
    rig.stop();
    assert!(rig.journal().contains("Unknown parameter 'context'"), "{}", rig.journal());
}
