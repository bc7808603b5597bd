//! A power cut at a step of a stage: the disk's content at that moment is staged again, on this
//! node and on another.
use crate::rig::{LONG, Rig, able, children, done, shell, staged, staging, target};
use ebs_csi_wire::{FsType, Operation, VolumeId};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Kills a process, which may have ended with another part of the helper.
fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("pid");
    let _ = kill_process(pid, Signal::KILL);
}

fn copy(from: &Path, to: &Path) {
    let text = |path: &Path| path.to_str().expect("utf-8").to_owned();
    shell("cp", &["--sparse=always", &text(from), &text(to)]);
}

/// Stages the content of an image, uses the volume, and unstages it. Returns whether the stage
/// formatted the disk.
fn comes_back(rig: &Rig, volume: &VolumeId, image: &Path, fs: FsType) -> bool {
    let own = rig.path("volumes").join(format!("{volume}.img"));
    copy(image, &own);
    let attached = rig.attach_image(own);
    let result = staged(rig.stage(volume, fs));
    done(rig.publish(volume, "p"));
    let file = rig.inside(&rig.kubelet(&target(volume, "p"))).join("file");
    fs::write(&file, "kept").expect("write");
    assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
    done(rig.unpublish(volume, &target(volume, "p")));
    done(rig.unstage(volume));
    assert_eq!(rig.mounts(&attached), 0);
    result.formatted
}

/// The cut happens at each of 7 steps. A disk whose format had ended is not formatted again.
#[test]
fn power_cut_during_stage_recovers_on_either_node() {
    if !able() {
        return;
    }
    let other = Rig::start_with(&[]);
    for fs in [FsType::Ext4, FsType::Xfs] {
        for step in [
            "stage-looked",
            "tool-started",
            "runner-finished",
            "stage-made",
            "stage-formatted",
            "stage-created",
            "stage-attached",
        ] {
            let mut rig = Rig::start_with(&["--fault-point", step, "--grace", "0"]);
            let (volume, attached) = rig.new_disk(320 * MIB);
            let mut client = rig.client();
            client.send(Operation::Stage(rig.staging(&volume, fs)), LONG);
            rig.wait_for(&format!("fault-point name={step}"));
            // Writes that the kernel still holds are lost, as in a power cut.
            let cut = rig.path("outside/cut");
            copy(&attached.image, &cut);
            let elsewhere = comes_back(&other, &volume, &cut, fs);
            // The machine loses power, and all its processes end.
            for pid in children(rig.pid()) {
                kill(pid);
            }
            rig.ended();
            rig.forget_mounts(&attached);
            drop(attached);
            rig.run(&[]);
            let here = comes_back(&rig, &volume, &cut, fs);
            assert_eq!(here, elsewhere, "{fs} {step}");
            let finished = matches!(
                step,
                "stage-made" | "stage-formatted" | "stage-created" | "stage-attached"
            );
            assert!(!(finished && here), "{fs} {step}: formatted once more");
            println!("{fs} {step}: formatted again: {here}");
        }
    }
}

/// The other node mounts a copy of the disk without formatting it and reads all 50 synced files.
#[test]
fn synced_files_survive_power_cut_on_another_node() {
    if !able() {
        return;
    }
    let (rig, other) = (Rig::start_with(&[]), Rig::start_with(&[]));
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let (volume, attached) = rig.new_disk(320 * MIB);
        staged(rig.stage(&volume, fs));
        let root = rig.inside(&rig.kubelet(&staging(&volume)));
        for n in 0..50 {
            let file = root.join(format!("file-{n}"));
            fs::write(&file, "synced").expect("write");
            fs::File::open(&file).expect("open").sync_all().expect("sync");
            fs::write(root.join(format!("lost-{n}")), "may be lost").expect("write");
        }
        let cut = rig.path("outside/cut");
        copy(&attached.image, &cut);
        assert!(!comes_back(&other, &volume, &cut, fs), "{fs}: formatted");
        let own = other.path("volumes").join(format!("{volume}.img"));
        let second = other.attach_image(own);
        staged(other.stage(&volume, fs));
        let root = other.inside(&other.kubelet(&staging(&volume)));
        for n in 0..50 {
            let text = fs::read_to_string(root.join(format!("file-{n}"))).expect("read");
            assert_eq!(text, "synced", "{fs}");
        }
        done(other.unstage(&volume));
        drop(second);
        done(rig.unstage(&volume));
    }
}
