//! A peer that is not the node-agent, or a compromised node-agent.
use crate::rig::{
    AGENT, Client, LONG, MIB, Repeated, Rig, assert_refused, block_target, connect, done,
    inventory, staged, staging, target, volume,
};
use ebs_csi_wire::{FsType, Hello, Inspect, KeyStep, Operation, Outcome, Refusal};
use std::fs;
use std::io::Write;
use std::time::Duration;

#[test]
fn invalid_frame_closes_only_its_own_connection() {
    let Some(rig) = Rig::start() else { return };
    let mut steady = rig.client();
    let frames: [&[u8]; 5] = [
        &[0, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff],
        &[1, 0, 0, 0, 0xff],
        // A request without an operation.
        &[2, 0, 0, 0, 8, 1],
        // An operation of a later release.
        &[4, 0, 0, 0, 8, 1, 0xba, 0x3e],
    ];
    for bytes in frames {
        let mut client = rig.client();
        client.stream.write_all(bytes).expect("write");
        client.check_cut_off();
    }
    rig.wait_for_more("peer-cut-off", frames.len() - 1);
    inventory(&mut steady);
}

#[test]
fn hello_comes_first_and_once() {
    let Some(rig) = Rig::start() else { return };
    let mut early = Client::new(connect(&rig.socket(), AGENT));
    early.send(Operation::Inspect(Inspect::default()), LONG);
    early.check_cut_off();

    let mut twice = rig.client();
    twice.send(Operation::Hello(Hello::OURS), LONG);
    twice.check_cut_off();

    let mut future = Client::new(connect(&rig.socket(), AGENT));
    let hello = Hello { oldest: 1000, newest: 1001, key: KeyStep::None };
    assert_refused(future.call(Operation::Hello(hello), LONG), Refusal::Version);
    future.check_cut_off();
}

#[test]
fn paths_outside_of_the_allowed_places_are_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 << 20);
    let outside = ebs_csi_wire::KubeletPath::parse("/etc/x").expect("path");
    for path in [outside, rig.kubelet("config"), rig.kubelet("plugins")] {
        assert_refused(
            rig.stage_with(&volume, FsType::Ext4, |request| request.staging = path),
            Refusal::PathOutside,
        );
    }
}

#[test]
fn publish_and_unpublish_refuse_symlink_in_target_path() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    let pods = rig.path("kubelet/pods");
    std::os::unix::fs::symlink(rig.path("outside"), pods.join("linked")).expect("symlink");
    fs::create_dir_all(pods.join("last/volumes/kubernetes.io~csi/v")).expect("mkdir");
    let last = pods.join("last/volumes/kubernetes.io~csi/v/mount");
    std::os::unix::fs::symlink(rig.path("outside"), last).expect("symlink");
    for target in [
        "pods/linked/volumes/kubernetes.io~csi/v/mount",
        "pods/last/volumes/kubernetes.io~csi/v/mount",
    ] {
        assert_refused(
            rig.publish_with(&volume, "x", |request| request.target = rig.kubelet(target)),
            Refusal::PathNotPlain,
        );
        assert_refused(rig.unpublish(&volume, target), Refusal::PathNotPlain);
    }
    assert_eq!(fs::read_dir(rig.path("outside")).expect("outside").count(), 0);
    done(rig.unstage(&volume));
}

/// Another thread swaps the target's parent directory for a link while publish and unpublish run
/// 300 times.
#[test]
fn target_parent_swapped_for_symlink_redirects_no_mount() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    let parent = rig.path("kubelet/pods/p/volumes/kubernetes.io~csi");
    let (place, aside, link) = (parent.join("v"), parent.join("aside"), parent.join("link"));
    fs::create_dir_all(&place).expect("mkdir");
    std::os::unix::fs::symlink(rig.path("outside"), &link).expect("symlink");
    let swapper = Repeated::start(0, Duration::ZERO, move |swaps: &mut u32| {
        // A mount inside the directory makes a rename fail for a moment, which the test allows.
        if fs::rename(&place, &aside).is_ok() {
            let _ = fs::rename(&link, &place);
            let _ = fs::rename(&place, &link);
            let _ = fs::rename(&aside, &place);
            *swaps += 1;
        }
    });
    let target = "pods/p/volumes/kubernetes.io~csi/v/mount";
    let mut request = rig.publish_request(&volume, "p");
    request.target = rig.kubelet(target);
    let mut client = rig.client();
    for _ in 0..300 {
        client.call(Operation::PublishFilesystem(request.clone()), LONG);
        client.call(rig.unpublish_operation(&volume, target), LONG);
    }
    assert!(swapper.end() > 0);
    assert_eq!(fs::read_dir(rig.path("outside")).expect("outside").count(), 0);
    assert!(!rig.mountinfo().contains("/outside"));
}

