//! A disk disappears at each step of each operation, as when EC2 detaches it by force. Only a
//! virtual machine has a disk that can disappear: an NVMe controller, which the simulated `/sys`
//! shows as a Xen disk, because QEMU's controller has neither EC2's model nor its serial.
use super::acts::{Act, EXAMINED, FORMAT, KEPT, release};
use crate::disks::xen::named_disk;
use crate::rig::{Rig, block_target, done, shell, staged, staging, target, volume, write_synced};
use crate::virtual_machine::{plug_the_disk_in, pull_the_disk};
use ebs_csi_wire::{Disk, FsType, Operation, Origin, VolumeId};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const REAL: &str = "nvme0n1";
const NAME: &str = "xvdba";
const BYTES: usize = 16 << 20;

const STEPS: [(Act, &[&str]); 8] = [
    (Act::Format, &FORMAT),
    (Act::Check, &EXAMINED),
    (Act::Growth, &["stage-grown"]),
    (Act::Mount, &["stage-prepared", "stage-created", "stage-attached"]),
    (Act::Publish, &["publish-made", "publish-attached"]),
    (Act::Unpublish, &["unpublish-unmounted"]),
    (Act::Unstage, &["unstage-synced", "unstage-unmounted", "unstage-removed"]),
    // Last: a disk that a container had raw is not formatted.
    (Act::PublishRaw, &["publish-block-made", "publish-block-attached"]),
];

fn at_name(volume: &VolumeId, origin: Origin) -> Disk {
    Disk { origin, ..named_disk(volume, &format!("/dev/{NAME}")) }
}

fn stage(rig: &Rig, volume: &VolumeId, origin: Origin) -> Operation {
    let mut request = rig.stage_request(volume, FsType::Ext4);
    request.disk = at_name(volume, origin);
    Operation::Stage(request)
}

fn publish(rig: &Rig, volume: &VolumeId) -> Operation {
    let mut request = rig.publish_request(volume, "p");
    request.disk = at_name(volume, Origin::Blank);
    Operation::PublishFilesystem(request)
}

/// Brings the disk to the state in which the act begins, and returns the request for the act.
fn prepared(rig: &Rig, volume: &VolumeId, act: Act) -> Operation {
    let disk = format!("/dev/{REAL}");
    let device = fs::OpenOptions::new().write(true).open(&disk).expect("the disk");
    device.write_all_at(&vec![0; BYTES], 0).expect("zeros");
    device.sync_all().expect("sync");
    drop(device);
    if act == Act::Format {
        return stage(rig, volume, Origin::Blank);
    }
    if act == Act::PublishRaw {
        return rig.block_operation(&at_name(volume, Origin::Blank), "p", false);
    }
    if act == Act::Growth {
        shell("mke2fs", &["-q", "-F", "-t", "ext4", &disk, "8M"]);
    } else {
        staged(rig.call(stage(rig, volume, Origin::Blank)));
        write_synced(&rig.staged_root(volume).join("kept"), KEPT);
    }
    match act {
        Act::Publish => publish(rig, volume),
        Act::Unpublish => {
            done(rig.call(publish(rig, volume)));
            rig.unpublish_operation(volume, &target(volume, "p"))
        }
        Act::Unstage => rig.unstage_operation(volume, &staging(volume)),
        Act::Mount => {
            done(rig.unstage(volume));
            stage(rig, volume, Origin::Blank)
        }
        Act::Check => {
            done(rig.unstage(volume));
            // Leaves the state of a node that lost its power.
            shell("debugfs", &["-w", "-R", "ssv state 0", &disk]);
            stage(rig, volume, Origin::Blank)
        }
        _ => stage(rig, volume, Origin::Copy),
    }
}

/// Removes the disk while the helper is held at this step, and releases the helper.
fn pulled(rig: &mut Rig, volume: &VolumeId, act: Act, point: &str) {
    let what = format!("{act:?} at {point}");
    let shown = rig.show_xen(REAL, NAME);
    let operation = prepared(rig, volume, act);
    rig.restart(&["--fault-point", point]);
    let mut client = rig.call_until(point, operation);
    pull_the_disk();
    drop(shown);
    release(rig, point);
    let outcome = client.receive().expect("an answer");
    println!("{what}: {outcome:?}");
    drop(client);

    // Whatever the answer was, kubelet can remove the volume, and no path or mount remains.
    for place in [target(volume, "p"), block_target(volume, "p")] {
        done(rig.unpublish(volume, &place));
        assert!(!rig.path("kubelet").join(&place).exists(), "{what}: {place}");
    }
    done(rig.unstage(volume));
    let place = staging(volume);
    assert!(!rig.path("kubelet").join(&place).exists(), "{what}: {place}");
    let root = format!("{}/", rig.path("kubelet").display());
    assert!(!rig.mountinfo().contains(&root), "{what}: {}", rig.mountinfo());

    // The disk comes back with its content. The helper restarts, because the fault point would also
    // hold the next runner.
    rig.restart(&[]);
    plug_the_disk_in();
    let shown = rig.show_xen(REAL, NAME);
    if act != Act::PublishRaw {
        let origin = if act == Act::Format { Origin::Blank } else { Origin::Copy };
        let again = staged(rig.call(stage(rig, volume, origin)));
        assert!(act == Act::Format || !again.formatted, "{what}: {again:?}");
        let kept = rig.inside(&place).join("kept");
        if !matches!(act, Act::Format | Act::Growth) {
            assert_eq!(fs::read_to_string(kept).expect("kept"), KEPT, "{what}");
        }
        done(rig.unstage(volume));
        shell("e2fsck", &["-f", "-n", &format!("/dev/{REAL}")]);
    }
    drop(shown);
}

#[test]
#[ignore = "runs in the virtual machine, which has a disk to pull"]
fn disk_removed_at_any_step_leaves_nothing_mounted() {
    assert!(Path::new("/dev").join(REAL).exists(), "the machine's disk");
    let Some(mut rig) = Rig::start_xen() else { return };
    // A helper whose disks have no serial does not take a known name for another volume.
    let volume = volume();
    let mut steps = 0;
    for (act, points) in STEPS {
        for point in points {
            pulled(&mut rig, &volume, act, point);
            steps += 1;
        }
    }
    println!("pulled at {steps} steps");
}
