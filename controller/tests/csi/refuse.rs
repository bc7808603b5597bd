//! Invalid requests are refused with the cause and change nothing.

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use serde_json::json;
use tonic::Code;

use crate::driver::{
    Driver, NODE_1, NODE_B, assert_status, block, from_snapshot, from_volume, in_zone, map,
    publish, volume, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_create_names_cause_and_makes_no_volume() {
    let driver = Driver::new().await;
    let with = |parameters: &[(&str, &str)]| csi::CreateVolumeRequest {
        parameters: map(parameters),
        ..volume("pvc-1", 10)
    };
    let rows = [
        (with(&[("colour", "red")]), Code::InvalidArgument, "colour"),
        (with(&[("iops", "1000"), ("iopsPerGB", "10")]), Code::InvalidArgument, "iopsPerGB"),
        (with(&[("type", "gp9")]), Code::InvalidArgument, "gp9"),
        (with(&[("type", "gp2"), ("iops", "4000")]), Code::InvalidArgument, "iops"),
        (with(&[("type", "io2")]), Code::InvalidArgument, "iops"),
        (with(&[("throughput", "5000")]), Code::InvalidArgument, "hroughput"),
        (with(&[("bytesPerInode", "many!")]), Code::InvalidArgument, "bytesperinode"),
        (
            with(&[("tagSpecification_1", "kubernetes.io/x=1")]),
            Code::InvalidArgument,
            "kubernetes.io/x",
        ),
        (with(&[("tagSpecification_1", "a={{ .Nope }}")]), Code::InvalidArgument, "Nope"),
        (
            csi::CreateVolumeRequest {
                volume_capabilities: vec![block(Mode::MultiNodeMultiWriter)],
                ..volume("pvc-1", 1)
            },
            Code::InvalidArgument,
            "io2",
        ),
        (
            csi::CreateVolumeRequest {
                accessibility_requirements: Some(in_zone("mars-1a")),
                ..volume("pvc-1", 1)
            },
            Code::InvalidArgument,
            "mars-1a",
        ),
        (
            csi::CreateVolumeRequest {
                volume_content_source: Some(from_snapshot("snap-0123456789abcdef0")),
                ..volume("pvc-1", 1)
            },
            Code::Aborted,
            "snap-0123456789abcdef0",
        ),
        (
            csi::CreateVolumeRequest {
                volume_content_source: Some(from_volume("vol-0123456789abcdef0")),
                ..volume("pvc-1", 1)
            },
            Code::Aborted,
            "vol-0123456789abcdef0",
        ),
        (
            csi::CreateVolumeRequest {
                volume_content_source: Some(from_volume("nonsense")),
                ..volume("pvc-1", 1)
            },
            Code::NotFound,
            "nonsense",
        ),
        (
            volume("pvc-1", 65_537),
            Code::OutOfRange,
            "capacity_range.required_bytes: 65537 GiB are asked for, and no EBS volume is larger than 65536 GiB; ask for less",
        ),
        (volume("pvc-1", 1 << 32), Code::OutOfRange, "required_bytes"),
        (
            csi::CreateVolumeRequest {
                parameters: map(&[("type", "gp2")]),
                ..volume("pvc-1", 16_385)
            },
            Code::OutOfRange,
            "maximum is 16384GiB; change the size that capacity_range asks for",
        ),
        (
            csi::CreateVolumeRequest {
                parameters: map(&[("type", "io1"), ("iops", "100")]),
                ..volume("pvc-1", 1)
            },
            Code::OutOfRange,
            "at least 4 GiB",
        ),
    ];
    for (request, code, word) in rows {
        let status = driver.create(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{word}: {status}");
        assert!(status.message().contains(word), "{word}: {status}");
    }
    assert_eq!(driver.live("volumes"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expand_beyond_ebs_or_type_maximum_is_refused() {
    let driver = Driver::new().await;
    let request =
        csi::CreateVolumeRequest { parameters: map(&[("type", "gp2")]), ..volume("pvc-1", 1) };
    let id = driver.create(request).await.unwrap().volume_id;
    for (gib, calls, word) in [
        (65_537, 0, "no EBS volume is larger than 65536 GiB"),
        (16_385, 1, "maximum is 16384GiB; change the size"),
    ] {
        let refused = driver.expand(&id, gib).await.unwrap_err();
        assert_status(&refused, Code::OutOfRange, &[word]);
        assert_eq!(driver.world.calls("ModifyVolume"), calls);
    }
    assert_eq!(driver.expand(&id, 2).await.unwrap().capacity_bytes, 2 << 30);
}

/// Delete and unpublish succeed; publish, expand, modify and snapshot are NotFound. EC2 is not
/// called for an id that it cannot have issued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_ids_are_gone_or_not_found() {
    let driver = Driver::new().await;
    let asked = || {
        let all = driver.world.command(|control| control.get("/v1/statistics"));
        all["totals"]["calls"].as_u64().unwrap()
    };
    let before = asked();
    // An id that EC2 cannot have issued is answered without a call, so it does not fail a batch
    // with other ids.
    for id in ["nonsense", "vol-0123456789abcdef0"] {
        assert_eq!(asked(), before, "{id}");
        driver.delete(id).await.unwrap();
        driver.unpublish(id, NODE_1).await.unwrap();
        driver.unpublish(id, "nonsense").await.unwrap();
        assert_eq!(driver.publish(id, NODE_1).await.unwrap_err().code(), Code::NotFound, "{id}");
        assert_eq!(driver.expand(id, 1).await.unwrap_err().code(), Code::NotFound, "{id}");
        assert_eq!(
            driver.modify(id, &[("iops", "3001")]).await.unwrap_err().code(),
            Code::NotFound,
            "{id}"
        );
        assert_eq!(driver.snapshot("s", id).await.unwrap_err().code(), Code::NotFound, "{id}");
    }
    let made = driver.create(volume("pvc-1", 1)).await.unwrap();
    for node in ["nonsense", "i-0fffffffffffffff1"] {
        assert_eq!(
            driver.publish(&made.volume_id, node).await.unwrap_err().code(),
            Code::NotFound,
            "{node}"
        );
        driver.unpublish(&made.volume_id, node).await.unwrap();
    }
    let mut empty = publish(&made.volume_id, NODE_1);
    empty.volume_capability = None;
    let status =
        driver.client.clone().controller_publish_volume(within(empty, 5)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let elsewhere = driver.publish(&made.volume_id, NODE_B).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::InvalidArgument, "{elsewhere}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_permission_is_named_and_outage_is_retryable() {
    let driver = Driver::new().await;
    driver.world.fault(json!({ "match": { "action": "CreateVolume" }, "fault": {
        "kind": "error", "code": "UnauthorizedOperation", "status": 403, "message": "You are not authorized to perform this operation." } }));
    let refused = driver.create(volume("pvc-1", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "not final before 75 s");
    assert!(
        refused.message().contains("ec2:CreateVolume") && refused.message().contains("IAM"),
        "{refused}"
    );
    driver.world.clear_faults();
    driver.world.command(|control| control.post("/v1/outage", &json!({ "for_ms": 3000 })));
    let mut request = within(volume("pvc-1", 1), 30);
    request.set_timeout(std::time::Duration::from_millis(1500));
    let down = driver.client.clone().create_volume(request).await.unwrap_err();
    assert!(
        matches!(down.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Aborted),
        "{down}"
    );
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    driver.create(volume("pvc-1", 1)).await.unwrap();
    assert_eq!(driver.live("volumes"), 1);
}
