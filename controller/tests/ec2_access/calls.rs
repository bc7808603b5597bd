//! Tests each call against a simulator without faults.

use std::time::Duration;

use ebs_csi_ec2::{
    AttachmentState, Call, CreateVolume, Ec2ErrorKind, Force, IopsQuestion, ListPage, LookResult,
    MaxIops, ModificationState, ModifyVolume, Snapshot, SnapshotState, Tags, WatchedChange,
};
use ebs_csi_proto::GiB;
use ebs_csi_wire::SnapshotId;
use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, soon, token};
use crate::{device, node_a, snapshot_of};

#[tokio::test]
async fn each_ec2_call_returns_result_or_typed_error() {
    let world = World::new().await;
    let call = &Call::default();
    let ec2 = &world.ec2;
    ec2.check_access().await.unwrap();
    let zones = ec2.availability_zones(call).await.unwrap();
    assert!(
        zones.iter().any(|zone| zone.name == "us-east-1a" && zone.id == "use1-az6"),
        "{zones:?}"
    );
    assert_eq!(ec2.instance_type(call, "m5.large").await.unwrap().unwrap().cards, 1);
    let refused = ec2.instance_type(call, "x9.nonsense").await.unwrap_err();
    assert_eq!(refused.kind, Ec2ErrorKind::InvalidParameter);
    let caller = ec2.caller().await.unwrap();
    assert!(!caller.account.is_empty() && caller.arn.starts_with("arn:"), "{caller:?}");

    let volume = world.volume("pvc-1").await;
    assert_eq!(
        (volume.size, volume.kind.as_str(), volume.zone.as_str()),
        (GiB(4), "gp3", "us-east-1a")
    );
    assert_eq!(volume.tags["CSIVolumeName"], "pvc-1");

    let attachment = ec2.attach_volume(call, &volume.id, &node_a(), &device(), None).await.unwrap();
    assert_eq!(attachment.instance, Some(node_a()));
    let attached = ec2
        .watch_volume(call, &volume.id, WatchedChange::Attachment, soon(), |seen| {
            let attachment = seen.result.present()?.attachment(&node_a())?;
            (attachment.state == AttachmentState::Attached).then(|| attachment.clone())
        })
        .await
        .unwrap();
    assert_eq!(attached.device, "/dev/xvdaa");
    let instance = ec2.look_instance(call, &node_a()).await.known().unwrap().unwrap();
    assert!(instance.devices.iter().any(|d| d.volume.as_ref() == Some(&volume.id)), "{instance:?}");
    let again = ec2.attach_volume(call, &volume.id, &node_a(), &device(), None).await.unwrap_err();
    assert_eq!(again.kind, Ec2ErrorKind::VolumeInUse);
    assert!(again.request_id.is_some(), "{again:?}");
    let deleted = ec2.delete_volume(call, &volume.id).await.unwrap_err();
    assert_eq!(deleted.kind, Ec2ErrorKind::VolumeInUse);

    let modify = ModifyVolume {
        size: Some(GiB(8)),
        iops: Some(4000),
        ..ModifyVolume::nothing(volume.id.clone())
    };
    assert!(matches!(ec2.look_modification(call, &volume.id).await, LookResult::Absent));
    let modification = ec2.modify_volume(call, &modify).await.unwrap();
    assert_eq!((modification.target.size, modification.target.iops), (Some(GiB(8)), Some(4000)));
    ec2.watch_modification(call, &volume.id, soon(), |seen| {
        let state = &seen.result.present()?.state;
        matches!(state, ModificationState::Optimizing | ModificationState::Completed).then_some(())
    })
    .await
    .unwrap();

    let snapshot = ec2.create_snapshot(call, &snapshot_of(&volume.id, "snap-1")).await.unwrap();
    let is_complete = |snapshot: Snapshot| snapshot.state == SnapshotState::Completed;
    while !ec2.look_snapshot(call, &snapshot.id).await.known().unwrap().is_some_and(is_complete) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ec2.snapshots_by_name(call, "snap-1").await.unwrap().len(), 1);
    ec2.enable_fast_snapshot_restores(call, &snapshot.id, &["us-east-1a".to_owned()])
        .await
        .unwrap();

    let tags = Tags::from([("a".to_owned(), String::new())]);
    ec2.create_tags(call, volume.id.as_str(), &tags).await.unwrap();
    ec2.delete_tags(call, volume.id.as_str(), &["CSIVolumeName".to_owned()]).await.unwrap();
    let tagged = ec2.look_volume(call, &volume.id).await.known().unwrap().unwrap();
    assert_eq!(tagged.tags, tags);

    ec2.detach_volume(call, &volume.id, &node_a(), Force::No, Instant::now()).await.unwrap();
    ec2.watch_volume(call, &volume.id, WatchedChange::Detachment, soon(), |seen| {
        seen.result.present()?.attachments.is_empty().then_some(())
    })
    .await
    .unwrap();
    let gone = ec2
        .detach_volume(call, &volume.id, &node_a(), Force::No, Instant::now())
        .await
        .unwrap_err();
    assert_eq!(gone.kind, Ec2ErrorKind::IncorrectState);

    let copy = CreateVolume {
        client_token: token(),
        copied: Some(volume.id.clone()),
        size: GiB(8),
        kind: "gp3".to_owned(),
        ..CreateVolume::default()
    };
    let copied = ec2.create_volume(call, &copy).await.unwrap();
    assert_eq!(copied.source_volume.as_ref(), Some(&volume.id));
    assert!(ec2.look_volume_status(call, &volume.id).await.present().is_some());

    ec2.delete_snapshot(call, &snapshot.id).await.unwrap();
    ec2.delete_volume(call, &volume.id).await.unwrap();
    let kind = ec2.delete_snapshot(call, &snapshot.id).await.unwrap_err().kind;
    assert_eq!(kind, Ec2ErrorKind::SnapshotNotFound);
    let left = world.get("/v1/invariants");
    assert_eq!(left["violations"], json!([]), "{left}");
}

