//! The EC2 layer, with the real SDK, against the simulator.

mod world;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use ebs_csi_controller::ec2::{
    Action, AttachmentState, CopyVolume, CreateSnapshot, Ec2ErrorKind, Force, IopsQuestion,
    ListPage, MaxIops, ModificationState, ModifyVolume, Rate, Seen, Sent, Settings, SnapshotState,
    StartError, Surroundings, Tags,
};
use ebs_csi_proto::GiB;
use ebs_csi_wire::{DeviceName, InstanceId, SnapshotId, VolumeId};
use serde_json::json;
use tokio::time::Instant;
use world::{NODE_A, World, access, small, soon, token};

fn node_a() -> InstanceId {
    InstanceId::parse(NODE_A).unwrap()
}

fn device() -> DeviceName {
    DeviceName::parse("/dev/xvdaa").unwrap()
}

fn nobody() -> VolumeId {
    VolumeId::parse("vol-0123456789abcdef0").unwrap()
}

fn snapshot_of(volume: &VolumeId, name: &str) -> CreateSnapshot {
    CreateSnapshot {
        volume: volume.clone(),
        description: "made by a test".to_owned(),
        outpost_arn: None,
        tags: Tags::from([("CSIVolumeSnapshotName".to_owned(), name.to_owned())]),
    }
}

