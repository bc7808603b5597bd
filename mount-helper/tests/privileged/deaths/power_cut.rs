//! A power cut at a step of a stage: the disk's content at that moment is staged again, on this
//! node and on another.
use crate::rig::{MIB, Rig, children, copy_sparse, done, staged, try_signal, write_synced};
use ebs_csi_wire::{FsType, VolumeId};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

/// Stages the content of an image, uses the volume, and unstages it. Returns whether the stage
/// formatted the disk.
fn comes_back(rig: &Rig, volume: &VolumeId, image: &Path, fs: FsType) -> bool {
    let attached = rig.attach_copy_for(volume, image);
    let result = staged(rig.stage(volume, fs));
    done(rig.publish(volume, "p"));
    let file = rig.published_root(volume, "p").join("file");
    fs::write(&file, "kept").expect("write");
    assert_eq!(fs::read_to_string(&file).expect("read"), "kept");
    rig.withdraw(volume, "p");
    assert_eq!(rig.mounts(&attached), 0);
    result.formatted
}

/// The cut happens at each of 7 steps. A disk whose format had ended is not formatted again.
#[test]
fn power_cut_during_stage_recovers_on_either_node() {
    let Some(other) = Rig::start() else { return };
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
            let Some(mut rig) = Rig::start_held(step) else { return };
            let (volume, attached) = rig.new_disk(320 * MIB);
            let _client = rig.call_until(step, rig.stage_operation(&volume, fs));
            // Writes that the kernel still holds are lost, as in a power cut.
            let cut = rig.path("outside/cut");
            copy_sparse(&attached.image, &cut);
            let elsewhere = comes_back(&other, &volume, &cut, fs);
            // The machine loses power, and all its processes end.
            children(rig.pid()).into_iter().for_each(|pid| try_signal(pid, Signal::KILL));
            rig.ended();
            rig.forget_mounts(&attached);
            drop(attached);
            rig.run(&[]);
            let here = comes_back(&rig, &volume, &cut, fs);
            assert_eq!(here, elsewhere, "{fs} {step}");
            let began_only = ["stage-looked", "tool-started", "runner-finished"].contains(&step);
            assert!(began_only || !here, "{fs} {step}: formatted once more");
            println!("{fs} {step}: formatted again: {here}");
        }
    }
}

#[test]
fn synced_files_survive_power_cut_on_another_node() {
    let (Some(rig), Some(other)) = (Rig::start(), Rig::start()) else { return };
    for fs in [FsType::Ext4, FsType::Ext3, FsType::Xfs] {
        let (volume, attached) = rig.staged_disk(320 * MIB, fs);
        let root = rig.staged_root(&volume);
        for n in 0..50 {
            write_synced(&root.join(format!("file-{n}")), "synced");
            fs::write(root.join(format!("lost-{n}")), "may be lost").expect("write");
        }
        let cut = rig.path("outside/cut");
        copy_sparse(&attached.image, &cut);
        assert!(!comes_back(&other, &volume, &cut, fs), "{fs}: formatted");
        let second = other.attach_image(other.image(&volume));
        staged(other.stage(&volume, fs));
        let root = other.staged_root(&volume);
        for n in 0..50 {
            let text = fs::read_to_string(root.join(format!("file-{n}"))).expect("read");
            assert_eq!(text, "synced", "{fs}");
        }
        done(other.unstage(&volume));
        drop(second);
        done(rig.unstage(&volume));
    }
}