#[tokio::test]
async fn max_iops_comes_from_dry_run() {
    let world = World::new().await;
    for (kind, max) in [("gp3", MaxIops::AtMost(80_000)), ("gp2", MaxIops::NotSettable)] {
        let question = IopsQuestion {
            kind: kind.to_owned(),
            zone: Some("us-east-1a".to_owned()),
            zone_id: None,
            outpost_arn: None,
            tags: Tags::from([("ebs.csi.aws.com/cluster".to_owned(), "true".to_owned())]),
        };
        assert_eq!(world.ec2.max_iops(&Call::default(), &question).await.unwrap(), max, "{kind}");
    }
    let live = world.get("/v1/invariants");
    assert_eq!(live["live"]["volumes"], 0, "{live}");
}

#[tokio::test]
async fn names_match_literally_and_lists_are_paged() {
    let world = World::new().await;
    let call = &Call::default();
    let volume = world.volume("pvc-*").await;
    world.volume("pvc-1").await;
    let found = world.ec2.volumes_by_name(call, "pvc-*").await.unwrap();
    assert_eq!(found.iter().map(|v| &v.id).collect::<Vec<_>>(), [&volume.id]);
    for n in 0..7 {
        world.ec2.create_snapshot(call, &snapshot_of(&volume.id, &format!("s{n}"))).await.unwrap();
    }
    let mut seen: Vec<SnapshotId> = Vec::new();
    let mut token = None;
    loop {
        let page = ListPage { max: Some(5), token, volume: Some(volume.id.clone()) };
        let page = world.ec2.list_snapshots(call, page).await.unwrap();
        seen.extend(page.entries.into_iter().map(|snapshot| snapshot.id));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7);
    let bad = ListPage { token: Some("nonsense".to_owned()), ..ListPage::default() };
    assert_eq!(
        world.ec2.list_snapshots(call, bad).await.unwrap_err().kind,
        Ec2ErrorKind::BadPageToken
    );
    let unknown = SnapshotId::parse("snap-0123456789abcdef0").unwrap();
    assert!(matches!(world.ec2.look_snapshot(call, &unknown).await, LookResult::Absent));
}
