//! Attach and detach: EC2's view decides, and the latest request wins.

use std::collections::BTreeSet;
use std::time::Duration;

use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;

use crate::driver::{
    CreateRequest, Driver, NODE_1, NODE_2, assert_refused, assert_status, block, from_snapshot,
    publish, unpublish, volume, with_latency,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_attach_or_detach_answer_causes_no_resend() {
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
        json!({ "kind": "garble", "how": "wrong_root", "effect": true }),
    ] {
        let (driver, id) = Driver::with_volume(1).await;
        for action in ["AttachVolume", "DetachVolume"] {
            driver.world.fault_once(action, &fault);
        }
        let context = driver.publish(&id, NODE_1).await.unwrap();
        assert_eq!(context["devicePath"], "/dev/xvdaa", "{fault}");
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert_eq!(driver.live("attachments"), 0, "{fault}");
        assert_eq!(
            (driver.world.calls("AttachVolume"), driver.world.calls("DetachVolume")),
            (1, 1),
            "{fault}"
        );
        driver.check_invariants();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_names_hidden_by_ec2_are_tried_once() {
    let scenario = json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a", "hidden_devices": ["/dev/xvdaa", "/dev/xvdab"] },
    ] });
    let (driver, id) = Driver::with_volume_in(1, scenario).await;
    assert_eq!(driver.publish(&id, NODE_1).await.unwrap()["devicePath"], "/dev/xvdac");
    let second = driver.created("pvc-2", 1).await;
    assert_eq!(driver.publish(&second, NODE_1).await.unwrap()["devicePath"], "/dev/xvdad");
    assert_eq!(driver.world.calls("AttachVolume"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_attaches_to_node_use_distinct_device_names() {
    let driver = Driver::in_world(with_latency("attach", 200)).await;
    let published = driver.publish_at_once(6, NODE_1).await;
    let names: BTreeSet<_> = published.iter().map(|(_, context)| &context["devicePath"]).collect();
    assert_eq!(names.len(), 6);
    assert_eq!(driver.world.calls("AttachVolume"), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_and_unpublish_supersede_each_other() {
    let slow =
        json!({ "latency": { "detach": { "fixed_ms": 1500 }, "attach": { "fixed_ms": 1500 } } });
    let (driver, id) = Driver::with_volume_in(1, slow).await;
    driver.publish(&id, NODE_1).await.unwrap();

    let early = async {
        driver.until_called("DetachVolume", 1).await;
        driver.publish(&id, NODE_1).await
    };
    let (detached, attached) = tokio::join!(driver.unpublish(&id, NODE_1), early);
    assert_eq!(detached.unwrap_err().code(), Code::Aborted);
    attached.unwrap();
    assert_eq!(driver.live("attachments"), 1);

    driver.unpublish(&id, NODE_1).await.unwrap();
    let attaches = driver.world.calls("AttachVolume");
    let late = async {
        driver.until_called("AttachVolume", attaches + 1).await;
        driver.unpublish(&id, NODE_1).await
    };
    let (attached, detached) = tokio::join!(driver.publish(&id, NODE_1), late);
    assert_eq!(attached.unwrap_err().code(), Code::Aborted);
    detached.unwrap();
    assert_eq!(driver.live("attachments"), 0);
    driver.check_invariants();
}

/// Dropping a call closes its stream: the service sees a cancelled call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_calls_are_carried_out_once() {
    let slow = json!({ "latency": {
        "attach": { "fixed_ms": 1000 },
        "detach": { "fixed_ms": 1000 },
        "modify": { "fixed_ms": 3000 },
    } });
    let (driver, id) = Driver::with_volume_in(1, slow).await;
    let limit = Duration::from_millis(300);
    timeout(limit, driver.publish(&id, NODE_1)).await.expect_err("the attach is slow");
    assert!(driver.publish(&id, NODE_1).await.unwrap().contains_key("devicePath"));
    timeout(limit, driver.unpublish(&id, NODE_1)).await.expect_err("the detach is slow");
    driver.unpublish(&id, NODE_1).await.unwrap();
    timeout(limit, driver.expand(&id, 2)).await.expect_err("the modification is slow");
    driver.expand(&id, 2).await.unwrap();
    for action in ["AttachVolume", "DetachVolume", "ModifyVolume"] {
        assert_eq!(driver.world.calls(action), 1, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_waits_for_a_detach_elsewhere() {
    let (driver, id) = Driver::with_volume_in(1, with_latency("detach", 1000)).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let then = async {
        driver.until_called("DetachVolume", 1).await;
        driver.publish(&id, NODE_2).await
    };
    let (detached, attached) = tokio::join!(driver.unpublish(&id, NODE_1), then);
    detached.unwrap();
    attached.unwrap();
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_in_use_stays_attached_until_released() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let stuck = json!({ "kind": "stuck_detach", "busy": true, "for_ms": 2500 });
    driver.world.fault_once("DetachVolume", &stuck);
    driver.call_until_overdue(800, unpublish(&id, NODE_1)).await;
    assert_eq!(driver.live("attachments"), 1);
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.live("attachments"), 0);
    assert_eq!(driver.world.calls("DetachVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_instance_does_not_block_unpublish() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    driver.world.power(NODE_1, "terminate");
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.live("attachments"), 0);
    assert_refused(driver.publish(&id, NODE_1).await, Code::NotFound, &[]);
    driver.publish(&id, NODE_2).await.unwrap();
}

/// DescribeInstances shows the attachment 700 ms before DescribeVolumes does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_publish_during_attach_skew_attaches_once() {
    let (driver, id) = Driver::with_volume_in(1, with_latency("attach", 800)).await;
    driver.world.fault(json!({ "match": { "action": "AttachVolume" }, "fault": { "kind": "skew_attach", "ms": 700 } }));
    driver.call_until_overdue(200, publish(&id, NODE_1)).await;
    driver.publish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("AttachVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_volume_is_attached_to_several_nodes() {
    let driver = Driver::new().await;
    let shared = volume("pvc-1", 10)
        .with_capability(block(Mode::MultiNodeMultiWriter))
        .with_parameters(&[("type", "io2"), ("iops", "1000")]);
    let id = driver.create(shared).await.unwrap().volume_id;
    for node in [NODE_1, NODE_2] {
        let mut request = publish(&id, node);
        request.volume_capability = Some(block(Mode::MultiNodeMultiWriter));
        driver.call(request).await.unwrap();
    }
    assert_eq!(driver.live("attachments"), 2);
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.live("attachments"), 1);
    driver.unpublish(&id, NODE_2).await.unwrap();
    assert_eq!(driver.live("attachments"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_to_full_instance_returns_resource_exhausted() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.world.fault(json!({ "match": { "action": "AttachVolume" }, "fault": {
        "kind": "error", "code": "AttachmentLimitExceeded", "status": 400, "message": "You may attach up to 27 devices for this instance type." } }));
    assert_refused(driver.publish(&id, NODE_1).await, Code::ResourceExhausted, &["27 devices"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_volumes_do_not_fail_parallel_unpublish() {
    let (driver, id) = Driver::with_volume_in(1, with_latency("detach", 600)).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let strangers = async {
        for n in 0..8 {
            driver.unpublish(&format!("vol-0000000000000{n:04x}"), NODE_1).await.unwrap();
        }
    };
    let (detached, ()) = tokio::join!(driver.unpublish(&id, NODE_1), strangers);
    detached.unwrap();
    assert_eq!(driver.live("attachments"), 0);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_attachment_state_is_never_read_as_detached() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    driver.world.deny("DescribeVolumes");
    assert_refused(driver.unpublish(&id, NODE_1).await, Code::PermissionDenied, &[]);
    // Without the facts, no DetachVolume is sent.
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    driver.world.clear_faults();
    let not_found = json!({ "kind": "error", "code": "InvalidAttachment.NotFound", "status": 400 });
    driver.world.fault_once("DetachVolume", &not_found);
    driver.call_until_overdue(1000, unpublish(&id, NODE_1)).await;
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.live("attachments"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_waits_for_restored_data_without_blocking_unpublish() {
    let (driver, source) =
        Driver::with_volume_in(1, with_latency("initialize_per_gib", 2000)).await;
    let snapshot = driver.ready_snapshot("s", &source).await;
    let request = volume("pvc-2", 1)
        .with_source(from_snapshot(&snapshot.snapshot_id))
        .with_parameters(&[("blockAttachUntilInitialized", "true")]);
    let restored = driver.create(request).await.unwrap();
    let mut request = publish(&restored.volume_id, NODE_1);
    request.volume_context = restored.volume_context;
    let then = async {
        driver.until_called("DescribeVolumeStatus", 1).await;
        driver.unpublish(&restored.volume_id, NODE_1).await
    };
    let (attached, detached) = tokio::join!(driver.call(request.clone()), then);
    assert_eq!(attached.unwrap_err().code(), Code::Aborted);
    detached.unwrap();
    driver.call(request).await.unwrap();
    assert_eq!(driver.live("attachments"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_of_empty_volume_waits_for_no_data() {
    // For an empty volume, DescribeVolumeStatus never reports on initialization.
    let driver = Driver::in_world(with_latency("initialize_per_gib", 86_400_000)).await;
    let request = volume("pvc-1", 1).with_parameters(&[("blockAttachUntilInitialized", "true")]);
    let made = driver.create(request).await.unwrap();
    let mut request = publish(&made.volume_id, NODE_1);
    request.volume_context = made.volume_context;
    assert!(!request.volume_context.is_empty());
    driver.call(request).await.unwrap();
    assert_eq!(driver.world.calls("DescribeVolumeStatus"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_controller_joins_running_attach_and_detach() {
    let slow =
        json!({ "latency": { "attach": { "fixed_ms": 1000 }, "detach": { "fixed_ms": 1000 } } });
    let (driver, id) = Driver::with_volume_in(1, slow).await;
    let other = driver.another().await;
    let (a, b) = tokio::join!(driver.publish(&id, NODE_1), async {
        driver.until_called("AttachVolume", 1).await;
        other.publish(&id, NODE_1).await
    });
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!(driver.world.calls("AttachVolume"), 1);
    let (a, b) = tokio::join!(driver.unpublish(&id, NODE_1), async {
        driver.until_called("DetachVolume", 1).await;
        other.unpublish(&id, NODE_1).await
    });
    a.unwrap();
    b.unwrap();
    assert_eq!(driver.world.calls("DetachVolume"), 1);
    // The calls run at once, without a read in between: EC2 accepts one, and the other sees the
    // attachment.
    let (a, b) = tokio::join!(driver.publish(&id, NODE_1), other.publish(&id, NODE_1));
    assert_eq!(a.unwrap(), b.unwrap());
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_unpublish_sends_no_second_detach() {
    let (driver, id) = Driver::with_volume(1).await;
    let other = driver.another().await;
    driver.publish(&id, NODE_1).await.unwrap();
    for _ in 0..2 {
        driver.unpublish(&id, NODE_1).await.unwrap();
    }
    assert_eq!(driver.world.calls("DetachVolume"), 1);
    other.publish(&id, NODE_1).await.unwrap();
    driver.unpublish(&id, NODE_1).await.unwrap();
    driver.publish(&id, NODE_1).await.unwrap();
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DetachVolume"), 3);
    assert_eq!(driver.live("attachments"), 0);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_abandoned_by_ec2_is_resent_within_publish() {
    let (driver, id) = Driver::with_volume_in(1, with_latency("attach", 3000)).await;
    let (attached, ()) = tokio::join!(driver.publish(&id, NODE_1), async {
        driver.until_called("AttachVolume", 1).await;
        // Long enough for a read to show the attachment in the state `attaching`.
        tokio::time::sleep(Duration::from_millis(700)).await;
        driver.world.force(&id, &json!({ "detached": NODE_1 }));
    });
    attached.unwrap();
    assert_eq!(driver.world.calls("AttachVolume"), 2);
    assert_eq!(driver.live("attachments"), 1);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loser_of_publish_race_is_told_holding_node() {
    let (driver, id) = Driver::with_volume_in(1, with_latency("attach", 500)).await;
    let other = driver.another().await;
    let (one, two) = tokio::join!(driver.publish(&id, NODE_1), other.publish(&id, NODE_2));
    let (refused, holder) = match (one, two) {
        (Ok(_), Err(refused)) => (refused, NODE_1),
        (Err(refused), Ok(_)) => (refused, NODE_2),
        both => panic!("{both:?}"),
    };
    assert_status(&refused, Code::FailedPrecondition, &[holder]);
    assert_eq!(driver.live("attachments"), 1);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_in_use_error_on_free_volume_retries() {
    let (driver, id) = Driver::with_volume(1).await;
    // EC2 shows no attachment: the volume was detached in the meantime.
    driver.world.fault_once("AttachVolume", &json!({
        "kind": "error", "code": "VolumeInUse", "status": 400, "message": "vol-x is already attached to an instance" }));
    driver.publish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("AttachVolume"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublish_never_calls_describe_instances() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let before = driver.world.calls("DescribeInstances");
    driver.world.deny("DescribeInstances");
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DescribeInstances"), before);
    assert_eq!(driver.live("attachments"), 0);
}
