//! Invalid requests are refused with the cause and change nothing.

use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use ebs_csi_proto::csi::{
    ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    DeleteVolumeRequest, ListSnapshotsRequest, VolumeCapability,
};
use serde_json::json;
use tonic::Code;

use crate::driver::{
    CreateRequest, Driver, NODE_1, NODE_2, NODE_B, assert_refused, assert_status, block,
    from_snapshot, from_volume, map, mount, publish, range, volume, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_create_names_cause_and_makes_no_volume() {
    use Code::{Aborted, InvalidArgument, NotFound, OutOfRange};
    let driver = Driver::new().await;
    let with = |parameters: &[(&str, &str)]| volume("pvc-1", 10).with_parameters(parameters);
    let mounted = |fs: &str, flags: &[&str]| {
        let mount = MountVolume {
            fs_type: fs.to_owned(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..Default::default()
        };
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter as i32 });
        volume("pvc-1", 1).with_capability(VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode,
        })
    };
    let from_volume = |id| volume("pvc-1", 1).with_source(from_volume(id));
    let without_capability =
        CreateVolumeRequest { volume_capabilities: Vec::new(), ..volume("pvc-1", 1) };
    let mutable = map(&[("colour", "red")]);
    let mutable = CreateVolumeRequest { mutable_parameters: mutable, ..volume("pvc-1", 1) };
    let sized = |required, limit| CreateVolumeRequest {
        capacity_range: range(required, limit),
        ..volume("pvc-1", 1)
    };
    let mut shared = mount();
    shared.access_mode = Some(AccessMode { mode: Mode::MultiNodeMultiWriter as i32 });
    let shared = volume("pvc-1", 1).with_capability(shared);
    let rows = [
        (volume("", 1), InvalidArgument, "name"),
        (without_capability, InvalidArgument, "volume_capabilities"),
        (mutable, InvalidArgument, "colour"),
        (with(&[("iops", "many")]), InvalidArgument, "iops: \"many\""),
        (with(&[("blockSize", "4096 -E x")]), InvalidArgument, "blocksize"),
        (
            with(&[("ext4ClusterSize", "16384")]),
            InvalidArgument,
            "ext4ClusterSize needs ext4BigAlloc",
        ),
        (
            with(&[("tagSpecification_1", "no-equals")]),
            InvalidArgument,
            "tagSpecification_1: \"no-equals\"",
        ),
        (with(&[("tagSpecification_1", "CSIVolumeName=mine")]), InvalidArgument, "CSIVolumeName"),
        (sized(2, 1), OutOfRange, "limit"),
        (sized(-1, 0), InvalidArgument, "required_bytes"),
        (shared, InvalidArgument, "MULTI_NODE_MULTI_WRITER is offered for raw block volumes only"),
        (volume("pvc-1", 1).with_source(from_snapshot("photo")), NotFound, "photo"),
        (with(&[("colour", "red")]), InvalidArgument, "colour"),
        (with(&[("iops", "1000"), ("iopsPerGB", "10")]), InvalidArgument, "iopsPerGB"),
        (with(&[("type", "gp9")]), InvalidArgument, "gp9"),
        (with(&[("type", "gp2"), ("iops", "4000")]), InvalidArgument, "iops"),
        (with(&[("type", "io2")]), InvalidArgument, "iops"),
        (with(&[("throughput", "5000")]), InvalidArgument, "hroughput"),
        (with(&[("bytesPerInode", "many!")]), InvalidArgument, "bytesperinode"),
        (with(&[("bytesPerInode", "100")]), InvalidArgument, "bytesPerInode is 100"),
        (with(&[("blockSize", "3000")]), InvalidArgument, "blockSize is 3000"),
        (with(&[("encrypted", "True")]), InvalidArgument, "encrypted: \"True\""),
        (with(&[("ext4BigAlloc", "yes")]), InvalidArgument, "ext4bigalloc: \"yes\""),
        (mounted("ntfs", &[]), InvalidArgument, "ntfs"),
        (mounted("ext4", &["noatime", "tls"]), InvalidArgument, "\"tls\""),
        (volume(&"x".repeat(257), 1), InvalidArgument, "longer than 256 characters"),
        (with(&[("tagSpecification_1", "kubernetes.io/x=1")]), InvalidArgument, "kubernetes.io/x"),
        (with(&[("tagSpecification_1", "a={{ .Nope }}")]), InvalidArgument, "Nope"),
        (
            volume("pvc-1", 1).with_capability(block(Mode::MultiNodeMultiWriter)),
            InvalidArgument,
            "io2",
        ),
        (volume("pvc-1", 1).in_zone("mars-1a"), InvalidArgument, "mars-1a"),
        (
            volume("pvc-1", 1).with_source(from_snapshot("snap-0123456789abcdef0")),
            Aborted,
            "snap-0123456789abcdef0",
        ),
        (from_volume("vol-0123456789abcdef0"), Aborted, "vol-0123456789abcdef0"),
        (from_volume("nonsense"), NotFound, "nonsense"),
        (
            volume("pvc-1", 65_537),
            OutOfRange,
            "capacity_range.required_bytes: 65537 GiB are asked for, and no EBS volume is larger than 65536 GiB; ask for less",
        ),
        (volume("pvc-1", 1 << 32), OutOfRange, "required_bytes"),
        (
            volume("pvc-1", 16_385).with_parameters(&[("type", "gp2")]),
            OutOfRange,
            "maximum is 16384GiB; change the size that capacity_range asks for",
        ),
        (
            volume("pvc-1", 1).with_parameters(&[("type", "io1"), ("iops", "100")]),
            OutOfRange,
            "at least 4 GiB",
        ),
    ];
    for (request, code, word) in rows {
        assert_refused(driver.create(request).await, code, &[word]);
    }
    assert_eq!(driver.live("volumes"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expand_beyond_ebs_or_type_maximum_is_refused() {
    let driver = Driver::new().await;
    let request = volume("pvc-1", 1).with_parameters(&[("type", "gp2")]);
    let id = driver.create(request).await.unwrap().volume_id;
    for (gib, calls, word) in [
        (65_537, 0, "no EBS volume is larger than 65536 GiB"),
        (16_385, 1, "maximum is 16384GiB; change the size"),
    ] {
        assert_refused(driver.expand(&id, gib).await, Code::OutOfRange, &[word]);
        assert_eq!(driver.world.calls("ModifyVolume"), calls);
    }
    assert_eq!(driver.expand(&id, 2).await.unwrap().capacity_bytes, 2 << 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_request_names_cause_and_changes_no_volume() {
    use Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound, OutOfRange};
    const UNKNOWN: &str = "i-0123456789abcdef0";
    let (driver, id) = Driver::with_volume(10).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let before = driver.world.get("/v1/state")["realms"][0]["volumes"].clone();

    let without_capability =
        ControllerPublishVolumeRequest { volume_capability: None, ..publish(&id, NODE_1) };
    for (request, code, words) in [
        (publish("", NODE_1), InvalidArgument, &["volume_id"][..]),
        (publish(&id, ""), InvalidArgument, &["node_id"]),
        (without_capability, InvalidArgument, &["volume_capability"]),
        (publish(&id, "my-laptop"), NotFound, &["my-laptop"]),
        (publish(&id, UNKNOWN), FailedPrecondition, &[UNKNOWN, NODE_1]),
        (publish(&id, NODE_2), FailedPrecondition, &[NODE_1]),
    ] {
        assert_refused(driver.call(request).await, code, words);
    }
    let delete = |id: &str| DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    assert_refused(driver.call(delete("")).await, InvalidArgument, &["volume_id"]);
    assert_refused(driver.call(delete(&id)).await, FailedPrecondition, &[&id, NODE_1]);

    let expand = |capacity_range| ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range,
        ..Default::default()
    };
    assert_refused(driver.call(expand(None)).await, InvalidArgument, &["capacity_range"]);
    assert_refused(driver.call(expand(range(12, 11))).await, OutOfRange, &["limit"]);
    for (key, value, word) in [
        ("colour", "red", "colour"),
        ("iops", "many", "iops"),
        ("tagDeletion_1", "CSIVolumeName", "CSIVolumeName"),
    ] {
        assert_refused(driver.modify(&id, &[(key, value)]).await, InvalidArgument, &[word]);
    }
    for (name, source, class, word) in [
        ("", &*id, None, "name"),
        ("s", "", None, "source_volume_id"),
        ("s", &id, Some("colour"), "colour"),
        ("s", &id, Some("outpostArn"), "outpostArn"),
    ] {
        let class: Vec<_> = class.map(|key| (key, "x")).into_iter().collect();
        let status = driver.snapshot_of_class(name, source, &class).await.unwrap_err();
        assert_status(&status, InvalidArgument, &[word]);
    }
    let list = |max_entries, token: &str| ListSnapshotsRequest {
        max_entries,
        starting_token: token.to_owned(),
        ..Default::default()
    };
    assert_refused(driver.call(list(-1, "")).await, InvalidArgument, &["max_entries"]);
    assert_refused(driver.call(list(0, "no-token")).await, Aborted, &["token"]);
    assert_eq!(driver.world.get("/v1/state")["realms"][0]["volumes"], before);
    assert_eq!(driver.live("snapshots"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_ids_are_gone_or_not_found() {
    let driver = Driver::new().await;
    let calls = || driver.world.get("/v1/statistics")["totals"]["calls"].as_u64().unwrap();
    let before = calls();
    // An id that EC2 cannot have issued is answered without a call, so it does not fail a batch
    // with other ids.
    for id in ["nonsense", "vol-0123456789abcdef0"] {
        assert_eq!(calls(), before, "{id}");
        driver.delete(id).await.unwrap();
        driver.unpublish(id, NODE_1).await.unwrap();
        driver.unpublish(id, "nonsense").await.unwrap();
        for refused in [
            driver.publish(id, NODE_1).await.map(drop),
            driver.expand(id, 1).await.map(drop),
            driver.modify(id, &[("iops", "3001")]).await,
            driver.snapshot("s", id).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::NotFound, "{id}");
        }
    }
    let id = driver.created("pvc-1", 1).await;
    for node in ["nonsense", "i-0fffffffffffffff1"] {
        let refused = driver.publish(&id, node).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{node}: {refused}");
        driver.unpublish(&id, node).await.unwrap();
    }
    let mut empty = publish(&id, NODE_1);
    empty.volume_capability = None;
    assert_eq!(driver.call(empty).await.unwrap_err().code(), Code::InvalidArgument);
    assert_refused(driver.publish(&id, NODE_B).await, Code::InvalidArgument, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_permission_is_named_and_outage_is_retryable() {
    let driver = Driver::new().await;
    driver.world.deny("CreateVolume");
    let refused = driver.create(volume("pvc-1", 1)).await.unwrap_err();
    // No refusal is final before 75 s.
    assert_status(&refused, Code::Aborted, &["ec2:CreateVolume", "IAM"]);
    driver.world.clear_faults();
    driver.world.post("/v1/outage", &json!({ "for_ms": 3000 }));
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
