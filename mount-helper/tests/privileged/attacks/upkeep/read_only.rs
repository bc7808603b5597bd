//! Disks that an operator or this driver made read-only.
use crate::attacks::is_read_only;
use crate::rig::{MIB, Rig, assert_refused, block_target, disk, done, send_signal, shell, staged};
use ebs_csi_wire::{FsType, Operation, Refusal};
use rustix::process::Signal;
use std::fs;

/// Kills the broker at a step of an operation, and starts the next helper.
fn killed_at(rig: &mut Rig, point: &str, operation: Operation) {
    rig.restart(&["--fault-point", point]);
    let _client = rig.call_until(point, operation);
    send_signal(rig.part("broker"), Signal::KILL);
    assert_ne!(rig.ended(), Some(0));
    rig.run(&[]);
}

/// N14: stage and writable publish of a blank disk after blockdev --setro.
#[test]
fn operator_set_read_only_device_stays_read_only() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    // The first round is before the driver used the disk. The second is after the driver switched
    // the disk to read-only and back to writable.
    for restarted in [false, true] {
        shell("blockdev", &["--setro", &attached.path()]);
        if restarted {
            rig.restart(&[]);
        }
        assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::DeviceReadOnly);
        let writable = rig.publish_disk(&disk(&volume), "p", false);
        assert_refused(writable, Refusal::DeviceReadOnly);
        done(rig.publish_disk(&disk(&volume), "p", true));
        done(rig.unpublish_block(&volume, "p"));
        assert!(is_read_only(&attached.name));
        assert!(fs::read(attached.path()).expect("read").iter().all(|byte| *byte == 0));
        shell("blockdev", &["--setrw", &attached.path()]);
        done(rig.publish_disk(&disk(&volume), "p", true));
        assert!(is_read_only(&attached.name));
        done(rig.unpublish_block(&volume, "p"));
        assert!(!is_read_only(&attached.name));
    }
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}

/// N14: A helper that is killed during a read-only publish or unpublish leaves the disk read-only.
/// The next helper learns from the record that the driver made the disk read-only.
#[test]
fn next_helper_makes_leftover_read_only_disk_writable() {
    let Some(mut rig) = Rig::start() else { return };
    for point in ["publish-block-made", "unpublish-unmounted"] {
        for next in ["stage", "publish", "unpublish"] {
            let (volume, attached) = rig.new_disk(64 * MIB);
            let read_only = rig.block_operation(&disk(&volume), "p", true);
            if point == "publish-block-made" {
                killed_at(&mut rig, point, read_only);
            } else {
                done(rig.call(read_only));
                let unpublish = rig.unpublish_operation(&volume, &block_target(&volume, "p"));
                killed_at(&mut rig, point, unpublish);
            }
            assert!(is_read_only(&attached.name), "{point}");
            match next {
                "stage" => {
                    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
                    done(rig.unstage(&volume));
                }
                "publish" => assert!(!done(rig.publish_disk(&disk(&volume), "p", false))),
                _ => {}
            }
            done(rig.unpublish_block(&volume, "p"));
            assert!(!is_read_only(&attached.name), "{point} {next}");
        }
    }
}

/// An earlier release kept no record of the devices that it set read-only.
#[test]
fn unpublish_after_upgrade_makes_unrecorded_device_writable() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    done(rig.publish_disk(&disk(&volume), "p", true));
    rig.stop();
    fs::remove_file(rig.path("run/helper.sock.read-only")).expect("the record");
    rig.run(&[]);
    done(rig.unpublish_block(&volume, "p"));
    assert!(!is_read_only(&attached.name));
}
