//! How lost, broken and late answers of EC2 are interpreted.

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2ErrorKind, Ec2Settings, Force, LookResult, ModifyVolume, Sent};
use ebs_csi_proto::GiB;
use ebs_csi_wire::VolumeId;
use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, access, small, token};
use crate::{device, nobody, node_a, snapshot_of};

#[tokio::test]
async fn unknown_id_in_batch_leaves_others_present() {
    let world = World::new().await;
    let (one, two) = (world.volume("a").await, world.volume("b").await);
    let (call, unknown) = (&Call::default(), nobody());
    let (a, b, c) = tokio::join!(
        world.ec2.look_volume(call, &one.id),
        world.ec2.look_volume(call, &unknown),
        world.ec2.look_volume(call, &two.id),
    );
    assert!(a.present().is_some() && matches!(b, LookResult::Absent) && c.present().is_some());
    // A final read for the volumes that were just made may be on its way, so only the requests that
    // name the unknown id are checked.
    let mut sent: Vec<_> =
        world.requests("DescribeVolumes").iter().map(ToString::to_string).collect();
    sent.retain(|parameters| parameters.contains(unknown.as_str()));
    // The zone of the others is known, so one request reads them together, without the unknown id.
    let names_others =
        sent.iter().any(|s| s.contains(one.id.as_str()) || s.contains(two.id.as_str()));
    assert!(sent.len() == 1 && !names_others, "{sent:?}");

    let (a, b, c) = tokio::join!(
        world.ec2.look_volume_status(call, &one.id),
        world.ec2.look_volume_status(call, &unknown),
        world.ec2.look_volume_status(call, &two.id),
    );
    assert!(a.present().is_some() && matches!(b, LookResult::Absent) && c.present().is_some());
    // The call by id fails once because of the unknown id and is repeated without it.
    assert_eq!(world.calls("DescribeVolumeStatus"), 2);
}

#[tokio::test]
async fn broken_answer_is_never_taken_as_absence() {
    let call = &Call::default();
    // A body shorter than its announced length ends only with the connection or the call timeout.
    let settings =
        || Ec2Settings { call_timeout: Duration::from_millis(300), ..Ec2Settings::default() };
    let world = World::new().await;
    let volume = world.volume("a").await;
    let broken = [
        json!({ "kind": "garble", "how": "cut" }),
        json!({ "kind": "garble", "how": "short" }),
        json!({ "kind": "garble", "how": "empty" }),
        json!({ "kind": "garble", "how": "unparsable" }),
        json!({ "kind": "garble", "how": "wrong_root" }),
        json!({ "kind": "error", "code": "InternalError", "status": 500 }),
        json!({ "kind": "error", "code": "x", "status": 502, "body": "html" }),
        json!({ "kind": "error", "code": "x", "status": 503, "body": "empty" }),
        json!({ "kind": "lose_reply", "how": "close" }),
        json!({ "kind": "lose_reply", "how": "reset" }),
    ];
    for fault in broken {
        // New pollers, which have not seen a failure yet.
        let ec2 = access(&world.server.ec2(), settings()).await;
        world
            .fault(json!({ "match": { "action": "DescribeVolumes" }, "count": 2, "fault": fault }));
        let seen = ec2.look_volume(call, &volume.id).await;
        assert!(seen.present().is_some(), "after two answers of {fault}: {seen:?}");
        world.clear_faults();
        world.fault(json!({ "match": { "action": "DescribeVolumes" }, "fault": fault }));
        let seen = ec2.look_volume(call, &volume.id).await;
        assert!(matches!(seen, LookResult::Unknown(_)), "while all are {fault}: {seen:?}");
        world.clear_faults();
    }
    let cut = json!({ "kind": "garble", "how": "cut" });
    world.fault(json!({ "match": { "action": "DescribeVolumes" }, "fault": cut }));
    let named = world.ec2.volumes_by_name(call, "a").await;
    assert!(named.is_err(), "{named:?}");
}

/// The retry carries the same request token, so EC2 makes no second volume.
#[tokio::test]
async fn lost_create_reply_still_makes_exactly_1_volume() {
    let world = World::new().await;
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "lose_reply", "how": "close", "effect": false }),
        json!({ "kind": "garble", "how": "cut", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
    ] {
        world.fault_once("CreateVolume", &fault);
        let name = token();
        world.ec2.create_volume(&Call::default(), &small(&name)).await.unwrap();
        assert_eq!(
            world.ec2.volumes_by_name(&Call::default(), &name).await.unwrap().len(),
            1,
            "{fault}"
        );
    }
}

/// Attach, detach, modify and snapshot take no request token, so the error tells the caller that
/// the change may have happened.
#[tokio::test]
async fn lost_reply_without_token_is_not_retried() {
    let world = World::new().await;
    let call = &Call::default();
    let volume = world.volume("a").await;
    let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
    for action in ["AttachVolume", "DetachVolume", "ModifyVolume", "CreateSnapshot"] {
        world.fault_once(action, &lost);
        let (ec2, id, node) = (&world.ec2, &volume.id, &node_a());
        let result = match action {
            "AttachVolume" => ec2.attach_volume(call, id, node, &device(), None).await.map(drop),
            "DetachVolume" => {
                ec2.detach_volume(call, id, node, Force::No, Instant::now()).await.map(drop)
            }
            "ModifyVolume" => {
                let modify =
                    ModifyVolume { size: Some(GiB(9)), ..ModifyVolume::nothing(id.clone()) };
                ec2.modify_volume(call, &modify).await.map(drop)
            }
            _ => ec2.create_snapshot(call, &snapshot_of(id, "s")).await.map(drop),
        };
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.sent), (Ec2ErrorKind::NoAnswer, Sent::Maybe), "{action}");
        assert!(error.may_have_happened());
        assert_eq!(world.calls(action), 1, "{action} was sent again");
    }
    assert_eq!(world.ec2.snapshots_by_name(call, "s").await.unwrap().len(), 1);
}

/// Returns a world with a call timeout of 400 ms, after an AttachVolume whose answer `fault`
/// delayed beyond that, and the volume of that call.
async fn attach_until_timeout(fault: &serde_json::Value) -> (World, VolumeId) {
    let settings =
        Ec2Settings { call_timeout: Duration::from_millis(400), ..Ec2Settings::default() };
    let world = World::with(json!({ "profile": "instant" }), settings).await;
    let volume = world.volume("a").await;
    world.fault_once("AttachVolume", fault);
    let error = world
        .ec2
        .attach_volume(&Call::default(), &volume.id, &node_a(), &device(), None)
        .await
        .unwrap_err();
    assert_eq!((error.kind, error.sent), (Ec2ErrorKind::NoAnswer, Sent::Maybe));
    (world, volume.id)
}

#[tokio::test]
async fn hanging_answer_ends_at_call_timeout() {
    let hang = json!({ "kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 3000 });
    let (world, volume) = attach_until_timeout(&hang).await;
    let slow = json!({ "kind": "slow", "first_byte_ms": 150, "byte_ms": 0 });
    world.fault_once("DescribeVolumes", &slow);
    assert!(world.ec2.look_volume(&Call::default(), &volume).await.present().is_some());
}

#[tokio::test]
async fn trickling_answer_ends_at_call_timeout() {
    // The head arrives at once; the body, byte by byte, would take a minute.
    attach_until_timeout(&json!({ "kind": "slow", "first_byte_ms": 0, "byte_ms": 200 })).await;
}
