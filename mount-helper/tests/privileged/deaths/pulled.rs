//! A disk disappears at each step of each operation, as when EC2 detaches it by force. Only a
//! virtual machine has a disk that can disappear: an NVMe controller, which the simulated `/sys`
//! shows as a Xen disk, because QEMU's controller has neither EC2's model nor its serial.
use crate::deaths::crashes::{EXAMINED, FORMAT, in_a_runner, signal};
use crate::disks::xen::told;
use crate::rig::{LONG, Rig, block_target, done, shell, staged, staging, target, volume};
use crate::virtual_machine::{plug_the_disk_in, pull_the_disk};
use ebs_csi_wire::{Disk, FsType, Operation, Origin, PublishBlock, Unpublish, Unstage, VolumeId};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::path::Path;

const REAL: &str = "nvme0n1";
const NAME: &str = "xvdba";
/// Size of the machine's disk, in bytes.
const BYTES: usize = 16 << 20;
const KEPT: &str = "written before the disk was pulled";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Format,
    Check,
    Growth,
    Mount,
    Publish,
    PublishRaw,
    Unpublish,
    Unstage,
}

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
    Disk { origin, ..told(volume, &format!("/dev/{NAME}")) }
}

fn stage(rig: &Rig, volume: &VolumeId, origin: Origin) -> Operation {
    let mut asked = rig.staging(volume, FsType::Ext4);
    asked.disk = at_name(volume, origin);
    Operation::Stage(asked)
}

fn publish(rig: &Rig, volume: &VolumeId) -> Operation {
    let mut asked = rig.publishing(volume, "p");
    asked.disk = at_name(volume, Origin::Blank);
    Operation::PublishFilesystem(asked)
}

fn unpublish(rig: &Rig, volume: &VolumeId, target: &str) -> Operation {
    Operation::Unpublish(Unpublish { volume: volume.clone(), target: rig.kubelet(target) })
}

fn unstage(rig: &Rig, volume: &VolumeId) -> Operation {
    Operation::Unstage(Unstage { volume: volume.clone(), staging: rig.kubelet(&staging(volume)) })
}

/// Brings the disk to the state in which the act begins, and returns the request for the act.
fn prepared(rig: &Rig, volume: &VolumeId, act: Act) -> Operation {
    let mut disk =
        fs::OpenOptions::new().write(true).open(format!("/dev/{REAL}")).expect("the disk");
    disk.write_all(&vec![0; BYTES]).expect("zeros");
    disk.sync_all().expect("sync");
    drop(disk);
    if act == Act::Format {
        return stage(rig, volume, Origin::Blank);
    }
    if act == Act::PublishRaw {
        return Operation::PublishBlock(PublishBlock {
            disk: at_name(volume, Origin::Blank),
            target: rig.kubelet(&block_target(volume, "p")),
            read_only: false,
        });
    }
    if act == Act::Growth {
        let disk = format!("/dev/{REAL}");
        shell("mke2fs", &["-q", "-F", "-t", "ext4", &disk, "8M"]);
    } else {
        staged(rig.ask(stage(rig, volume, Origin::Blank)));
        let file = rig.inside(&rig.kubelet(&staging(volume))).join("kept");
        fs::write(&file, KEPT).expect("write");
        let written = fs::File::open(&file).expect("open");
        written.sync_all().expect("sync");
    }
    match act {
        Act::Publish => publish(rig, volume),
        Act::Unpublish => {
            done(rig.ask(publish(rig, volume)));
            unpublish(rig, volume, &target(volume, "p"))
        }
        Act::Unstage => unstage(rig, volume),
        Act::Mount => {
            done(rig.unstage(volume));
            stage(rig, volume, Origin::Blank)
        }
        Act::Check => {
            done(rig.unstage(volume));
            // Leaves the state of a node that lost its power.
            let disk = format!("/dev/{REAL}");
            shell("debugfs", &["-w", "-R", "ssv state 0", &disk]);
            stage(rig, volume, Origin::Blank)
        }
        Act::Growth | Act::Format | Act::PublishRaw => stage(rig, volume, Origin::Copy),
    }
}

/// Removes the disk while the helper is held at this step, and releases the helper.
fn pulled(rig: &mut Rig, volume: &VolumeId, act: Act, point: &str) {
    let what = format!("{act:?} at {point}");
    let shown = rig.show_xen(REAL, NAME);
    let operation = prepared(rig, volume, act);
    rig.stop();
    rig.run(&["--fault-point", point]);
    let mut client = rig.client();
    client.send(operation, LONG);
    rig.wait_for(&format!("fault-point name={point}"));
    pull_the_disk();
    drop(shown);
    let held = match in_a_runner(point) {
        true => "runner",
        false => "broker",
    };
    if let Some(pid) = rig.part_now(held) {
        signal(pid, Signal::USR1);
    }
    let outcome = client.receive().expect("an answer");
    println!("{what}: {outcome:?}");
    drop(client);

    // Whatever the answer was, kubelet can remove the volume, and no path or mount remains.
    for place in [target(volume, "p"), block_target(volume, "p")] {
        done(rig.ask(unpublish(rig, volume, &place)));
        assert!(!rig.path("kubelet").join(&place).exists(), "{what}: {place}");
    }
    done(rig.ask(unstage(rig, volume)));
    let place = staging(volume);
    assert!(!rig.path("kubelet").join(&place).exists(), "{what}: {place}");
    let root = format!("{}/", rig.path("kubelet").display());
    assert!(!rig.mountinfo().contains(&root), "{what}: {}", rig.mountinfo());

    // The disk comes back with its content. The helper restarts, because the fault point would also
    // hold the next runner.
    rig.stop();
    rig.run(&[]);
    plug_the_disk_in();
    let shown = rig.show_xen(REAL, NAME);
    if act != Act::PublishRaw {
        let origin = match act {
            Act::Format => Origin::Blank,
            _ => Origin::Copy,
        };
        let again = staged(rig.ask(stage(rig, volume, origin)));
        assert!(act == Act::Format || !again.formatted, "{what}: {again:?}");
        let kept = rig.inside(&rig.kubelet(&place)).join("kept");
        if !matches!(act, Act::Format | Act::Growth) {
            assert_eq!(fs::read_to_string(kept).expect("kept"), KEPT, "{what}");
        }
        done(rig.ask(unstage(rig, volume)));
        shell("e2fsck", &["-f", "-n", &format!("/dev/{REAL}")]);
    }
    drop(shown);
}

#[test]
#[ignore = "runs in the virtual machine, which has a disk to pull"]
fn disk_removed_at_any_step_leaves_nothing_mounted() {
    assert!(Path::new("/dev").join(REAL).exists(), "the machine's disk");
    let mut rig = Rig::start_xen_with(&[]);
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