#[tokio::test]
async fn every_call_does_what_it_says() {
    let world = World::new().await;
    let ec2 = &world.ec2;
    ec2.check().await.unwrap();
    let zones = ec2.availability_zones().await.unwrap();
    assert!(
        zones
            .iter()
            .any(|zone| zone.name == "us-east-1a" && zone.id == "use1-az6"),
        "{zones:?}"
    );
    assert_eq!(
        ec2.instance_type("m5.large").await.unwrap().unwrap().cards,
        1
    );
    assert_eq!(ec2.instance_type("x9.nonsense").await.unwrap(), None);
    let caller = ec2.caller().await.unwrap();
    assert!(
        !caller.account.is_empty() && caller.arn.starts_with("arn:"),
        "{caller:?}"
    );

    let volume = world.volume("pvc-1").await;
    assert_eq!(
        (volume.size, volume.kind.as_str(), volume.zone.as_str()),
        (GiB(4), "gp3", "us-east-1a")
    );
    assert_eq!(volume.tags["CSIVolumeName"], "pvc-1");

    let attachment = ec2
        .attach_volume(&volume.id, &node_a(), &device(), None)
        .await
        .unwrap();
    assert_eq!(attachment.instance, Some(node_a()));
    let attached = ec2
        .watch_volume(&volume.id, soon(), |seen| {
            match seen.present().and_then(|v| v.attachment(&node_a())) {
                Some(a) if a.state == AttachmentState::Attached => ControlFlow::Break(a.clone()),
                _ => ControlFlow::Continue(()),
            }
        })
        .await
        .unwrap();
    assert_eq!(attached.device, "/dev/xvdaa");
    let instance = ec2.look_instance(&node_a()).await.known().unwrap().unwrap();
    assert!(
        instance
            .devices
            .iter()
            .any(|d| d.volume.as_ref() == Some(&volume.id)),
        "{instance:?}"
    );
    let again = ec2
        .attach_volume(&volume.id, &node_a(), &device(), None)
        .await
        .unwrap_err();
    assert_eq!(again.kind, Ec2ErrorKind::VolumeInUse);
    assert!(again.request_id.is_some(), "{again:?}");
    let deleted = ec2.delete_volume(&volume.id).await.unwrap_err();
    assert_eq!(deleted.kind, Ec2ErrorKind::VolumeInUse);

    let modify = ModifyVolume {
        volume: volume.id.clone(),
        size: Some(GiB(8)),
        kind: None,
        iops: Some(4000),
        throughput: None,
    };
    assert!(matches!(
        ec2.look_modification(&volume.id).await,
        Seen::Absent
    ));
    let modification = ec2.modify_volume(&modify).await.unwrap();
    assert_eq!(
        (modification.target.size, modification.target.iops),
        (Some(GiB(8)), Some(4000))
    );
    ec2.watch_modification(&volume.id, soon(), |seen| {
        match seen.present().map(|m| &m.state) {
            Some(ModificationState::Optimizing | ModificationState::Completed) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    })
    .await
    .unwrap();

    let snapshot = ec2
        .create_snapshot(&snapshot_of(&volume.id, "snap-1"))
        .await
        .unwrap();
    ec2.watch_snapshot(&snapshot.id, soon(), |seen| {
        match seen.present().map(|s| &s.state) {
            Some(SnapshotState::Completed) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .await
    .unwrap();
    assert_eq!(ec2.snapshots_by_name("snap-1").await.unwrap().len(), 1);
    ec2.enable_fast_snapshot_restores(&snapshot.id, &["us-east-1a".to_owned()])
        .await
        .unwrap();

    ec2.create_tags(
        volume.id.as_str(),
        &Tags::from([("a".to_owned(), String::new())]),
    )
    .await
    .unwrap();
    ec2.delete_tags(volume.id.as_str(), &["CSIVolumeName".to_owned()])
        .await
        .unwrap();
    let tagged = ec2.look_volume(&volume.id).await.known().unwrap().unwrap();
    assert_eq!(
        tagged.tags,
        BTreeMap::from([("a".to_owned(), String::new())])
    );

    ec2.detach_volume(&volume.id, &node_a(), Force::No)
        .await
        .unwrap();
    ec2.watch_volume(&volume.id, soon(), |seen| match seen.present() {
        Some(volume) if volume.attachments.is_empty() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .await
    .unwrap();
    let gone = ec2
        .detach_volume(&volume.id, &node_a(), Force::No)
        .await
        .unwrap_err();
    assert_eq!(gone.kind, Ec2ErrorKind::IncorrectState);

    let copy = CopyVolume {
        client_token: token(),
        source: volume.id.clone(),
        size: GiB(8),
        kind: "gp3".to_owned(),
        iops: None,
        throughput: None,
        multi_attach: false,
        tags: Tags::new(),
    };
    let copied = ec2.copy_volumes(&copy).await.unwrap();
    assert_eq!(copied.source_volume.as_ref(), Some(&volume.id));
    assert!(ec2.look_volume_status(&volume.id).await.present().is_some());

    ec2.delete_snapshot(&snapshot.id).await.unwrap();
    ec2.delete_volume(&volume.id).await.unwrap();
    let kind = ec2.delete_snapshot(&snapshot.id).await.unwrap_err().kind;
    assert_eq!(kind, Ec2ErrorKind::SnapshotNotFound);
    let left = world.command(|control| control.get("/v1/invariants"));
    assert_eq!(left["violations"], json!([]), "{left}");
}

#[tokio::test]
async fn the_most_iops_are_learned_from_a_dry_run() {
    let world = World::new().await;
    let ask = |kind: &str| IopsQuestion {
        kind: kind.to_owned(),
        zone: Some("us-east-1a".to_owned()),
        zone_id: None,
        outpost_arn: None,
        tags: Tags::from([("ebs.csi.aws.com/cluster".to_owned(), "true".to_owned())]),
    };
    assert_eq!(
        world.ec2.max_iops(&ask("gp3")).await.unwrap(),
        MaxIops::AtMost(80_000)
    );
    assert_eq!(
        world.ec2.max_iops(&ask("gp2")).await.unwrap(),
        MaxIops::NotSettable
    );
    let live = world.command(|control| control.get("/v1/invariants"));
    assert_eq!(live["live"]["volumes"], 0, "{live}");
}

#[tokio::test]
async fn one_unknown_id_in_a_batch_is_absent_and_the_others_are_present() {
    let world = World::new().await;
    let (one, two) = (world.volume("a").await, world.volume("b").await);
    let unknown = nobody();
    for status in [false, true] {
        let before = world.calls(if status {
            "DescribeVolumeStatus"
        } else {
            "DescribeVolumes"
        });
        if status {
            let (a, b, c) = tokio::join!(
                world.ec2.look_volume_status(&one.id),
                world.ec2.look_volume_status(&unknown),
                world.ec2.look_volume_status(&two.id),
            );
            assert!(a.present().is_some() && matches!(b, Seen::Absent) && c.present().is_some());
            // The call by id fails once for the unknown one and is made again without it.
            assert_eq!(world.calls("DescribeVolumeStatus") - before, 2);
        } else {
            let (a, b, c) = tokio::join!(
                world.ec2.look_volume(&one.id),
                world.ec2.look_volume(&unknown),
                world.ec2.look_volume(&two.id),
            );
            assert!(a.present().is_some() && matches!(b, Seen::Absent) && c.present().is_some());
            assert_eq!(
                world.calls("DescribeVolumes") - before,
                1,
                "those who ask together share one call"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_whole_is_never_absence() {
    // A body shorter than its length ends only when the connection or the patience does.
    let settings = || Settings {
        call_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
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
        // Pollers that have not met a failure yet.
        let ec2 = access(&world.server.ec2(), settings()).await;
        world
            .fault(json!({ "match": { "action": "DescribeVolumes" }, "count": 2, "fault": fault }));
        let seen = ec2.look_volume(&volume.id).await;
        assert!(
            seen.present().is_some(),
            "after two answers of {fault}: {seen:?}"
        );
        world.no_faults();
        world.fault(json!({ "match": { "action": "DescribeVolumes" }, "fault": fault }));
        let seen = ec2.look_volume(&volume.id).await;
        assert!(
            matches!(seen, Seen::Unknown(_)),
            "while all are {fault}: {seen:?}"
        );
        world.no_faults();
    }
    world.fault(json!({
        "match": { "action": "DescribeVolumes" }, "fault": { "kind": "garble", "how": "cut" },
    }));
    let named = world.ec2.volumes_by_name("a").await;
    assert!(named.is_err(), "{named:?}");
}

#[tokio::test]
async fn a_lost_reply_of_a_create_is_asked_again_by_token_and_makes_one_volume() {
    let world = World::new().await;
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "lose_reply", "how": "close", "effect": false }),
        json!({ "kind": "garble", "how": "cut", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
    ] {
        world.fault(json!({ "match": { "action": "CreateVolume" }, "count": 1, "fault": fault }));
        let name = token();
        world.ec2.create_volume(&small(&name)).await.unwrap();
        assert_eq!(
            world.ec2.volumes_by_name(&name).await.unwrap().len(),
            1,
            "{fault}"
        );
    }
}

#[tokio::test]
async fn a_lost_reply_of_a_change_without_a_token_is_the_callers_to_judge() {
    let world = World::new().await;
    let volume = world.volume("a").await;
    let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
    for action in [
        "AttachVolume",
        "DetachVolume",
        "ModifyVolume",
        "CreateSnapshot",
    ] {
        world.fault(json!({ "match": { "action": action }, "count": 1, "fault": lost }));
        let ec2 = &world.ec2;
        let error = match action {
            "AttachVolume" => ec2
                .attach_volume(&volume.id, &node_a(), &device(), None)
                .await
                .map(drop)
                .unwrap_err(),
            "DetachVolume" => ec2
                .detach_volume(&volume.id, &node_a(), Force::No)
                .await
                .map(drop)
                .unwrap_err(),
            "ModifyVolume" => {
                let modify = ModifyVolume {
                    volume: volume.id.clone(),
                    size: Some(GiB(9)),
                    kind: None,
                    iops: None,
                    throughput: None,
                };
                ec2.modify_volume(&modify).await.map(drop).unwrap_err()
            }
            _ => ec2
                .create_snapshot(&snapshot_of(&volume.id, "s"))
                .await
                .map(drop)
                .unwrap_err(),
        };
        assert!(
            error.may_have_happened() && error.kind == Ec2ErrorKind::NoAnswer,
            "{action}: {error:?}"
        );
        assert_eq!(world.calls(action), 1, "{action} was sent again");
    }
    assert_eq!(world.ec2.snapshots_by_name("s").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_burst_beyond_the_bucket_is_spread_and_hardly_throttled() {
    // A tenth of EC2's time: 20 at once and 50 a second.
    let rate = Rate {
        capacity: 20.0,
        refill: 50.0,
    };
    let settings = Settings {
        rates: BTreeMap::from([(Action::CreateVolume, rate)]),
        ..Settings::default()
    };
    let scenario = json!({
        "profile": "instant",
        "limits": { "enabled": true, "scale": 1.0, "actions": { "CreateVolume": { "capacity": 20, "refill": 50 } } },
    });
    let world = World::with(scenario, settings).await;
    let tasks: Vec<_> = (0..150)
        .map(|n| {
            let ec2 = world.ec2.clone();
            tokio::spawn(async move {
                ec2.create_volume(&small(&format!("pvc-{n}")))
                    .await
                    .map(drop)
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let (calls, throttled) = (world.calls("CreateVolume"), world.throttled("CreateVolume"));
    assert_eq!(calls - throttled, 150);
    assert!(throttled <= 3, "{throttled} of {calls} were throttled");
}

#[tokio::test]
async fn a_bucket_that_others_have_emptied_is_learned_and_every_call_succeeds() {
    // We think of 200 a second; EC2 grants 40, and nothing at once.
    let rate = Rate {
        capacity: 400.0,
        refill: 200.0,
    };
    let settings = Settings {
        rates: BTreeMap::from([(Action::CreateVolume, rate)]),
        ..Settings::default()
    };
    let scenario = json!({
        "profile": "instant",
        "limits": { "enabled": true, "scale": 1.0, "actions": { "CreateVolume": { "capacity": 5, "refill": 40 } } },
    });
    let world = World::with(scenario, settings).await;
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let ec2 = world.ec2.by(Instant::now() + Duration::from_secs(120));
            tokio::spawn(async move {
                ec2.create_volume(&small(&format!("pvc-{n}")))
                    .await
                    .map(drop)
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let (_, level) = world
        .ec2
        .levels()
        .into_iter()
        .find(|(action, _)| *action == Action::CreateVolume)
        .unwrap();
    assert!(level.refill < 200.0, "{level:?}");
    assert!(world.throttled("CreateVolume") > 0);
}

#[tokio::test]
async fn an_attach_does_not_wait_behind_detaches() {
    let slow = Rate {
        capacity: 2.0,
        refill: 1.0,
    };
    let settings = Settings {
        rates: BTreeMap::from([(Action::DetachVolume, slow)]),
        ..Settings::default()
    };
    let world = World::with(json!({ "profile": "instant" }), settings).await;
    let volume = world.volume("a").await;
    let detaches: Vec<_> = (0..300)
        .map(|_| {
            let (ec2, id) = (world.ec2.clone(), volume.id.clone());
            tokio::spawn(
                async move { ec2.detach_volume(&id, &node_a(), Force::No).await.map(drop) },
            )
        })
        .collect();
    // Until all have taken their place.
    let waiting = |action| {
        let levels = world.ec2.levels();
        levels
            .into_iter()
            .find(|(a, _)| *a == action)
            .map_or(0, |(_, level)| level.waiting)
    };
    while waiting(Action::DetachVolume) < 290 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world
        .ec2
        .attach_volume(&volume.id, &node_a(), &device(), None)
        .await
        .unwrap();
    assert!(
        waiting(Action::DetachVolume) > 200,
        "the detaches were still waiting"
    );
    for detach in detaches {
        detach.abort();
    }
}

#[tokio::test]
async fn waiting_for_a_turn_ends_at_the_deadline_and_nothing_is_sent() {
    let rate = Rate {
        capacity: 1.0,
        refill: 0.001,
    };
    let settings = Settings {
        rates: BTreeMap::from([(Action::DeleteVolume, rate)]),
        ..Settings::default()
    };
    let world = World::with(json!({ "profile": "instant" }), settings).await;
    let ec2 = world.ec2.by(Instant::now() + Duration::from_millis(300));
    // The reserve keeps the only token, or the first call takes it.
    let _ = ec2.delete_volume(&nobody()).await;
    let before = world.calls("DeleteVolume");
    let error = ec2.delete_volume(&nobody()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.sent),
        (Ec2ErrorKind::Deadline, Sent::Not)
    );
    assert_eq!(world.calls("DeleteVolume"), before);
}

#[tokio::test]
async fn ec2_that_cannot_be_reached_is_said_and_nothing_was_sent() {
    let settings = || Settings {
        connect_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let ec2 = access(&format!("http://127.0.0.1:{port}"), settings()).await;
    let check = ec2.check().await.unwrap_err();
    assert_eq!(
        (check.kind, check.sent),
        (Ec2ErrorKind::Unreachable, Sent::Not)
    );
    let text = check.to_string();
    assert!(
        text.contains("refused") && text.contains("AWS_EC2_ENDPOINT"),
        "{text}"
    );
    let create = ec2.create_volume(&small("a")).await.unwrap_err();
    assert!(!create.may_have_happened(), "{create:?}");
    assert!(matches!(ec2.look_volume(&nobody()).await, Seen::Unknown(_)));
}

#[tokio::test]
async fn an_answer_that_never_comes_ends_with_the_call_timeout() {
    let settings = Settings {
        call_timeout: Duration::from_millis(400),
        ..Settings::default()
    };
    let world = World::with(json!({ "profile": "instant" }), settings).await;
    let volume = world.volume("a").await;
    world.fault(json!({
        "match": { "action": "AttachVolume" }, "count": 1,
        "fault": { "kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 3000 },
    }));
    let error = world
        .ec2
        .attach_volume(&volume.id, &node_a(), &device(), None)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.sent),
        (Ec2ErrorKind::NoAnswer, Sent::Maybe)
    );
    world.fault(json!({
        "match": { "action": "DescribeVolumes" }, "count": 1,
        "fault": { "kind": "slow", "first_byte_ms": 150, "byte_ms": 0 },
    }));
    assert!(world.ec2.look_volume(&volume.id).await.present().is_some());
}

#[tokio::test]
async fn a_missing_permission_names_the_action_and_is_not_tried_again() {
    let world = World::new().await;
    world.fault(json!({
        "match": { "action": "CreateVolume" },
        "fault": { "kind": "error", "code": "UnauthorizedOperation", "status": 403,
                   "message": "You are not authorized to perform this operation. Encoded authorization failure message: abc" },
    }));
    let error = world.ec2.create_volume(&small("a")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.sent),
        (Ec2ErrorKind::Unauthorized, Sent::Answered)
    );
    let text = error.to_string();
    assert!(
        text.contains("ec2:CreateVolume") && text.contains("IAM") && !text.contains("abc"),
        "{text}"
    );
    assert_eq!(world.calls("CreateVolume"), 1);
}

#[tokio::test]
async fn fast_restores_that_fail_within_a_success_are_an_error() {
    let world = World::new().await;
    let volume = world.volume("a").await;
    let snapshot = world
        .ec2
        .create_snapshot(&snapshot_of(&volume.id, "s"))
        .await
        .unwrap();
    world.fault(json!({
        "match": { "action": "EnableFastSnapshotRestores" },
        "fault": { "kind": "unsuccessful", "code": "SnapshotLimitExceeded", "message": "no more" },
    }));
    let zones = ["us-east-1a".to_owned()];
    let error = world
        .ec2
        .enable_fast_snapshot_restores(&snapshot.id, &zones)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Ec2ErrorKind::SnapshotQuota);
    assert!(error.message.contains("us-east-1a"), "{error}");
}

#[tokio::test]
async fn names_are_taken_as_they_stand_and_lists_come_in_pages() {
    let world = World::new().await;
    let volume = world.volume("pvc-*").await;
    world.volume("pvc-1").await;
    let found = world.ec2.volumes_by_name("pvc-*").await.unwrap();
    assert_eq!(
        found.iter().map(|v| &v.id).collect::<Vec<_>>(),
        [&volume.id]
    );
    for n in 0..7 {
        world
            .ec2
            .create_snapshot(&snapshot_of(&volume.id, &format!("s{n}")))
            .await
            .unwrap();
    }
    let mut seen: Vec<SnapshotId> = Vec::new();
    let mut token = None;
    loop {
        let page = ListPage {
            max: Some(5),
            token,
            volume: Some(volume.id.clone()),
        };
        let page = world.ec2.list_snapshots(page).await.unwrap();
        seen.extend(page.entries.into_iter().map(|snapshot| snapshot.id));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7);
    let bad = ListPage {
        token: Some("nonsense".to_owned()),
        ..ListPage::default()
    };
    assert_eq!(
        world.ec2.list_snapshots(bad).await.unwrap_err().kind,
        Ec2ErrorKind::BadPageToken
    );
    let unknown = SnapshotId::parse("snap-0123456789abcdef0").unwrap();
    assert!(matches!(
        world.ec2.look_snapshot(&unknown).await,
        Seen::Absent
    ));
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused_by_name() {
    let settings = Settings {
        region: Some("us-east-1".to_owned()),
        ec2_endpoint: Some("ec2.example".to_owned()),
        profile_files: false,
        ..Settings::default()
    };
    let error = ebs_csi_controller::ec2::Ec2::connect(settings, Surroundings::default())
        .await
        .unwrap_err();
    assert!(matches!(&error, StartError::Endpoint(given) if given == "ec2.example"));
    assert!(error.to_string().contains("AWS_EC2_ENDPOINT"));
}
