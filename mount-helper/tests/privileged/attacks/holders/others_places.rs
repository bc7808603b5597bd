//! Directories of other drivers and of kubelet, and places that another program takes during an
//! operation.
use super::MIB;
use crate::attacks::row;
use crate::rig::{Rig, able, block_target, disk, done, refused, staged, staging, target, volume};
use ebs_csi_wire::{FsType, Operation, Outcome, PublishBlock, Refusal, Unstage, VolumeId};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

#[test]
fn stage_outside_kubelet_globalmount_path_is_refused() {
    if !able() {
        return;
    }
    let rig = Rig::start_with(&["--paths", "kubernetes"]);
    let (volume, attached) = rig.new_disk(64 * MIB);
    let csi = "plugins/kubernetes.io/csi";
    for place in [
        // A mount here would cover another driver's staging directories.
        "other.csi.example.com/0a1b/globalmount",
        "other.csi.example.com",
        "volumeDevices/staging/pvc-of-another",
        "pv/pvc-of-another/globalmount",
        // A mount here would cover everything that is staged or published raw.
        "ebs.csi.aws.com",
        "volumeDevices",
        "volumeDevices/publish",
        "pv",
        // Kubelet writes vol_data.json here, which the root of a volume could contain as a link.
        "ebs.csi.aws.com/0a1b",
        "volumeDevices/pvc-1/data",
        "pv/pvc-1",
        // This path is beneath a staging path.
        "ebs.csi.aws.com/0a1b/globalmount/deeper",
    ] {
        let mut asked = rig.staging(&volume, FsType::Ext4);
        asked.staging = rig.kubelet(&format!("{csi}/{place}"));
        assert_eq!(refused(rig.ask(Operation::Stage(asked))), Refusal::PathOutside, "{place}");
    }
    assert_eq!(rig.mounts(&attached), 0);
    staged(rig.stage(&volume, FsType::Ext4));
    done(rig.publish(&volume, "p"));
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unstage(&volume));
    // Kubelet also unstages a raw volume, which was never staged; an older kubelet used another
    // staging path.
    for place in ["volumeDevices/staging/pvc-1", "pv/pvc-1/globalmount"] {
        let path = format!("{csi}/{place}");
        fs::create_dir_all(rig.path("kubelet").join(&path)).expect("mkdir");
        done(rig.ask(Operation::Unstage(Unstage {
            volume: volume.clone(),
            staging: rig.kubelet(&path),
        })));
        assert!(!rig.path("kubelet").join(&path).exists());
    }
    row(
        "N5",
        "stage over other drivers' directories, over all staging paths, and where kubelet writes",
        "refused as outside: only <driver>/<hash>/globalmount is a place for it",
    );
}

/// Returns the number of mounts at exactly this place.
fn stacked(rig: &Rig, place: &str) -> usize {
    let path = rig.kubelet(place).to_string();
    let table = rig.mountinfo();
    let there = |line: &&str| line.split(' ').nth(4) == Some(path.as_str());
    table.lines().filter(there).count()
}

/// Sends all requests at once, and returns the answers in the order of the requests.
fn at_once(rig: &Rig, asked: Vec<Operation>) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            asked.into_iter().map(|operation| scope.spawn(move || rig.ask(operation))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|outcome| outcome.expect("thread")).collect()
    })
}

