//! Adverse conditions for a client: stale reads, account limits, outages, other users, expired
//! credentials.

mod world;

use ec2_sim::ZoneState::{Available, Unavailable};
use serde_json::json;
use world::{NODE_A, World, all, text};

const CREATE: &str = "AvailabilityZone=us-east-1a&Size=10&VolumeType=gp3";

fn with(key: &str, value: serde_json::Value) -> World {
    World::with(json!({ key: value }))
}

fn attach(volume: &str, device: &str) -> String {
    world::attach(volume, NODE_A, device)
}

#[test]
fn lagging_read_misses_new_and_shows_deleted_volumes() {
    let [lag, mapping_lag, tag_lag] = [1000, 3000, 5000].map(|ms| json!({"fixed_ms": ms}));
    let lags = json!({"replicas": 1, "lag": lag, "mapping_lag": mapping_lag, "tag_lag": tag_lag});
    let mut w = with("consistency", lags);
    let tags = world::tagged("volume", &[("k", "v")]);
    let id = text(&w.ok("CreateVolume", &format!("{CREATE}&{tags}")), "volumeId");
    let by_id = format!("VolumeId.1={id}");
    let by_tag = "Filter.1.Name=tag:k&Filter.1.Value.1=v";
    w.refused("DescribeVolumes", &by_id, "InvalidVolume.NotFound");
    w.step(999);
    w.refused("DescribeVolumes", &by_id, "InvalidVolume.NotFound");
    w.step(1);
    assert_eq!(w.of_volume(&id, "status"), "available");
    assert!(!w.ok("DescribeVolumes", by_tag).contains(&id), "filters by tag lag more");
    w.step(5_000);
    assert!(w.ok("DescribeVolumes", by_tag).contains(&id));

    w.ok("AttachVolume", &attach(&id, "/dev/xvdba"));
    w.step(1_000);
    assert_eq!(w.of_volume(&id, "status"), "in-use");
    assert!(!w.of_instance(NODE_A).contains("/dev/xvdba"), "the mapping has its own lag");
    w.refused("AttachVolume", &attach(&id, "/dev/xvdba"), "VolumeInUse");
    w.step(2_000);
    assert!(w.of_instance(NODE_A).contains("/dev/xvdba"));
    w.ok("DetachVolume", &format!("VolumeId={id}"));
    w.step(10);
    assert_eq!(w.of_volume(&id, "status"), "in-use", "an old attachment after the detach");
    w.ok("DeleteVolume", &format!("VolumeId={id}"));
    w.step(999);
    assert_eq!(w.of_volume(&id, "status"), "in-use", "a deleted volume is still shown");
    w.step(10_000);
    w.refused("DescribeVolumes", &by_id, "InvalidVolume.NotFound");
    w.check_invariants();
}

#[test]
fn replica_reads_go_backwards_then_converge() {
    let mut w = with("consistency", json!({"replicas": 4, "lag": {"uniform_ms": [0, 1000]}}));
    let id = text(&w.ok("CreateVolume", CREATE), "volumeId");
    let seen: Vec<bool> = (0..50)
        .map(|_| {
            w.step(10);
            w.call("DescribeVolumes", &format!("VolumeId.1={id}")).0 == 200
        })
        .collect();
    assert!(seen.windows(2).any(|s| s[0] && !s[1]), "{seen:?}");
    w.step(1_000);
    for _ in 0..20 {
        assert_eq!(w.of_volume(&id, "status"), "available");
    }
}