#[test]
fn stage_continues_after_its_client_disconnects() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(256 << 20);
    let mut leaving = rig.client();
    leaving.send(rig.stage_operation(&volume, FsType::Ext4), Duration::ZERO);
    assert_eq!(leaving.receive(), Some(Outcome::Pending));
    drop(leaving);
    // The second request joins the running operation or finds its result; in both cases the volume
    // is staged once.
    staged(rig.stage(&volume, FsType::Ext4));
    assert_eq!(rig.mounts(&attached), 1);
    assert_eq!(rig.journal().matches("tool=mke2fs").count(), 1);
    done(rig.unstage(&volume));
}

#[test]
fn an_inventory_names_what_is_staged_and_published() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _mounted) = rig.new_disk(64 * MIB);
    let (raw, _published) = rig.new_disk(64 * MIB);
    staged(rig.stage(&volume, FsType::Ext4));
    done(rig.publish(&volume, "one"));
    done(rig.publish_block(&raw, "one"));
    let inventory = rig.inventory();
    let found: Vec<_> = inventory
        .volumes
        .iter()
        .map(|held| (held.volume.clone(), held.path.to_string(), held.staged))
        .collect();
    assert_eq!(
        found,
        [
            (volume.clone(), rig.kubelet(&staging(&volume)).to_string(), true),
            (volume.clone(), rig.kubelet(&target(&volume, "one")).to_string(), false),
            (raw.clone(), rig.kubelet(&block_target(&raw, "one")).to_string(), false),
        ]
    );
    assert!(!inventory.more);
}

#[test]
fn running_stage_is_listed_and_blocks_no_reads() {
    let Some(rig) = Rig::start_held("stage-looked") else { return };
    let (held, other) = (volume(), volume());
    let _attached = [rig.attach(&held, 64 << 20), rig.attach(&other, 64 << 20)];
    let mut first = rig.client();
    let stage = rig.stage_operation(&held, FsType::Ext4);
    first.send(stage.clone(), Duration::ZERO);
    assert_eq!(first.receive(), Some(Outcome::Pending));
    drop(first);
    rig.wait_for_point("stage-looked");
    let mut second = rig.client();
    let inventory = inventory(&mut second);
    assert_eq!(inventory.operations.len(), 1);
    assert_eq!(inventory.operations[0].volume, held);
    assert_eq!(inventory.operations[0].kind, ebs_csi_wire::OperationKind::Stage);
    // The same request joins the operation, another request for the volume is refused as busy, and
    // a read proceeds.
    assert_eq!(second.call(stage, Duration::from_millis(10)), Outcome::Pending);
    let unstage = rig.unstage_operation(&held, &staging(&held));
    assert_refused(second.call(unstage, Duration::from_millis(10)), Refusal::Busy);
    assert_refused(rig.stats(&held, &staging(&held)), Refusal::VolumeNotAtPath);
    // The running stage does not affect another volume.
    assert!(done(rig.unpublish(&other, &target(&other, "p"))));
}

#[test]
fn unpublish_with_open_file_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    done(rig.publish(&volume, "p"));
    let path = rig.published_root(&volume, "p").join("open");
    let file = fs::File::create(&path).expect("create");
    assert_refused(rig.unpublish(&volume, &target(&volume, "p")), Refusal::StillHeld);
    assert_eq!(rig.mounts(&attached), 2);
    drop(file);
    rig.withdraw(&volume, "p");
}