/// Checks that one request got the place, and that the others were refused as busy, mounted
/// differently or occupied.
#[track_caller]
fn one_has_it(rig: &Rig, place: &str, outcomes: &[Outcome]) {
    let mut good = 0;
    for outcome in outcomes {
        match outcome {
            Outcome::Done(_) | Outcome::Staged(_) => good += 1,
            Outcome::Refused(refused) => assert!(
                matches!(
                    refused.reason,
                    Refusal::Busy | Refusal::MountedDifferently | Refusal::TargetOccupied
                ),
                "{refused:?}"
            ),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((good, stacked(rig, place)), (1, 1), "{outcomes:?}");
}

#[test]
fn concurrent_volumes_never_share_staging_or_target_path() {
    let Some(rig) = Rig::start() else { return };
    let volumes = [volume(), volume()];
    let _attached = volumes.each_ref().map(|volume| rig.attach(volume, 64 * MIB));
    let shared = "plugins/kubernetes.io/csi/ebs.csi.aws.com/shared/globalmount";
    for _ in 0..6 {
        let asked = volumes.iter().map(|volume| {
            let mut asked = rig.staging(volume, FsType::Ext4);
            asked.staging = rig.kubelet(shared);
            Operation::Stage(asked)
        });
        let outcomes = at_once(&rig, asked.collect());
        one_has_it(&rig, shared, &outcomes);
        for (volume, outcome) in volumes.iter().zip(outcomes) {
            if matches!(outcome, Outcome::Staged(_)) {
                done(rig.ask(Operation::Unstage(Unstage {
                    volume: volume.clone(),
                    staging: rig.kubelet(shared),
                })));
            }
        }
        assert_eq!(stacked(&rig, shared), 0);
    }
    for volume in &volumes {
        staged(rig.stage(volume, FsType::Ext4));
    }
    for _ in 0..6 {
        let asked = volumes.iter().map(|volume| {
            let mut asked = rig.publishing(volume, "p");
            asked.target = rig.kubelet("pods/p/volumes/kubernetes.io~csi/shared/mount");
            Operation::PublishFilesystem(asked)
        });
        let place = "pods/p/volumes/kubernetes.io~csi/shared/mount";
        let outcomes = at_once(&rig, asked.collect());
        one_has_it(&rig, place, &outcomes);
        for (volume, outcome) in volumes.iter().zip(outcomes) {
            if matches!(outcome, Outcome::Done(_)) {
                done(rig.unpublish(volume, place));
            }
        }
    }
    for volume in &volumes {
        done(rig.unstage(volume));
    }
    row(
        "N15",
        "two volumes are staged, and published, at one path at once, six times",
        "one stands there, the other is told busy or mounted differently; nothing is stacked",
    );
}

/// Mounts something at the place, as another driver does, while the helper is held at a step of an
/// operation.
fn taken_meanwhile(point: &str, ask: impl Fn(&Rig, &VolumeId) -> (Operation, String)) {
    let mut rig = Rig::start_with(&[]);
    let (volume, _attached) = rig.new_disk(64 * MIB);
    if point.starts_with("publish-made") {
        staged(rig.stage(&volume, FsType::Ext4));
    }
    rig.stop();
    rig.run(&["--fault-point", point]);
    let (operation, place) = ask(&rig, &volume);
    let mut client = rig.client();
    client.send(operation, crate::rig::LONG);
    rig.wait_for(&format!("fault-point name={point}"));
    let path = rig.path("kubelet").join(&place);
    let at = path.to_str().expect("utf-8");
    if path.is_file() {
        let other = rig.path("volumes/other");
        fs::write(&other, "").expect("write");
        rig.within(&["mount", "--bind", other.to_str().expect("utf-8"), at]);
    } else {
        fs::create_dir_all(&path).expect("mkdir");
        rig.within(&["mount", "-t", "tmpfs", "none", at]);
    }
    let broker = Pid::from_raw(rig.part("broker").cast_signed()).expect("pid");
    kill_process(broker, Signal::USR1).expect("signal");
    let outcome = client.receive().expect("an answer");
    assert_eq!(refused(outcome), Refusal::MountedDifferently, "{point}");
    assert_eq!(stacked(&rig, &place), 1, "{point}");
    rig.within(&["umount", at]);
    if point.starts_with("publish-made") {
        done(rig.unpublish(&volume, &place));
        done(rig.unstage(&volume));
    }
}

#[test]
fn path_mounted_during_operation_is_not_mounted_over() {
    if !able() {
        return;
    }
    for point in ["stage-looked", "stage-formatted", "stage-created"] {
        taken_meanwhile(point, |rig, volume| {
            let asked = rig.staging(volume, FsType::Ext4);
            (Operation::Stage(asked), staging(volume))
        });
    }
    taken_meanwhile("publish-made", |rig, volume| {
        let asked = rig.publishing(volume, "p");
        (Operation::PublishFilesystem(asked), target(volume, "p"))
    });
    taken_meanwhile("publish-block-made", |rig, volume| {
        let place = block_target(volume, "p");
        let asked =
            PublishBlock { disk: disk(volume), target: rig.kubelet(&place), read_only: false };
        (Operation::PublishBlock(asked), place)
    });
    row(
        "N15",
        "somebody mounts at the path after it was judged, during the format or right before the mount",
        "refused as mounted differently; nothing is stacked",
    );
}