#[test]
fn stale_fault_returns_old_state_for_1_read() {
    let mut w = World::new();
    let id = w.volume("");
    w.fault(r#"{"match":{"action":"DescribeVolumes"},"skip":1,"count":1,"fault":{"kind":"stale","ms":60000}}"#);
    w.step(10);
    w.ok("AttachVolume", &attach(&id, "/dev/xvdba"));
    w.step(10);
    let seen: Vec<String> = (0..3).map(|_| w.of_volume(&id, "status")).collect();
    assert_eq!(seen, ["in-use", "available", "in-use"]);
}

#[test]
fn unseen_fault_hides_existing_resource_for_2_reads() {
    let mut w = World::new();
    let volume = w.volume("");
    for (action, parameter, filter, id, code) in [
        ("DescribeVolumes", "VolumeId", "volume-id", volume.as_str(), "InvalidVolume.NotFound"),
        ("DescribeInstances", "InstanceId", "instance-id", NODE_A, "InvalidInstanceID.NotFound"),
    ] {
        let by_filter = format!("Filter.1.Name={filter}&Filter.1.Value.1={id}");
        w.fault(&json!({"count": 2, "fault": {"kind": "unseen", "id": id}}).to_string());
        w.refused(action, &format!("{parameter}.1={id}"), code);
        assert!(!w.ok(action, &by_filter).contains(id));
        assert!(w.ok(action, &by_filter).contains(id));
    }
}

#[test]
fn requests_beyond_account_quotas_are_refused() {
    let mut w = with("quotas", json!({"storage_tib": {"gp3": 0.015}, "iops": {"io2": 300}}));
    let first = w.volume("Size=10");
    let message = "You have exceeded your maximum gp3 storage limit of 0.015 TiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase.";
    w.refused_as("CreateVolume", CREATE, "VolumeLimitExceeded", message);
    let copy = format!("SourceVolumeId={first}&VolumeType=gp3");
    w.refused("CopyVolumes", &copy, "VolumeLimitExceeded");
    let io2 = "AvailabilityZone=us-east-1a&Size=4&VolumeType=io2&Iops=200";
    let second = text(&w.ok("CreateVolume", io2), "volumeId");
    w.refused("CreateVolume", io2, "MaxIOPSLimitExceeded");
    w.step(10);
    w.ok("DeleteVolume", &format!("VolumeId={second}"));
    w.step(10);
    w.ok("CreateVolume", io2);
    w.sim.change_quotas(json!({"storage_tib": {}})).expect("quotas");
    w.ok("CreateVolume", CREATE);
}

#[test]
fn modification_stays_within_quotas_and_zone_capacity() {
    let capacity = json!([{"zone": "us-east-1b", "gib": 8}]);
    let quotas = json!({"storage_tib": {"gp3": 0.03}, "iops": {"io2": 300}, "capacity": capacity});
    let mut w = with("quotas", quotas);
    let first = w.volume("Size=10");
    let second = w.volume("Size=10");
    w.step(10);
    let grow = |id: &str, gib: u32| format!("VolumeId={id}&Size={gib}");
    let change = |w: &mut World, change: &str| text(&w.call("ModifyVolume", change).1, "Code");
    assert_eq!(change(&mut w, &grow(&first, 21)), "VolumeLimitExceeded");
    assert_eq!(change(&mut w, &grow(&first, 20)), "");
    // A modification counts before it takes effect.
    assert_eq!(change(&mut w, &grow(&second, 11)), "VolumeLimitExceeded");
    let faster = |iops: u32| format!("VolumeId={second}&VolumeType=io2&Iops={iops}");
    assert_eq!(change(&mut w, &faster(301)), "MaxIOPSLimitExceeded");
    assert_eq!(change(&mut w, &faster(300)), "");
    w.step(86_400_000);
    let third = w.volume("AvailabilityZone=us-east-1b&Size=5");
    w.step(10);
    assert_eq!(change(&mut w, &grow(&third, 9)), "InsufficientVolumeCapacity");
    assert_eq!(change(&mut w, &grow(&third, 6)), "");
    w.check_invariants();
}

#[test]
fn pending_snapshots_are_limited_per_volume_and_region() {
    let mut w = World::with(json!({"quotas": {"pending_snapshots": 6},
        "latency": {"snapshot": {"fixed_ms": 1000}}}));
    let (a, b) = (w.volume(""), w.volume(""));
    let cold = w.volume("VolumeType=st1&Size=125");
    let take = |w: &mut World, id: &str| {
        text(&w.call("CreateSnapshot", &format!("VolumeId={id}")).1, "Code")
    };
    assert_eq!(take(&mut w, &cold), "");
    assert_eq!(take(&mut w, &cold), "ConcurrentSnapshotLimitExceeded");
    for _ in 0..5 {
        assert_eq!(take(&mut w, &a), "");
    }
    assert_eq!(take(&mut w, &a), "ConcurrentSnapshotLimitExceeded");
    assert_eq!(take(&mut w, &b), "PendingSnapshotLimitExceeded");
    w.step(1_000);
    assert_eq!((take(&mut w, &a), take(&mut w, &b)), Default::default());
}

#[test]
fn quota_checked_before_token_hides_replayed_volume() {
    for (before, code) in [(false, None), (true, Some("VolumeLimitExceeded"))] {
        let mut w = with("quotas", json!({"storage_tib": {"gp3": 0.01}, "before_token": before}));
        let p = format!("{CREATE}&ClientToken=t");
        let made = text(&w.ok("CreateVolume", &p), "volumeId");
        match code {
            Some(code) => w.refused("CreateVolume", &p, code),
            None => assert_eq!(text(&w.ok("CreateVolume", &p), "volumeId"), made),
        }
    }
}

/// Each volume type has its own capacity, so gp2 still has room where gp3 has none.
#[test]
fn full_zone_answers_5xx_and_other_zones_create() {
    for status in [500, 503] {
        let capacity = json!({"zone": "us-east-1a", "gib": 15, "status": status});
        let mut w = with("quotas", json!({"capacity": [capacity]}));
        w.ok("CreateVolume", CREATE);
        let (s, code, _) = w.error("CreateVolume", CREATE);
        assert_eq!((s, code.as_str()), (status, "InsufficientVolumeCapacity"));
        w.volume("AvailabilityZone=us-east-1b&Size=10");
        w.volume("VolumeType=gp2");
    }
}

#[test]
fn zone_outage_leaves_other_zones_usable() {
    let mut w = World::new();
    let (a, b) = (w.volume(""), w.volume("AvailabilityZone=us-east-1b"));
    assert!(w.sim.set_zone_state("us-east-1a", Unavailable));
    assert!(!w.sim.set_zone_state("mars-1a", Unavailable));
    for (action, parameters) in [
        ("CreateVolume", CREATE.to_owned()),
        ("CreateVolume", "AvailabilityZoneId=use1-az6&Size=1".to_owned()),
        ("AttachVolume", attach(&a, "/dev/xvdba")),
        ("DeleteVolume", format!("VolumeId={a}")),
        ("DescribeInstances", String::new()),
        ("DescribeVolumes", String::new()),
        ("DescribeVolumes", format!("VolumeId.1={a}")),
        ("DescribeVolumes", format!("VolumeId.1={a}&VolumeId.2={b}")),
    ] {
        let (status, code, _) = w.error(action, &parameters);
        assert_eq!((status, code.as_str()), (503, "Unavailable"), "{action} {parameters:?}");
    }
    w.ok("DescribeVolumes", &format!("VolumeId.1={b}"));
    w.ok("ModifyVolume", &format!("VolumeId={b}&Size=5"));
    w.volume("AvailabilityZone=us-east-1b");
    let states = all(&w.ok("DescribeAvailabilityZones", ""), "zoneState");
    assert_eq!(states, ["unavailable", "available"]);
    assert!(w.sim.set_zone_state("us-east-1a", Available));
    w.ok("DeleteVolume", &format!("VolumeId={a}"));
}

#[test]
fn device_name_can_be_taken_unlisted_or_raced() {
    let mut w = World::new();
    let id = w.volume("");
    let taken = |w: &mut World, device: &str| {
        let (_, code, message) = w.error("AttachVolume", &attach(&id, device));
        assert_eq!(code, "InvalidParameterValue");
        assert!(message.contains("is already in use"), "{message}");
    };
    w.fault(r#"{"match":{"action":"AttachVolume"},"count":1,"fault":{"kind":"device_taken"}}"#);
    taken(&mut w, "/dev/xvdba");
    assert!(!w.of_instance(NODE_A).contains("/dev/xvdba"));
    taken(&mut w, "/dev/xvdba");
    w.fault(r#"{"match":{"action":"AttachVolume"},"count":2,"fault":{"kind":"device_raced"}}"#);
    taken(&mut w, "/dev/xvdbc");
    // The same request again: one volume has the name, not two.
    taken(&mut w, "/dev/xvdbc");
    w.step(1);
    assert!(w.of_instance(NODE_A).contains("/dev/xvdbc"), "the other volume is listed");
    w.ok("AttachVolume", &attach(&id, "/dev/xvdbb"));
    w.check_invariants();
}

#[test]
fn foreign_change_lands_before_or_after_request() {
    let mut w = World::new();
    let id = w.volume("");
    w.fault(r#"{"match":{"action":"AttachVolume"},"count":1,"fault":{"kind":"foreign","action":"DeleteVolume","parameters":{"VolumeId":"$VolumeId"}}}"#);
    w.refused("AttachVolume", &attach(&id, "/dev/xvdba"), "InvalidVolume.NotFound");
    w.fault(r#"{"match":{"action":"CreateVolume"},"count":1,"fault":{"kind":"foreign","action":"CreateTags","after_ms":500,
        "parameters":{"ResourceId.1":"$made","Tag.1.Key":"theirs","Tag.1.Value":"1"}}}"#);
    let made = w.volume("");
    assert_eq!(w.of_volume(&made, "key"), "");
    w.step(500);
    assert_eq!(w.of_volume(&made, "key"), "theirs");
    w.fault(r#"{"match":{"action":"AttachVolume"},"count":1,"fault":{"kind":"foreign","action":"TerminateInstances","after_ms":100,
        "parameters":{"InstanceId.1":"$InstanceId"}}}"#);
    w.ok("AttachVolume", &attach(&made, "/dev/xvdba"));
    w.step(100);
    w.step(100);
    assert_eq!(w.of_volume(&made, "status"), "available");
}

#[test]
fn cluster_tagged_volume_without_name_violates_invariant() {
    let mut w = World::new();
    w.volume(&world::tagged("volume", &[("ebs.csi.aws.com/cluster", "true")]));
    assert_eq!(w.sim.invariants.found()[0].rule, "traceable");
}
