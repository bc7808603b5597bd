//! One volume for each name, whatever EC2 and the network do.

use std::time::Duration;

use ebs_csi_proto::csi;

use serde_json::json;
use tonic::Code;

use crate::driver::{
    CreateRequest, Driver, NODE_1, assert_refused, assert_status, from_snapshot, from_volume, map,
    range, volume, with_latency,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_create_answer_never_creates_second_volume() {
    for fault in [
        json!({ "kind": "lose_reply", "how": "close", "effect": true }),
        json!({ "kind": "lose_reply", "how": "reset", "effect": true }),
        json!({ "kind": "lose_reply", "how": "close", "effect": false }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "effect": true }),
        json!({ "kind": "error", "code": "InternalError", "status": 500, "body": "html" }),
        json!({ "kind": "garble", "how": "cut", "effect": true }),
        json!({ "kind": "garble", "how": "unparsable", "effect": true }),
        json!({ "kind": "garble", "how": "short", "effect": true }),
    ] {
        let driver = Driver::new().await;
        driver.world.fault_once("CreateVolume", &fault);
        let mut made = driver.create(volume("pvc-1", 1)).await;
        if let Err(status) = &made {
            assert!(
                matches!(status.code(), Code::Aborted | Code::Unavailable),
                "{fault}: {status}"
            );
            made = driver.create(volume("pvc-1", 1)).await;
        }
        assert!(made.is_ok(), "{fault}: {made:?}");
        assert_eq!(driver.live("volumes"), 1, "{fault}");
        driver.check_invariants();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_creates_for_name_return_same_volume() {
    let driver = Driver::in_world(with_latency("volume_create", 300)).await;
    let (a, b, c) = tokio::join!(
        driver.create(volume("pvc-1", 1)),
        driver.create(volume("pvc-1", 1)),
        driver.create(volume("pvc-1", 1))
    );
    let id = a.unwrap().volume_id;
    assert_eq!((b.unwrap().volume_id, c.unwrap().volume_id), (id.clone(), id));
    assert_eq!((driver.world.calls("CreateVolume"), driver.live("volumes")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_continues_after_caller_gives_up() {
    let driver = Driver::in_world(with_latency("volume_create", 1500)).await;
    driver.call_until_overdue(400, volume("pvc-1", 1)).await;
    assert_eq!(driver.controller.operations(), 1);
    driver.create(volume("pvc-1", 1)).await.unwrap();
    assert_eq!((driver.world.calls("CreateVolume"), driver.live("volumes")), (1, 1));
    assert_eq!(driver.controller.operations(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reused_name_with_other_size_or_zone_fails() {
    let driver = Driver::new().await;
    let first = driver.create(volume("pvc-1", 4)).await.unwrap();
    let larger = driver.create(volume("pvc-1", 8)).await.unwrap_err();
    assert_status(&larger, Code::AlreadyExists, &[&first.volume_id]);
    let elsewhere = volume("pvc-1", 4).in_zone("us-east-1b");
    assert_eq!(driver.create(elsewhere).await.unwrap_err().code(), Code::AlreadyExists);
    // Different tags make the parameters differ under the same token, so EC2 sees another request;
    // the driver still finds the volume of the name.
    let tagged = volume("pvc-1", 4).with_parameters(&[("tagSpecification_1", "team=shop")]);
    assert_eq!(driver.create(tagged).await.unwrap().volume_id, first.volume_id);
    assert_eq!(driver.live("volumes"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_volume_with_same_name_is_used() {
    let driver = Driver::new().await;
    let older = driver.world.volume("pvc-1").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    driver.world.volume("pvc-1").await;
    driver.world.refuse("CreateVolume", "VolumeLimitExceeded", 400);
    let taken = driver.create(volume("pvc-1", 4)).await.unwrap();
    assert_eq!(taken.volume_id, older.id.to_string());
    // For a name without a volume, the same refusal is a real quota error.
    assert_refused(driver.create(volume("pvc-2", 4)).await, Code::Aborted, &["quota"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_token_of_failed_creation_is_skipped() {
    for outcome in ["vanish", "error"] {
        let driver = Driver::new().await;
        let fault = json!({ "kind": "fail_create", "outcome": outcome, "after_ms": 50 });
        driver.world.fault_once("CreateVolume", &fault);
        let failed = driver.create(volume("pvc-1", 1)).await.unwrap_err();
        assert_eq!(failed.code(), Code::Internal, "{outcome}: {failed}");
        driver.create(volume("pvc-1", 1)).await.unwrap();
        assert_eq!(driver.live("volumes"), 1, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_token_of_deleted_volume_is_skipped() {
    let (driver, first) = Driver::with_volume(1).await;
    driver.delete(&first).await.unwrap();
    assert_ne!(driver.created("pvc-1", 1).await, first);
    assert_eq!(driver.live("volumes"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_volume_operations_succeed_after_retries() {
    let driver = Driver::new().await;
    driver.world.fault(json!({ "match": { "action": "*" }, "every": 2, "count": 6, "fault": { "kind": "throttle" } }));
    let id = driver.created("pvc-1", 1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    driver.unpublish(&id, NODE_1).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_volume_has_tags_and_context_of_class() {
    let driver = Driver::new().await;
    let request = volume("pvc-1", 10).with_parameters(&[
        ("Type", "gp3"),
        ("iopsPerGB", "500"),
        ("allowAutoIOPSPerGBIncrease", "true"),
        ("throughput", "200"),
        ("encrypted", "true"),
        ("blockSize", "4096"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "shop"),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ("tagSpecification_1", "owner={{ .PVCNamespace | toUpper }}/{{ .PVCName }}"),
    ]);
    let made = driver.create(request).await.unwrap();
    assert_eq!(made.volume_context, map(&[("blocksize", "4096")]));
    let volume = driver.look(&made.volume_id).await;
    assert_eq!((volume.iops, volume.throughput, volume.encrypted), (Some(5000), Some(200), true));
    let tags: Vec<_> = volume.tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        tags,
        [
            ("CSIVolumeName", "pvc-1"),
            ("KubernetesCluster", "test"),
            ("Name", "test-dynamic-pvc-1"),
            ("ebs.csi.aws.com/IOPSPerGb", "500"),
            ("ebs.csi.aws.com/cluster", "true"),
            ("ebs.csi.aws.com/cluster-name", "test"),
            ("kubernetes.io/cluster/test", "owned"),
            ("kubernetes.io/created-for/pv/name", "pvc-1"),
            ("kubernetes.io/created-for/pvc/name", "data"),
            ("kubernetes.io/created-for/pvc/namespace", "shop"),
            ("owner", "SHOP/data"),
        ]
    );
}

/// The Go driver, which sends the same parameters, continues such a create after a rollback. It
/// cannot restore an encrypted snapshot for such a class.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_sends_encrypted_as_go_driver() {
    let driver = Driver::new().await;
    for (encrypted, sent) in [("false", json!("false")), ("true", json!(null))] {
        let source = volume(encrypted, 1).with_parameters(&[("encrypted", encrypted)]);
        let source = driver.create(source).await.unwrap().volume_id;
        let snapshot = driver.ready_snapshot(encrypted, &source).await.snapshot_id;
        let restore = volume(&format!("of-{encrypted}"), 1).with_source(from_snapshot(&snapshot));
        driver.create(restore).await.unwrap();
        let last = driver.world.requests("CreateVolume").pop().unwrap();
        assert_eq!(last["Encrypted"], sent, "{last}");
    }
}

/// EC2's ratio of IOPS to GiB would allow less than gp3 always has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn iops_of_small_gp3_are_capped_at_3000() {
    let driver = Driver::new().await;
    for (gib, key, value) in [
        (1, "iopsPerGB", "3001"),
        (4, "iops", "5000"),
        (4, "iopsPerGB", "1500"),
        (5, "iops", "4000"),
    ] {
        let name = format!("pvc-{gib}-{value}");
        let request = volume(&name, gib).with_parameters(&[("type", "gp3"), (key, value)]);
        let id = driver.create(request).await.unwrap().volume_id;
        assert_eq!(driver.look(&id).await.iops, Some(3000), "{gib} {value}");
        driver.modify(&id, &[("iops", "5000")]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_zone_is_chosen_and_zone_id_resolved() {
    let driver = Driver::new().await;
    let anywhere =
        csi::CreateVolumeRequest { accessibility_requirements: None, ..volume("pvc-1", 1) };
    let made = driver.create(anywhere.clone()).await.unwrap();
    let zone = &made.accessible_topology[0].segments["topology.kubernetes.io/zone"];
    assert!(zone.starts_with("us-east-1"), "{zone}");
    assert_eq!(driver.create(anywhere).await.unwrap().volume_id, made.volume_id);
    let mut by_id = volume("pvc-2", 1).with_topology(&[("topology.k8s.aws/zone-id", "use1-az1")]);
    by_id.accessibility_requirements.as_mut().unwrap().preferred.clear();
    let made = driver.create(by_id).await.unwrap();
    assert_eq!(made.accessible_topology[0].segments["topology.kubernetes.io/zone"], "us-east-1b");
}

/// A denied DescribeVolumes never means that no volume of the name exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_aborts_if_lookup_by_name_is_denied() {
    let (driver, _) = Driver::with_volume(1).await;
    driver.world.deny("DescribeVolumes");
    let larger = driver.create(volume("pvc-1", 8)).await.unwrap_err();
    assert_status(&larger, Code::Aborted, &["ec2:DescribeVolumes"]);
    let wrong = volume("pvc-1", 1).with_parameters(&[("type", "gp9")]);
    assert_eq!(driver.create(wrong).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(driver.live("volumes"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_client_tokens_match_go_driver() {
    let driver = Driver::new().await;
    let fault = json!({ "kind": "fail_create", "outcome": "error", "after_ms": 50 });
    driver.world.fault_once("CreateVolume", &fault);
    driver.create(volume("pvc-0001", 1)).await.unwrap_err();
    driver.create(volume("pvc-0001", 1)).await.unwrap();
    let [first, second] = <[_; 2]>::try_from(driver.world.requests("CreateVolume")).unwrap();
    let tokens = [first["ClientToken"].as_str().unwrap(), second["ClientToken"].as_str().unwrap()];
    assert_eq!(
        tokens,
        [
            "a0c428246c73d0353af51551b47726e4b434656a2d5c93ab1f83d0928ee0a8ef",
            "559c18fe6459004b14980e7ccebb280e759977f7c374c1956a9c9aa925f8d358",
        ]
    );
}

/// The answer to CopyVolumes was lost, so the retry looks by name. A name that was never copied
/// gets NOT_FOUND.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_is_found_after_source_is_deleted() {
    let (driver, source) = Driver::with_volume(1).await;
    let copy = |name: &str| volume(name, 1).with_source(from_volume(&source));
    driver.world.fault(json!({ "match": { "action": "CopyVolumes" }, "fault": {
        "kind": "lose_reply", "how": "close", "effect": true } }));
    let lost = driver.create(copy("pvc-2")).await.unwrap_err();
    assert!(matches!(lost.code(), Code::Aborted | Code::Unavailable), "{lost}");
    driver.world.clear_faults();
    driver.delete(&source).await.unwrap();
    let found = driver.create(copy("pvc-2")).await.unwrap();
    assert_ne!(found.volume_id, source);
    assert_eq!(driver.live("volumes"), 1);
    // Nothing shows whether another process made a copy of this name: NOT_FOUND would be final.
    assert_refused(driver.create(copy("pvc-3")).await, Code::Aborted, &["does not exist"]);
}

/// The class's own key may be given by ARN, id or alias; each repeated create finds its copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_is_encrypted_as_class_asks() {
    let id = "1234abcd-12ab-34cd-56ef-1234567890ab";
    let arn = format!("arn:aws:kms:us-east-1:111122223333:key/{id}");
    let (driver, plain) = Driver::with_volume(1).await;
    let with_key = [("encrypted", "true"), ("kmsKeyId", arn.as_str())];
    let request = volume("pvc-2", 1).with_parameters(&with_key);
    let encrypted = driver.create(request).await.unwrap().volume_id;
    for (n, (source, key, shown)) in [
        (&plain, None, None),
        (&plain, Some(arn.as_str()), Some(arn.as_str())),
        (&encrypted, None, Some(arn.as_str())),
        (&encrypted, Some(arn.as_str()), Some(arn.as_str())),
        (&encrypted, Some(id), Some(arn.as_str())),
        (&encrypted, Some("alias/a"), Some("arn:aws:kms:us-east-1:111122223333:key/of-alias-a")),
        (&plain, Some("alias/a"), Some("arn:aws:kms:us-east-1:111122223333:key/of-alias-a")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut class = vec![("encrypted", "true")];
        class.extend(key.map(|key| ("kmsKeyId", key)));
        let copy = volume(&format!("copy-{n}"), 1).with_source(from_volume(source));
        let copy = copy.with_parameters(&class);
        let made = driver.create(copy.clone()).await.unwrap().volume_id;
        let volume = driver.look(&made).await;
        assert_eq!((volume.encrypted, volume.kms_key_id.as_deref()), (true, shown), "{n}");
        let repeated = driver.another().await.create(copy).await.unwrap();
        assert_eq!(repeated.volume_id, made, "{n}");
        driver.delete(&made).await.unwrap();
    }
    assert_eq!(driver.live("volumes"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_with_other_encryption_is_deleted_and_refused() {
    let (driver, source) = Driver::with_volume(1).await;
    let copies = json!({ "action": "CopyVolumes" });
    driver.world.fault(json!({ "match": copies, "fault": { "kind": "keep_source_key" } }));
    let copy = |name: &str| volume(name, 1).with_source(from_volume(&source));
    let encrypted = copy("pvc-2").with_parameters(&[("encrypted", "true")]);
    for _ in 0..2 {
        let refused = driver.create(encrypted.clone()).await.unwrap_err();
        assert_status(&refused, Code::InvalidArgument, &["is not encrypted", "deleted it"]);
        assert_eq!((driver.live("volumes"), driver.world.calls("CopyVolumes")), (1, 1));
    }
    driver.create(copy("pvc-3")).await.unwrap();
}

/// A source that cannot be read may exist, so NOT_FOUND would be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_aborts_if_source_lookup_is_denied() {
    let (driver, source) = Driver::with_volume(1).await;
    driver.world.deny("DescribeVolumes");
    let request = volume("pvc-2", 1).with_source(from_volume(&source));
    assert_refused(driver.create(request).await, Code::Aborted, &["ec2:DescribeVolumes"]);
}

/// The driver learns the maximum from one dry run of CreateVolume, tagged like a real call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zone_iops_maximum_is_read_once_when_needed() {
    let driver = Driver::new().await;
    let with = |name: &str, iops: &str| volume(name, 1000).with_parameters(&[("iops", iops)]);
    driver.create(with("pvc-1", "16000")).await.unwrap();
    assert_eq!(driver.world.calls("CreateVolume"), 1);
    let (a, b, c) = tokio::join!(
        driver.create(with("pvc-2", "70000")),
        driver.create(with("pvc-3", "70000")),
        driver.create(with("pvc-4", "99999"))
    );
    let mut got = Vec::new();
    for made in [a.unwrap(), b.unwrap(), c.unwrap()] {
        got.push(driver.look(&made.volume_id).await.iops);
    }
    // gp3 allows 80,000 at most.
    assert_eq!(got, [Some(70_000), Some(70_000), Some(80_000)]);
    let sent = driver.world.requests("CreateVolume");
    let dry: Vec<_> = sent.iter().filter(|parameters| parameters["DryRun"] == "true").collect();
    assert_eq!((sent.len(), dry.len()), (5, 1));
    // The dry run has the tags of a real call; otherwise an IAM policy that requires tags refuses
    // it.
    let parameters = dry[0].to_string();
    assert!(parameters.contains("ebs.csi.aws.com/cluster-name"), "{parameters}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_volume_has_rate_key_and_snapshot_size() {
    let (driver, source) = Driver::with_volume(4).await;
    let snapshot = driver.ready_snapshot("s", &source).await.snapshot_id;
    let restore = |name: &str, parameters: &[(&str, &str)]| {
        volume(name, 2).with_source(from_snapshot(&snapshot)).with_parameters(parameters)
    };
    let key = "arn:aws:kms:us-east-1:111122223333:key/11111111-2222-3333-4444-555555555555";
    let parameters =
        [("volumeInitializationRate", "200"), ("kmsKeyId", key), ("encrypted", "false")];
    let made = driver.create(restore("pvc-2", &parameters)).await.unwrap();
    assert_eq!(made.capacity_bytes, 4 << 30);
    let sent = driver.world.requests("CreateVolume").pop().unwrap();
    for (name, value) in
        [("VolumeInitializationRate", "200"), ("KmsKeyId", key), ("Encrypted", "true")]
    {
        assert_eq!(sent[name], value, "{sent}");
    }
    // A repeated create returns the same volume, although it is larger than requested.
    let again = driver.create(restore("pvc-2", &parameters)).await.unwrap();
    assert_eq!(again.volume_id, made.volume_id);
    let small = csi::CreateVolumeRequest { capacity_range: range(2, 3), ..restore("pvc-3", &[]) };
    assert_eq!(driver.create(small).await.unwrap_err().code(), Code::OutOfRange);
    // Without a source there is nothing to initialize.
    let request = volume("pvc-4", 4).with_parameters(&parameters);
    let refused = driver.create(request).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["VolumeInitializationRate"]);
}
