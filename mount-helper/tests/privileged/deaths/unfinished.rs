//! Unfinished formats: a format of this volume is repeated, and a disk that may hold anything else
//! is refused.
use crate::rig::{Attached, LONG, Rig, check_filesystem, done, staged, try_signal, volume};
use ebs_csi_mount_helper::disk::content::crc32c;
use ebs_csi_mount_helper::disk::filesystem_identifier::identifier;
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::tool::{Arguments, DISK, ToolId};
use ebs_csi_wire::{FsType, Outcome, VolumeId};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const SIZE: u64 = 512 << 20;

/// The time at which the formats of these tests began, in seconds since 1970.
const BEGAN: u64 = 1_700_000_001;

/// Formats the disk as the helper does for this volume, with the policy's command line.
fn make(attached: &Attached, volume: &VolumeId, fs: FsType) {
    assert!(as_the_helper_does(attached, volume, fs, &[]).success());
}

/// Formats the disk likewise under another program. `under` is that program's name and arguments;
/// the tool's command line follows them.
fn as_the_helper_does(
    attached: &Attached,
    volume: &VolumeId,
    fs: FsType,
    under: &[&str],
) -> ExitStatus {
    let tool = ToolId::formats(fs).tool().expect("a row");
    let arguments = tool.command_line(&Arguments {
        fs,
        format: &FormatOptions::default(),
        uuid: identifier(volume),
    });
    let path = attached.path();
    let own = arguments[1..].iter().map(|a| if a == DISK { path.as_str() } else { a });
    let line: Vec<&str> = under.iter().copied().chain([tool.path]).chain(own).collect();
    Command::new(line[0])
        .args(&line[1..])
        .env("E2FSPROGS_FAKE_TIME", BEGAN.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect(line[0])
}

fn refuses(rig: &Rig, volume: &VolumeId, fs: FsType, what: &str) {
    println!("{fs}: {what}");
    let outcome = rig.stage(volume, fs);
    assert!(matches!(outcome, Outcome::Refused(_)), "{what}: {outcome:?}");
}

/// Checks that a stage is refused while one byte of the disk is changed.
fn refuses_changed_byte(rig: &Rig, volume: &VolumeId, disk: &Attached, fs: FsType, at: u64) {
    let byte = disk.read(at, 1)[0];
    disk.write(at, &[byte ^ 0x40]);
    refuses(rig, volume, fs, &format!("byte {at}"));
    disk.write(at, &[byte]);
}

#[test]
fn only_own_unfinished_ext_format_is_redone() {
    let Some(rig) = Rig::start() else { return };
    for fs in [FsType::Ext4, FsType::Ext3] {
        let (volume, other) = (volume(), volume());
        let attached = rig.attach(&volume, SIZE);
        let refuses = |what: &str| refuses(&rig, &volume, fs, what);
        // Leaves what a killed mke2fs leaves: everything but the superblock.
        make(&attached, &other, fs);
        attached.write(0, &[0; 4096]);
        refuses("a format of another volume");
        make(&attached, &volume, fs);
        attached.write(0, &[0; 4096]);
        // Changes one byte: where the format writes nothing, where it writes, and at the end.
        for at in [3000, 700_000, (128 << 20) + 1000, SIZE - 1] {
            refuses_changed_byte(&rig, &volume, &attached, fs, at);
        }
        assert!(staged(rig.stage(&volume, fs)).formatted);
        let root = rig.staged_root(&volume);
        fs::write(root.join("data"), "precious").expect("write");
        done(rig.unstage(&volume));
        check_filesystem(FsType::Ext4, &attached.path());
        // The superblock is removed again, but the file system was used in the meantime.
        attached.write(0, &[0; 4096]);
        refuses("a file system in use that lost its superblock");
    }
}

/// Writes the superblock that mkfs.xfs writes first: "in progress", with a valid checksum.
fn unfinish(attached: &Attached) {
    let mut superblock = attached.read(0, 512);
    superblock[126] = 1;
    superblock[224..228].fill(0);
    let sum = !crc32c(!0, &superblock);
    superblock[224..228].copy_from_slice(&sum.to_le_bytes());
    attached.write(0, &superblock);
}

#[test]
fn unfinished_xfs_is_redone_unless_one_byte_differs() {
    let Some(rig) = Rig::start() else { return };
    let (volume, other) = (volume(), volume());
    let attached = rig.attach(&volume, SIZE);
    let refuses = |what: &str| refuses(&rig, &volume, FsType::Xfs, what);
    make(&attached, &other, FsType::Xfs);
    unfinish(&attached);
    refuses("a format of another volume");
    make(&attached, &volume, FsType::Xfs);
    unfinish(&attached);
    // Changes one byte: where the format writes nothing, beside a header, in headers, in a tree, in
    // an inode, in the log, and at the end.
    for at in [
        100_000,
        3000,
        512 + 40,
        4096 + 300,
        65536 + 600,
        SIZE / 4 + 512 + 60,
        SIZE / 2 + (128 << 10),
        SIZE - 1,
    ] {
        refuses_changed_byte(&rig, &volume, &attached, FsType::Xfs, at);
    }
    assert!(staged(rig.stage(&volume, FsType::Xfs)).formatted);
    let root = rig.staged_root(&volume);
    fs::write(root.join("data"), "precious").expect("write");
    done(rig.unstage(&volume));
    // The file system was used in the meantime, so no state of its superblock permits a format.
    let superblock = attached.read(0, 512);
    attached.write(0, &[0; 512]);
    refuses("a file system in use that lost its superblock");
    attached.write(0, &superblock);
    unfinish(&attached);
    refuses("a file system in use that says that it is not finished");
    attached.write(0, &superblock);
    assert!(!staged(rig.stage(&volume, FsType::Xfs)).formatted);
    done(rig.unstage(&volume));
}

/// A power cut between two writes of mkfs.xfs.
#[test]
fn xfs_format_killed_between_writes_is_redone() {
    if !std::path::Path::new("/usr/bin/strace").exists() {
        println!("skipped: strace is not installed");
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let mut cut_short = 0;
    for write in (1..24).step_by(2).chain((24..160).step_by(17)) {
        let (volume, attached) = rig.new_disk(SIZE);
        let inject = format!("inject=pwrite64:signal=SIGKILL:when={write}");
        let under = ["strace", "-f", "-o", "/dev/null", "-e", &inject];
        let finished = as_the_helper_does(&attached, &volume, FsType::Xfs, &under).success();
        cut_short += usize::from(!finished);
        let result = staged(rig.stage(&volume, FsType::Xfs));
        assert_eq!(result.formatted, !finished, "write {write}: {result:?}");
        done(rig.unstage(&volume));
    }
    println!("{cut_short} formats were cut short");
    assert!(cut_short > 12);
}

/// Only a part of the written blocks reached the disk before a power cut. The part varies, but
/// never contains the superblock.
#[test]
fn partially_written_ext4_format_is_redone() {
    let Some(rig) = Rig::start() else { return };
    for part in 0..6_usize {
        let (volume, attached) = rig.new_disk(64 << 20);
        make(&attached, &volume, FsType::Ext4);
        let written = fs::read(attached.path()).expect("device");
        let device = fs::File::options().write(true).open(attached.path()).expect("device");
        let mut lost = 0;
        let blocks = written.chunks(4096).enumerate();
        for (index, (block, _)) in blocks.filter(|(_, b)| b.iter().any(|b| *b != 0)).enumerate() {
            // The lost part decreases from all but a few blocks to a few blocks, with another
            // selection each time.
            if block == 0 || index * 7919 / 16 % 6 >= part {
                device.write_all_at(&[0; 4096], block as u64 * 4096).expect("write");
                lost += 1;
            }
        }
        device.sync_all().expect("sync");
        drop(device);
        let result = staged(rig.stage(&volume, FsType::Ext4));
        assert!(result.formatted, "{lost} blocks lost: {result:?}");
        done(rig.unstage(&volume));
    }
}

#[test]
fn ext4_made_outside_driver_is_kept() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.made_disk(SIZE, FsType::Ext4);
    let result = staged(rig.stage(&volume, FsType::Ext4));
    assert!(!result.formatted, "{result:?}");
    done(rig.unstage(&volume));
}

/// The test kills the runner 0 to 11 ms after it appears, for ext4, ext3 and XFS. The format may
/// have ended by then.
#[test]
fn stage_succeeds_after_format_is_killed() {
    let Some(rig) = Rig::start() else { return };
    let mut cut_short = 0;
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        for delay in 0..12 {
            let (volume, attached) = rig.new_disk(SIZE);
            let mut client = rig.client();
            client.send(rig.stage_operation(&volume, fs), LONG);
            let runner = loop {
                let found = rig.part_now("runner");
                if found.is_some() || rig.journal().contains(volume.as_str()) {
                    break found;
                }
            };
            std::thread::sleep(Duration::from_millis(delay));
            runner.inspect(|pid| try_signal(*pid, Signal::KILL));
            match client.receive() {
                Some(Outcome::Failed(_)) => cut_short += 1,
                Some(Outcome::Staged(_)) => {}
                other => panic!("{other:?}"),
            }
            rig.stage_once(&volume, fs);
            drop(attached);
        }
    }
    println!("{cut_short} of 36 formats were cut short");
}
