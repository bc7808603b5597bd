//! Disks that an operator or this driver made read-only.
use super::row;
use crate::rig::{Attached, LONG, Rig, assert_refused, block_target, disk, done, shell, staged};
use ebs_csi_wire::{FsType, Operation, Outcome, PublishBlock, Refusal, VolumeId};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

const MIB: u64 = 1 << 20;

fn publishing(rig: &Rig, volume: &VolumeId, read_only: bool) -> Operation {
    Operation::PublishBlock(PublishBlock {
        disk: disk(volume),
        target: rig.kubelet(&block_target(volume, "p")),
        read_only,
    })
}

fn is_read_only(attached: &Attached) -> bool {
    shell("blockdev", &["--getro", &attached.path()]) == "1"
}

fn unpublish(rig: &Rig, volume: &VolumeId) -> Outcome {
    rig.unpublish(volume, &block_target(volume, "p"))
}

/// Kills the broker at a step of an operation, and starts the next helper.
fn killed_at(rig: &mut Rig, point: &str, operation: Operation) {
    rig.stop();
    rig.run(&["--fault-point", point]);
    let mut client = rig.client();
    client.send(operation, LONG);
    rig.wait_for(&format!("fault-point name={point}"));
    let broker = Pid::from_raw(rig.part("broker").cast_signed()).expect("pid");
    kill_process(broker, Signal::KILL).expect("kill");
    assert_ne!(rig.ended(), Some(0));
    rig.run(&[]);
}

#[test]
fn operator_set_read_only_device_stays_read_only() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    // The first round is before the driver used the disk. The second is after the driver switched
    // the disk to read-only and back to writable.
    for restarted in [false, true] {
        shell("blockdev", &["--setro", &attached.path()]);
        if restarted {
            rig.stop();
            rig.run(&[]);
        }
        assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::DeviceReadOnly);
        let writable = rig.ask(publishing(&rig, &volume, false));
        assert_refused(writable, Refusal::DeviceReadOnly);
        // A read-only publish is still allowed.
        done(rig.ask(publishing(&rig, &volume, true)));
        done(unpublish(&rig, &volume));
        assert!(is_read_only(&attached));
        assert!(fs::read(attached.path()).expect("read").iter().all(|byte| *byte == 0));
        shell("blockdev", &["--setrw", &attached.path()]);
        done(rig.ask(publishing(&rig, &volume, true)));
        assert!(is_read_only(&attached));
        done(unpublish(&rig, &volume));
        assert!(!is_read_only(&attached));
    }
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
    row(
        "N14",
        "stage and writable publish of a blank disk after blockdev --setro",
        "device-read-only; the disk stays read-only and zero",
    );
}

/// A helper that is killed during a read-only publish or unpublish leaves the disk read-only. The
/// next helper learns from the record that the driver made the disk read-only.
#[test]
fn next_helper_makes_leftover_read_only_disk_writable() {
    let Some(mut rig) = Rig::start() else { return };
    for point in ["publish-block-made", "unpublish-unmounted"] {
        for next in ["stage", "publish", "unpublish"] {
            let (volume, attached) = rig.new_disk(64 * MIB);
            let read_only = publishing(&rig, &volume, true);
            if point == "publish-block-made" {
                killed_at(&mut rig, point, read_only);
            } else {
                done(rig.ask(read_only));
                let target = rig.kubelet(&block_target(&volume, "p"));
                let volume = volume.clone();
                let asked = ebs_csi_wire::Unpublish { volume, target };
                killed_at(&mut rig, point, Operation::Unpublish(asked));
            }
            assert!(is_read_only(&attached), "{point}");
            match next {
                "stage" => {
                    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
                    done(rig.unstage(&volume));
                }
                "publish" => assert!(!done(rig.ask(publishing(&rig, &volume, false)))),
                _ => {}
            }
            done(unpublish(&rig, &volume));
            assert!(!is_read_only(&attached), "{point} {next}");
        }
    }
    row(
        "N14",
        "a helper killed after it made a disk read-only, before it was shown and after",
        "the next one knows from its record, and makes it writable again",
    );
}

/// An earlier release kept no record of the devices that it set read-only.
#[test]
fn unpublish_after_upgrade_makes_unrecorded_device_writable() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    done(rig.ask(publishing(&rig, &volume, true)));
    rig.stop();
    fs::remove_file(rig.path("run/helper.sock.read-only")).expect("the record");
    rig.run(&[]);
    done(unpublish(&rig, &volume));
    assert!(!is_read_only(&attached));
}
