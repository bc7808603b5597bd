//! A resource that EC2's reads do not show is not taken for gone, and a failing zone does not
//! affect other zones.

use std::time::Duration;

use ebs_csi_controller::safe_detach::Mode;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ec2_sim::Power;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Request};

use crate::driver::{
    CreateRequest, Driver, NODE_1, NODE_2, NODE_B, assert_refused, assert_status, from_snapshot,
    from_volume, mount, publish, range, unpublish, volume, with_latency,
};
use crate::slow::{Slow, create};

/// Hides the resource from Describe calls for this time.
fn hide(slow: &Slow, id: &str, span_ms: u64) {
    disturb(slow, span_ms, json!({ "kind": "unseen", "id": id }));
}

fn disturb(slow: &Slow, span_ms: u64, fault: Value) {
    slow.world
        .fault(json!({ "match": { "action": "Describe*" }, "for_ms": span_ms, "fault": fault }));
}

fn only_volume(slow: &Slow) -> String {
    slow.world.act(|sim, _| {
        let volumes = sim.realm().volumes().values();
        let ids: Vec<_> = volumes.filter(|v| !v.root).map(|v| v.id.clone()).collect();
        assert_eq!(ids.len(), 1);
        ids[0].clone()
    })
}

#[tokio::test(start_paused = true)]
async fn volume_hidden_from_describe_is_not_created_twice() {
    for (hidden_after, span) in [(5, 4_000), (5, 15_000), (0, 60_000), (12, 60_000)] {
        let slow = Slow::new(with_latency("volume_create", 25_000)).await;
        let made = slow.create("pvc-1");
        let hidden = async {
            tokio::time::sleep(Duration::from_secs(1 + hidden_after)).await;
            hide(&slow, &only_volume(&slow), span);
        };
        let (made, ()) = tokio::join!(made, hidden);
        let made = match made {
            Ok(made) => made,
            Err(status) => {
                assert_eq!(status.code(), Code::Aborted, "{status}");
                slow.create("pvc-1").await.unwrap()
            }
        };
        assert_eq!(made, only_volume(&slow));
    }
}

