//! Directories of other drivers and of kubelet, and places that another program takes during an
//! operation.
use crate::rig::{
    MIB, Rig, block_target, disk, done, reason, send_signal, staged, staging, target, text, volume,
};
use ebs_csi_wire::{FsType, Operation, Outcome, Refusal, VolumeId};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

/// N5: stage over other drivers' directories, over all staging paths, and where kubelet writes.
#[test]
fn stage_outside_kubelet_globalmount_path_is_refused() {
    let Some(rig) = Rig::start_with(&["--paths", "kubernetes"]) else { return };
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
        let path = rig.kubelet(&format!("{csi}/{place}"));
        let outcome = rig.stage_with(&volume, FsType::Ext4, |request| request.staging = path);
        assert_eq!(reason(outcome), Refusal::PathOutside, "{place}");
    }
    assert_eq!(rig.mounts(&attached), 0);
    staged(rig.stage(&volume, FsType::Ext4));
    done(rig.publish(&volume, "p"));
    rig.withdraw(&volume, "p");
    // Kubelet also unstages a raw volume, which was never staged; an older kubelet used another
    // staging path.
    for place in ["volumeDevices/staging/pvc-1", "pv/pvc-1/globalmount"] {
        let path = format!("{csi}/{place}");
        let made = rig.make_target(&path);
        done(rig.call(rig.unstage_operation(&volume, &path)));
        assert!(!Path::new(&made).exists());
    }
}

fn stacked(rig: &Rig, place: &str) -> usize {
    rig.mounts_with(4, rig.kubelet(place).as_str()).len()
}

/// Sends all requests at once, and returns the answers in the order of the requests.
fn at_once(rig: &Rig, operations: Vec<Operation>) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = operations
            .into_iter()
            .map(|operation| scope.spawn(move || rig.call(operation)))
            .collect();
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

/// N15: two volumes are staged, and published, at one path at once, six times.
#[test]
fn concurrent_volumes_never_share_staging_or_target_path() {
    let Some(rig) = Rig::start() else { return };
    let volumes = [volume(), volume()];
    let _attached = volumes.each_ref().map(|volume| rig.attach(volume, 64 * MIB));
    let shared = "plugins/kubernetes.io/csi/ebs.csi.aws.com/shared/globalmount";
    for _ in 0..6 {
        let operations = volumes.iter().map(|volume| {
            let mut request = rig.stage_request(volume, FsType::Ext4);
            request.staging = rig.kubelet(shared);
            Operation::Stage(request)
        });
        let outcomes = at_once(&rig, operations.collect());
        one_has_it(&rig, shared, &outcomes);
        for (volume, outcome) in volumes.iter().zip(outcomes) {
            if matches!(outcome, Outcome::Staged(_)) {
                done(rig.call(rig.unstage_operation(volume, shared)));
            }
        }
        assert_eq!(stacked(&rig, shared), 0);
    }
    for volume in &volumes {
        staged(rig.stage(volume, FsType::Ext4));
    }
    let place = "pods/p/volumes/kubernetes.io~csi/shared/mount";
    for _ in 0..6 {
        let operations = volumes.iter().map(|volume| {
            let mut request = rig.publish_request(volume, "p");
            request.target = rig.kubelet(place);
            Operation::PublishFilesystem(request)
        });
        let outcomes = at_once(&rig, operations.collect());
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
}

/// Mounts something at the place, as another driver does, while the helper is held at a step of an
/// operation.
fn taken_meanwhile(point: &str, operation: impl Fn(&Rig, &VolumeId) -> (Operation, String)) {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    if point.starts_with("publish-made") {
        staged(rig.stage(&volume, FsType::Ext4));
    }
    rig.restart(&["--fault-point", point]);
    let (operation, place) = operation(&rig, &volume);
    let mut client = rig.call_until(point, operation);
    let path = rig.path("kubelet").join(&place);
    let at = text(&path);
    if path.is_file() {
        let other = rig.path("volumes/other");
        fs::write(&other, "").expect("write");
        rig.within(&["mount", "--bind", text(&other), at]);
    } else {
        fs::create_dir_all(&path).expect("mkdir");
        rig.within(&["mount", "-t", "tmpfs", "none", at]);
    }
    send_signal(rig.part("broker"), Signal::USR1);
    let outcome = client.receive().expect("an answer");
    assert_eq!(reason(outcome), Refusal::MountedDifferently, "{point}");
    assert_eq!(stacked(&rig, &place), 1, "{point}");
    rig.within(&["umount", at]);
    if point.starts_with("publish-made") {
        done(rig.unpublish(&volume, &place));
        done(rig.unstage(&volume));
    }
}

/// N15: somebody mounts at the path after it was judged, during the format or right before the
/// mount.
#[test]
fn path_mounted_during_operation_is_not_mounted_over() {
    for point in ["stage-looked", "stage-formatted", "stage-created"] {
        taken_meanwhile(point, |rig, volume| {
            (rig.stage_operation(volume, FsType::Ext4), staging(volume))
        });
    }
    taken_meanwhile("publish-made", |rig, volume| {
        (rig.publish_operation(volume, "p"), target(volume, "p"))
    });
    taken_meanwhile("publish-block-made", |rig, volume| {
        (rig.block_operation(&disk(volume), "p", false), block_target(volume, "p"))
    });
}
