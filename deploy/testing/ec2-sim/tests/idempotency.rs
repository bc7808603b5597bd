//! Client tokens, and calls without a client token.

mod world;

use ec2_sim::Scenario;
use serde_json::json;
use world::{NODE_A, World, all, text};

fn call(w: &mut World, token: &str, more: &str) -> (u16, String) {
    let base = "AvailabilityZone=us-east-1a&Size=4&VolumeType=gp3";
    w.call("CreateVolume", &format!("{base}&ClientToken={token}&{more}"))
}

#[test]
fn replayed_create_returns_same_volume_in_current_state() {
    let mut w = World::with(json!({"latency": {"volume_create": {"fixed_ms": 1000}}}));
    let (_, first) = call(&mut w, "t", "");
    assert_eq!(text(&first, "status"), "creating");
    w.step(1000);
    let (_, again) = call(&mut w, "t", "");
    assert_eq!(text(&first, "volumeId"), text(&again, "volumeId"));
    assert_eq!(text(&again, "status"), "available", "a replay shows the present state");
    assert_eq!(w.volumes(), 1);
}

#[test]
fn changed_parameters_mismatch_but_tag_order_does_not() {
    let mut w = World::new();
    for tags in [[("x", "1"), ("y", "2")], [("y", "2"), ("x", "1")]] {
        assert_eq!(call(&mut w, "t", &world::tagged("volume", &tags)).0, 200);
    }
    let (status, body) = call(&mut w, "t", "Size=5");
    assert_eq!((status, text(&body, "Code").as_str()), (400, "IdempotentParameterMismatch"));
    assert_eq!(
        text(&body, "Message"),
        "Parameters on this idempotent request are inconsistent with parameters used in previous request(s)."
    );
    assert_eq!(w.volumes(), 1);
}

#[test]
fn token_of_deleted_volume_is_refused_until_expiry() {
    let mut w = World::with(json!({"latency": {"volume_delete": {"fixed_ms": 10}}}));
    let (_, body) = call(&mut w, "t", "");
    let id = text(&body, "volumeId");
    w.step(1);
    w.ok("DeleteVolume", &format!("VolumeId={id}"));
    for state in ["deleting", "gone"] {
        let (status, body) = call(&mut w, "t", "");
        assert_eq!(status, 400, "{state}");
        assert_eq!(
            text(&body, "Message"),
            format!(
                "The client token 't' is associated with resource '{id}' which has already been deleted. Please use a different client token."
            ),
            "{state}"
        );
        w.step(10);
    }
    w.step(12 * 3_600_000);
    assert_eq!(call(&mut w, "t", "").0, 200);
}

#[test]
fn vanished_volume_uses_token_unlike_dry_run() {
    let mut w = World::new();
    assert_eq!(call(&mut w, "t", "DryRun=true&Size=9").0, 412);
    w.fault(r#"{"match":{"action":"CreateVolume"},"count":1,"fault":{"kind":"fail_create","outcome":"vanish","after_ms":5}}"#);
    let (status, body) = call(&mut w, "t", "");
    assert_eq!(status, 200, "accepted at first");
    let id = text(&body, "volumeId");
    w.step(5);
    w.refused("DescribeVolumes", &format!("VolumeId.1={id}"), "InvalidVolume.NotFound");
    assert_eq!(text(&call(&mut w, "t", "").1, "Code"), "IdempotentParameterMismatch");
    assert_eq!(call(&mut w, "t-2", "").0, 200);
}

#[test]
fn same_seed_and_requests_give_same_answers() {
    let run = |seed| {
        let mut w = World::of(Scenario { seed, profile: "real".to_owned(), ..Scenario::default() });
        let v = w.volume("");
        w.step(60_000);
        let r = w.reply("AttachVolume", &world::attach(&v, NODE_A, "/dev/xvdba"));
        (v, r)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn repeated_call_makes_second_set_of_snapshots() {
    let mut w = World::new();
    w.attached(NODE_A, 2);
    let tags = [
        ("CSIVolumeSnapshotName", "vgs-1"),
        ("ebs.csi.aws.com/group-snapshot", "2 volumes"),
        ("ebs.csi.aws.com/cluster", "true"),
    ];
    let parameters = format!("{}&{}", world::set_of(NODE_A), world::tagged("snapshot", &tags));
    let first = all(&w.ok("CreateSnapshots", &parameters), "snapshotId");
    w.check_invariants();
    let second = all(&w.ok("CreateSnapshots", &parameters), "snapshotId");
    assert!(second.len() == 2 && second.iter().all(|id| !first.contains(id)));
    let found = w.sim.invariants.found();
    assert_eq!(found.iter().map(|v| v.rule).collect::<Vec<_>>(), ["named_once"; 2]);
}
