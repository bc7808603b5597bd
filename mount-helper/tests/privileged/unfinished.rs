//! Formats that never finished: made again when they are this volume's own, refused when anything else is possible.
use crate::rig::{Attached, LONG, Rig, able, children, done, refused, role, shell, staged, volume};
use ebs_csi_mount_helper::content::record;
use ebs_csi_mount_helper::tools::identifier;
use ebs_csi_policy::tool::{Arguments, DISK, ToolId};
use ebs_csi_wire::{FormatOptions, FsType, Operation, Outcome, Refusal, VolumeId};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const SIZE: u64 = 512 << 20;

fn put(attached: &Attached, at: u64, bytes: &[u8]) {
    let device = fs::File::options()
        .write(true)
        .open(attached.path())
        .expect("device");
    device.write_all_at(bytes, at).expect("write");
    device.sync_all().expect("sync");
}

/// When the formats of these tests began, in seconds since 1970.
const BEGAN: u64 = 1_700_000_001;

fn put_record(attached: &Attached, volume: &VolumeId, began: u64) {
    let place = record::place(SIZE).expect("a place");
    put(attached, place, &record::of(volume, SIZE, began));
}

/// What the helper's own format of this volume writes, as its policy has the command line.
fn make(attached: &Attached, volume: &VolumeId, fs: FsType) {
    let tool = ToolId::Mke2fs.tool().expect("a row");
    let arguments = tool.command_line(&Arguments {
        fs,
        format: &FormatOptions::default(),
        uuid: identifier(volume),
    });
    let path = attached.path();
    let made = Command::new(tool.path)
        .args(
            arguments[1..]
                .iter()
                .map(|a| if a == DISK { &path } else { a }),
        )
        .env("E2FSPROGS_FAKE_TIME", BEGAN.to_string())
        .stdin(Stdio::null())
        .status()
        .expect("mke2fs");
    assert!(made.success());
}

fn has_record(attached: &Attached) -> bool {
    let mut block = vec![0; record::LENGTH];
    fs::File::open(attached.path())
        .expect("device")
        .read_exact_at(&mut block, record::place(SIZE).expect("a place"))
        .expect("read");
    record::is_one(&block)
}

#[test]
fn what_this_volumes_format_left_is_formatted_over_and_nothing_else() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    for fs in [FsType::Ext4, FsType::Ext3] {
        let (volume, other) = (volume(), volume());
        let attached = rig.attach(&volume, SIZE);
        make(&attached, &volume, fs);
        // What a killed mke2fs leaves: everything but the superblock.
        put(&attached, 0, &[0; 4096]);
        let refuses = |why: &str| {
            println!("{fs}: {why}");
            assert_eq!(refused(rig.stage(&volume, fs)), Refusal::FilesystemErrors);
        };
        refuses("no record");
        put_record(&attached, &other, BEGAN);
        refuses("the record of another volume");
        put_record(&attached, &volume, BEGAN + 1);
        refuses("a format that began at another time");
        put_record(&attached, &volume, BEGAN);
        // One byte that is not the format's: where it writes nothing, among what it writes, and at the end.
        for at in [3000, 700_000, (128 << 20) + 1000, SIZE - 1] {
            let mut own = [0];
            fs::File::open(attached.path())
                .expect("device")
                .read_exact_at(&mut own, at)
                .expect("read");
            put(&attached, at, &[own[0] ^ 0x40]);
            let told = rig.stage(&volume, fs);
            assert!(matches!(told, Outcome::Refused(_)), "byte {at}: {told:?}");
            put(&attached, at, &own);
        }
        assert!(has_record(&attached));
        assert!(staged(rig.stage(&volume, fs)).formatted);
        assert!(!has_record(&attached), "a finished format keeps no record");
        done(rig.unstage(&volume));
        shell("e2fsck", &["-f", "-n", &attached.path()]);
    }
}

#[test]
fn a_record_beside_a_file_system_counts_only_until_somebody_mounted_it() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let volume = volume();
    let attached = rig.attach(&volume, SIZE);
    // The superblock reached the disk and the power went.
    make(&attached, &volume, FsType::Ext4);
    put_record(&attached, &volume, BEGAN);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    assert!(!has_record(&attached));
    done(rig.unstage(&volume));
    // Another driver took over, mounted it, and wrote: the record is stale, the data is not.
    put_record(&attached, &volume, BEGAN);
    let again = staged(rig.stage(&volume, FsType::Ext4));
    assert!(!again.formatted, "{again:?}");
    assert!(!has_record(&attached));
    done(rig.unstage(&volume));
}

#[test]
fn a_file_system_that_somebody_else_made_beside_a_stale_record_is_kept() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let volume = volume();
    let attached = rig.attach(&volume, SIZE);
    shell("mke2fs", &["-q", "-F", "-t", "ext4", &attached.path()]);
    put_record(&attached, &volume, BEGAN);
    let result = staged(rig.stage(&volume, FsType::Ext4));
    assert!(!result.formatted, "{result:?}");
    assert!(!has_record(&attached));
    done(rig.unstage(&volume));
}

#[test]
fn a_format_that_is_killed_at_any_moment_is_made_again() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let mut cut_short = 0;
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        for delay in 0..12 {
            let volume = volume();
            let attached = rig.attach(&volume, SIZE);
            let mut client = rig.client();
            client.send(Operation::Stage(rig.staging(&volume, fs)), LONG);
            let runner = loop {
                let found = children(rig.pid())
                    .into_iter()
                    .find(|pid| role(*pid) == "runner");
                if found.is_some() || rig.journal().contains(volume.as_str()) {
                    break found;
                }
            };
            std::thread::sleep(Duration::from_millis(delay));
            if let Some(pid) =
                runner.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
            {
                // It may be over already.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            match client.receive() {
                Some(Outcome::Failed(_)) => cut_short += 1,
                Some(Outcome::Staged(_)) => {}
                other => panic!("{other:?}"),
            }
            staged(rig.stage(&volume, fs));
            done(rig.unstage(&volume));
            drop(attached);
        }
    }
    println!("{cut_short} of 36 formats were cut short");
}
