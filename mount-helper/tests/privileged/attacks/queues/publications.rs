//! What publications leave on the node.
use crate::rig::{Client, LONG, Rig, assert_refused, done, set_mode, target};
use ebs_csi_wire::{FsType, Outcome, Refusal, VolumeId};
use std::fs;

fn publish(rig: &Rig, client: &mut Client, volume: &VolumeId, pod: &str) -> Outcome {
    client.call(rig.publish_operation(volume, pod), LONG)
}

fn unpublish(rig: &Rig, client: &mut Client, volume: &VolumeId, pod: &str) -> Outcome {
    client.call(rig.unpublish_operation(volume, &target(volume, pod)), LONG)
}

/// N21: Unpublish removes the directories that publish made; kubelet's own directories stay.
#[test]
fn volume_publications_are_limited_and_leave_no_directories() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    let pods = rig.path("kubelet/pods");
    // Kubelet's own directories, one of them empty.
    let own = pods.join(format!("own/volumes/kubernetes.io~csi/{volume}"));
    let empty = pods.join("empty");
    for directory in [&own, &empty] {
        fs::create_dir_all(directory).expect("mkdir");
        set_mode(directory, 0o750);
    }
    let mut client = rig.client();
    done(publish(&rig, &mut client, &volume, "own"));
    let mut published = 0_u32;
    let reason = loop {
        match publish(&rig, &mut client, &volume, &format!("pod-{published}")) {
            Outcome::Refused(refused) => break refused.reason,
            outcome => done(outcome),
        };
        published += 1;
        assert!(published < 2000, "2,000 publications of one volume");
    };
    assert_eq!(reason, Refusal::TooManyPublications);
    // A published target stays published, whether or not the publish is repeated.
    assert!(done(publish(&rig, &mut client, &volume, "pod-0")));
    assert!(!pods.join(format!("pod-{published}")).exists());
    for number in 0..published {
        done(unpublish(&rig, &mut client, &volume, &format!("pod-{number}")));
    }
    done(unpublish(&rig, &mut client, &volume, "own"));
    assert!(own.is_dir(), "kubelet's directory is gone");
    assert!(!own.join("mount").exists());
    let mut left: Vec<_> =
        fs::read_dir(&pods).expect("pods").map(|entry| entry.expect("entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "own"]);
    done(rig.unstage(&volume));
    assert_eq!(rig.mounts(&attached), 0);
}

#[test]
fn unpublish_removes_only_empty_parent_directories() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    done(rig.publish(&volume, "p"));
    let pod = rig.path("kubelet/pods/p");
    fs::write(pod.join("volumes/kept"), "").expect("write");
    done(rig.unpublish(&volume, &target(&volume, "p")));
    assert!(pod.join("volumes/kept").exists());
    assert!(!pod.join("volumes/kubernetes.io~csi").exists());
    // A repeated request removes what an interrupted request left.
    fs::remove_file(pod.join("volumes/kept")).expect("remove");
    done(rig.unpublish(&volume, &target(&volume, "p")));
    assert!(!pod.exists());
    assert_refused(rig.unpublish(&volume, "config/x"), Refusal::PathOutside);
    done(rig.unstage(&volume));
}
