//! Where a volume is placed: zones, Outposts, and the behaviour when a place has no capacity.

use ebs_csi_proto::csi;
use serde_json::{Value, json};
use tonic::Code;

use crate::driver::{
    CreateRequest, Driver, assert_refused, assert_status, from_volume, map, volume,
};

const OUTPOST: &str = "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1";

/// Checks that the last CreateVolume was for the Outpost and its zone.
fn assert_created_on_outpost(driver: &Driver) {
    let sent = driver.world.requests("CreateVolume").pop().unwrap();
    assert_eq!(sent["OutpostArn"], OUTPOST);
    assert_eq!(sent["AvailabilityZone"], "us-east-1b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_zone_key_is_answered_with_standard_key() {
    let driver = Driver::new().await;
    for (n, (key, value)) in [
        ("topology.kubernetes.io/zone", "us-east-1b"),
        ("topology.ebs.csi.aws.com/zone", "us-east-1b"),
        ("topology.k8s.aws/zone-id", "use1-az1"),
    ]
    .into_iter()
    .enumerate()
    {
        let request = volume(&format!("pvc-{n}"), 1).with_topology(&[(key, value)]);
        let made = driver.create(request).await.unwrap();
        let [answered] = <[_; 1]>::try_from(made.accessible_topology).unwrap();
        assert_eq!(
            answered.segments,
            map(&[("topology.kubernetes.io/zone", "us-east-1b")]),
            "{key}"
        );
        // A copy may name its source's zone by either key.
        let copy = volume(&format!("copy-{n}"), 1).with_topology(&[(key, value)]);
        driver.create(copy.with_source(from_volume(&made.volume_id))).await.unwrap();
    }
    let both = volume("pvc-9", 1).with_topology(&[
        ("topology.kubernetes.io/zone", "us-east-1b"),
        ("topology.k8s.aws/zone-id", "use1-az1"),
    ]);
    assert_refused(driver.create(both).await, Code::InvalidArgument, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outpost_segments_or_arn_are_answered_by_segments() {
    let driver = Driver::in_world(json!({ "instances": [
        { "id": "i-0aaaaaaaaaaaaaaa1", "type": "m5.large", "zone": "us-east-1a" },
        { "id": "i-0bbbbbbbbbbbbbbb1", "type": "m5.large", "zone": "us-east-1b", "outpost": OUTPOST },
    ] }))
    .await;
    let segments = [
        ("topology.kubernetes.io/zone", "us-east-1b"),
        ("topology.ebs.csi.aws.com/region", "us-east-1"),
        ("topology.ebs.csi.aws.com/partition", "aws"),
        ("topology.ebs.csi.aws.com/account-id", "111122223333"),
        ("topology.ebs.csi.aws.com/outpost-id", "op-0aaaaaaaaaaaaaaa1"),
    ];
    let arn_alone = [("topology.ebs.csi.aws.com/outpost-id", OUTPOST)];
    for (n, term) in [&segments[..], &arn_alone[..]].into_iter().enumerate() {
        let request = volume(&format!("pvc-{n}"), 1).with_topology(term);
        let made = driver.create(request.clone()).await.unwrap();
        assert_eq!(made.accessible_topology[0].segments, map(&segments), "{term:?}");
        assert_eq!(driver.create(request).await.unwrap(), made);
        assert_created_on_outpost(&driver);
    }
    let nowhere = OUTPOST.replace("op-0a", "op-0b");
    let segment = ("topology.ebs.csi.aws.com/outpost-id", nowhere.as_str());
    let request = volume("pvc-9", 1).with_topology(&[segment]);
    let refused = driver.create(request).await.unwrap_err();
    assert_status(&refused, Code::InvalidArgument, &["name the zone beside it"]);
    assert_eq!(driver.live("volumes"), 2);
    // Every request gave the account and the Region, so STS was not called.
    assert_eq!(driver.world.calls("GetCallerIdentity"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outpost_id_alone_takes_account_from_sts() {
    let driver = Driver::in_world(json!({ "instances": [
        { "id": "i-0bbbbbbbbbbbbbbb1", "type": "m5.large", "zone": "us-east-1b", "outpost": OUTPOST },
    ] }))
    .await;
    let segment = ("topology.ebs.csi.aws.com/outpost-id", "op-0aaaaaaaaaaaaaaa1");
    let request = || volume("pvc-1", 1).with_topology(&[segment]);
    driver.world.refuse("GetCallerIdentity", "ServiceUnavailable", 503);
    let unknown = driver.create(request()).await.unwrap_err();
    let words = ["sts:GetCallerIdentity", "ServiceUnavailable", "whole ARN"];
    assert_status(&unknown, Code::Unavailable, &words);
    // No volume is made in the Region instead of on the Outpost.
    assert_eq!(driver.world.calls("CreateVolume"), 0);
    driver.world.clear_faults();
    let made = driver.create(request()).await.unwrap();
    assert_eq!(driver.create(request()).await.unwrap(), made);
    assert_created_on_outpost(&driver);
    let calls = driver.world.calls("GetCallerIdentity");
    driver.create(request()).await.unwrap();
    assert_eq!(driver.world.calls("GetCallerIdentity"), calls, "the answer is remembered");
}

/// RESOURCE_EXHAUSTED lets the scheduler choose another zone, where the same claim then gets its
/// volume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insufficient_zone_capacity_returns_resource_exhausted_without_retry() {
    for (code, status) in [
        ("InsufficientVolumeCapacity", 500),
        ("InsufficientVolumeCapacity", 503),
        ("VolumeTypeNotAvailableInZone", 400),
    ] {
        let driver = Driver::new().await;
        driver.world.fault(json!({
            "match": { "action": "CreateVolume", "contains": "us-east-1a" },
            "fault": { "kind": "error", "code": code, "status": status, "message": "There is not enough capacity." },
        }));
        assert_refused(driver.create(volume("pvc-1", 1)).await, Code::ResourceExhausted, &[code]);
        // The driver does not retry: the scheduler's next zone is the better choice.
        assert_eq!(driver.world.calls("CreateVolume"), 1, "{code} {status}");
        driver.create(volume("pvc-1", 1).in_zone("us-east-1b")).await.unwrap();
        assert_eq!(driver.live("volumes"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_error_after_lost_reply_finds_created_volume() {
    for (code, status) in
        [("InsufficientVolumeCapacity", 500), ("VolumeTypeNotAvailableInZone", 400)]
    {
        let driver = Driver::new().await;
        let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
        driver.world.fault_once("CreateVolume", &lost);
        driver.world.fault(json!({ "match": { "action": "CreateVolume" }, "skip": 1,
                    "fault": { "kind": "error", "code": code, "status": status } }));
        // The volume of the lost answer exists: after a final code the scheduler would make another
        // one elsewhere.
        let made = driver.create(volume("pvc-1", 1)).await.unwrap();
        assert_eq!(driver.world.calls("CreateVolume"), 2, "{code}");
        driver.delete(&made.volume_id).await.unwrap();
        assert_eq!(driver.live("volumes"), 0, "{code}");
    }
}

const LOCAL: &str = "us-east-1-bos-1a";
const WAVELENGTH: &str = "us-east-1-wl1-bos-wlz-1";

/// Returns a Region's zones: these, and one of each other kind.
fn with_zones(zones: &Value) -> Value {
    let mut all = vec![
        json!({ "name": LOCAL, "id": "use1-bos1-az1", "type": "local-zone" }),
        json!({ "name": WAVELENGTH, "id": "use1-wl1-bos-wlz1", "type": "wavelength-zone" }),
    ];
    all.extend(zones.as_array().unwrap().iter().cloned());
    json!({ "zones": all, "instances": [] })
}

/// Returns a create request that names no zone.
fn anywhere(name: &str) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { accessibility_requirements: None, ..volume(name, 1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_without_topology_gets_availability_zone() {
    let zones = json!([{ "name": "us-east-1a", "id": "use1-az6" }]);
    let driver = Driver::in_world(with_zones(&zones)).await;
    // The name selects among the zones, so that several names would reach each of them.
    for n in 0..16 {
        let made = driver.create(anywhere(&format!("pvc-{n}"))).await.unwrap();
        let segments = map(&[("topology.kubernetes.io/zone", "us-east-1a")]);
        assert_eq!(made.accessible_topology[0].segments, segments, "pvc-{n}");
    }
    for zone in [LOCAL, WAVELENGTH] {
        let made = driver.create(volume(zone, 1).in_zone(zone)).await.unwrap();
        let segments = map(&[("topology.kubernetes.io/zone", zone)]);
        assert_eq!(made.accessible_topology[0].segments, segments);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn region_without_availability_zone_has_no_capacity() {
    let driver = Driver::in_world(with_zones(&json!([]))).await;
    let refused = driver.create(anywhere("pvc-1")).await.unwrap_err();
    assert_status(&refused, Code::ResourceExhausted, &["no available zone"]);
    assert_eq!(driver.live("volumes"), 0);
}
