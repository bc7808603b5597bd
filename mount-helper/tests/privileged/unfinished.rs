//! Formats that never finished: made again when they are this volume's own, refused when anything else is possible.
use crate::rig::{Attached, LONG, Rig, able, children, done, refused, role, shell, staged, volume};
use ebs_csi_mount_helper::content::record;
use ebs_csi_wire::{FsType, Operation, Outcome, Refusal, VolumeId};
use std::fs;
use std::os::unix::fs::FileExt;
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

fn put_record(attached: &Attached, volume: &VolumeId) {
    let place = record::place(SIZE).expect("a place");
    put(attached, place, &record::of(volume, SIZE));
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
fn bytes_beside_the_record_of_this_volume_are_formatted_over_and_no_others() {
    if !able() {
        return;
    }
    let rig = Rig::start();
    let (volume, other) = (volume(), volume());
    let attached = rig.attach(&volume, SIZE);
    staged(rig.stage(&volume, FsType::Ext4));
    assert!(!has_record(&attached), "a finished format keeps no record");
    done(rig.unstage(&volume));
    // What a killed mke2fs leaves: everything but the superblock.
    put(&attached, 0, &[0; 4096]);
    assert_eq!(
        refused(rig.stage(&volume, FsType::Ext4)),
        Refusal::FilesystemErrors
    );
    put_record(&attached, &other);
    assert_eq!(
        refused(rig.stage(&volume, FsType::Ext4)),
        Refusal::FilesystemErrors
    );
    put_record(&attached, &volume);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    assert!(!has_record(&attached));
    done(rig.unstage(&volume));
    shell("e2fsck", &["-f", "-n", &attached.path()]);
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
    shell("mke2fs", &["-q", "-F", "-t", "ext4", &attached.path()]);
    put_record(&attached, &volume);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    assert!(!has_record(&attached));
    done(rig.unstage(&volume));
    // Another driver took over, mounted it, and wrote: the record is stale, the data is not.
    put_record(&attached, &volume);
    let again = staged(rig.stage(&volume, FsType::Ext4));
    assert!(!again.formatted, "{again:?}");
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