/// The process that had the clone made ended before it answered. Reads show neither the source nor
/// the clone for a while.
#[tokio::test(start_paused = true)]
async fn hidden_clone_of_ended_process_is_found() {
    let (slow, source) = Slow::with_volume(json!({})).await;
    let copy = volume("pvc-2", 1).with_source(from_volume(&source));
    let made = create(&slow.controller, copy.clone()).await.unwrap().volume_id;
    hide(&slow, &source, 22_000);
    hide(&slow, &made, 60_000);
    let next = slow.another(2).await;
    let found = loop {
        match create(&next, copy.clone()).await {
            Ok(found) => break found.volume_id,
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    assert_eq!(found, made);
}

#[tokio::test(start_paused = true)]
async fn refusal_before_client_token_is_final_later() {
    let denied = json!([{ "match": { "action": "CreateVolume" }, "fault": {
        "kind": "error", "code": "AuthFailure", "status": 401 } }]);
    let rows = [
        (json!([]), Some(from_volume("vol-0123456789abcdef0")), Code::NotFound),
        (json!([]), Some(from_snapshot("snap-0123456789abcdef0")), Code::NotFound),
        (denied, None, Code::PermissionDenied),
    ];
    for (faults, source, code) in rows {
        let slow = Slow::new(json!({ "faults": faults })).await;
        let request =
            csi::CreateVolumeRequest { volume_content_source: source, ..volume("pvc-1", 1) };
        for (seconds, code) in [(0, Code::Aborted), (70, Code::Aborted), (5, code)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let refused = create(&slow.controller, request.clone()).await.unwrap_err();
            assert_eq!(refused.code(), code, "{seconds} s: {refused}");
        }
    }
}

/// The name's token was used with other parameters, and reads do not show its volume: how long the
/// credentials were refused before does not count.
#[tokio::test(start_paused = true)]
async fn refused_credentials_do_not_spend_client_token() {
    let (slow, made) = Slow::with_volume(json!({})).await;
    let next = slow.another(2).await;
    hide(&slow, &made, 300_000);
    let denied = json!({ "match": { "action": "CreateVolume" }, "for_ms": 130_000, "fault": {
        "kind": "error", "code": "AuthFailure", "status": 401 } });
    slow.world.fault(denied);
    for seconds in [0, 131] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_refused(create(&next, volume("pvc-1", 2)).await, Code::Aborted, &[]);
    }
    assert_eq!(slow.live("volumes"), 1);
}

/// Another process detached the volume; reads from before that show the attachment for a while.
#[tokio::test(start_paused = true)]
async fn late_read_of_ended_attachment_is_not_answered() {
    let scenario = json!({ "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 } } });
    let (slow, id) = Slow::with_volume(scenario).await;
    slow.publish(&id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let other = slow.another(2).await;
    slow.unpublish(&id).await.unwrap();
    disturb(&slow, 900, json!({ "kind": "stale", "ms": 1_000 }));
    other.controller_publish_volume(Request::new(publish(&id, NODE_1))).await.unwrap();
    assert_eq!(slow.live("attachments"), 1);
}

/// Another process attached the volume; reads from before that show no attachment for a while. EC2
/// needs longer for the detach than reads are late.
#[tokio::test(start_paused = true)]
async fn late_read_without_attachment_ends_no_detach() {
    for (mode, late_ms) in [Mode::Off, Mode::Ec2Only]
        .into_iter()
        .flat_map(|mode| [300, 900, 1_800].map(|late_ms| (mode, late_ms)))
    {
        let slow = Slow::under(
            mode,
            json!({
                "consistency": { "replicas": 1, "lag": { "fixed_ms": 0 } },
                "latency": { "attach": { "fixed_ms": 20 }, "detach": { "fixed_ms": 3_000 } },
            }),
        )
        .await;
        let id = slow.create("pvc-1").await.unwrap();
        let other = slow.another(2).await;
        slow.publish(&id).await.unwrap();
        disturb(&slow, late_ms, json!({ "kind": "stale", "ms": late_ms }));
        let request = Request::new(unpublish(&id, NODE_1));
        other.controller_unpublish_volume(request).await.unwrap();
        assert_eq!(slow.live("attachments"), 0, "{mode}, {late_ms} ms late");
        assert_eq!(slow.calls("DetachVolume"), 1, "{mode}, {late_ms} ms late");
    }
}

/// The instance is started while EC2 throttles the reads of the volume.
#[tokio::test(start_paused = true)]
async fn instance_started_during_throttled_read_keeps_volume() {
    let slow = Slow::under(
        Mode::Enforce,
        json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a" },
        { "id": NODE_2, "type": "m5.large", "zone": "us-east-1a" },
    ] }),
    )
    .await;
    let id = slow.create("pvc-1").await.unwrap();
    slow.publish(&id).await.unwrap();
    let elsewhere =
        || slow.controller.controller_publish_volume(Request::new(publish(&id, NODE_2)));
    for is_unpublish in [true, false] {
        slow.world.act(|sim, now| sim.set_power(now, NODE_1, Power::Stop, true)).unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let started = async {
            // The publish elsewhere has looked at the volume once before it looks at the holder.
            let looks = slow.calls("DescribeVolumes");
            while !is_unpublish && slow.calls("DescribeVolumes") < looks + 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let throttle = json!({ "match": { "action": "DescribeVolumes" }, "for_ms": 12_000, "fault": { "kind": "throttle" } });
            slow.world.fault(throttle);
            tokio::time::sleep(Duration::from_secs(5)).await;
            slow.world.act(|sim, now| sim.set_power(now, NODE_1, Power::Start, true)).unwrap();
        };
        let refused = if is_unpublish {
            tokio::join!(slow.unpublish(&id), started).0.unwrap_err()
        } else {
            tokio::join!(elsewhere(), started).0.unwrap_err()
        };
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert_eq!(slow.calls("DetachVolume"), 0);
        assert_eq!(slow.live("attachments"), 1);
    }
}

/// The process that published the volume knows that no other process has detached it since.
#[tokio::test(start_paused = true)]
async fn repeated_publish_of_same_process_answers_at_once() {
    let (slow, id) = Slow::with_volume(json!({})).await;
    slow.publish(&id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let begin = Instant::now();
    slow.publish(&id).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn attached_volume_hidden_from_describe_is_not_deleted() {
    let (slow, id) = Slow::with_volume(json!({})).await;
    slow.publish(&id).await.unwrap();
    hide(&slow, &id, 60_000);
    let request = csi::DeleteVolumeRequest { volume_id: id.clone(), ..Default::default() };
    let refused = slow.controller.delete_volume(Request::new(request)).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(slow.live("volumes"), 1);
}

/// Describe calls do not show the instance for a minute; EC2's answer to AttachVolume decides.
#[tokio::test(start_paused = true)]
async fn attach_and_detach_succeed_for_hidden_node() {
    let (slow, id) = Slow::with_volume(json!({})).await;
    hide(&slow, NODE_1, 60_000);
    slow.publish(&id).await.unwrap();
    assert_eq!(slow.live("attachments"), 1);
    slow.unpublish(&id).await.unwrap();
    assert_eq!(slow.live("attachments"), 0);
}

#[tokio::test(start_paused = true)]
async fn unpublish_of_hidden_detaching_volume_awaits_detach() {
    let (slow, id) = Slow::with_volume(with_latency("detach", 30_000)).await;
    slow.publish(&id).await.unwrap();
    let hidden = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        hide(&slow, &id, 20_000);
    };
    let (answer, ()) = tokio::join!(slow.unpublish(&id), hidden);
    answer.unwrap();
    assert_eq!(slow.live("attachments"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zone_outage_does_not_affect_other_zones() {
    let driver = Driver::new().await;
    let made = async |name: &str, zone: &str| {
        driver.create(volume(name, 1).in_zone(zone)).await.unwrap().volume_id
    };
    let well = made("well", "us-east-1a").await;
    let moving = made("moving", "us-east-1a").await;
    let cut_off = made("cut-off", "us-east-1b").await;
    driver.publish(&moving, NODE_1).await.unwrap();
    driver
        .world
        .command(|control| control.put("/v1/zones/us-east-1b", &json!({ "state": "unavailable" })));
    // First a process that knows the zones, then a new process that gets calls for both zones at
    // once.
    driver.publish(&well, NODE_1).await.unwrap();
    driver.unpublish(&well, NODE_1).await.unwrap();
    let fresh = driver.another().await;
    let (here, there) = tokio::join!(fresh.publish(&well, NODE_1), async {
        let timeout = Duration::from_secs(2);
        tokio::time::timeout(timeout, fresh.publish(&cut_off, NODE_B)).await
    });
    here.unwrap();
    assert!(!matches!(there, Ok(Ok(_))), "{there:?}");
    fresh.unpublish(&moving, NODE_1).await.unwrap();
    fresh.publish(&moving, NODE_2).await.unwrap();
    fresh.expand(&moving, 2).await.unwrap();
    made("new", "us-east-1a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_snapshot_restore_refuses_encrypted_false() {
    let driver = Driver::new().await;
    let encrypted = volume("pvc-1", 1).with_parameters(&[("encrypted", "true")]);
    let source = driver.create(encrypted).await.unwrap().volume_id;
    let snapshot = driver.ready_snapshot("s", &source).await.snapshot_id;
    let restore = |name: &str, parameters: &[(&str, &str)]| {
        let request = volume(name, 1).with_source(from_snapshot(&snapshot));
        driver.create(request.with_parameters(parameters))
    };
    restore("pvc-2", &[]).await.unwrap();
    restore("pvc-3", &[("encrypted", "true")]).await.unwrap();
    let refused = restore("pvc-4", &[("encrypted", "false")]).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["is encrypted"]);
}

/// One read that is from before the creation does not make the volume NOT_FOUND.
#[tokio::test(start_paused = true)]
async fn expand_looks_twice_before_not_found() {
    let (slow, id) = Slow::with_volume(json!({})).await;
    let expand = |id: &str| {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: range(2, 0),
            volume_capability: Some(mount()),
            ..Default::default()
        };
        slow.controller.controller_expand_volume(Request::new(request))
    };
    // The request waits 2 s for its counterpart before it is carried out.
    hide(&slow, &id, 3_000);
    assert_eq!(expand(&id).await.unwrap().into_inner().capacity_bytes, 2 << 30);
    assert_refused(expand("vol-0fffffffffffffff1").await, Code::NotFound, &[]);
}
