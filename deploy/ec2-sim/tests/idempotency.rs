//! Client tokens, and calls without a client token.

mod world;

use ec2_sim::Scenario;
use world::{World, text};

fn create(token: &str, more: &[(&'static str, &'static str)]) -> Vec<(&'static str, String)> {
    let mut p = vec![
        ("AvailabilityZone", "us-east-1a".to_owned()),
        ("Size", "4".to_owned()),
        ("VolumeType", "gp3".to_owned()),
        ("ClientToken", token.to_owned()),
    ];
    for (k, v) in more {
        p.retain(|(name, _)| name != k);
        p.push((k, (*v).to_owned()));
    }
    p
}

fn call(w: &mut World, token: &str, more: &[(&'static str, &'static str)]) -> (u16, String) {
    let p = create(token, more);
    let p: Vec<(&str, &str)> = p.iter().map(|(k, v)| (*k, v.as_str())).collect();
    w.call("CreateVolume", &p)
}

fn volumes(w: &World) -> usize {
    w.sim.realm().volumes().values().filter(|v| !v.root).count()
}

#[test]
fn replayed_create_returns_same_volume_in_current_state() {
    let mut scenario = Scenario {
        profile: "instant".to_owned(),
        ..Scenario::default()
    };
    scenario.latency =
        serde_json::from_str(r#"{"volume_create":{"fixed_ms":1000}}"#).expect("latency");
    let mut w = World::of(scenario);
    let (_, first) = call(&mut w, "t", &[]);
    assert_eq!(text(&first, "status"), "creating");
    w.step(1000);
    let (_, again) = call(&mut w, "t", &[]);
    assert_eq!(text(&first, "volumeId"), text(&again, "volumeId"));
    assert_eq!(
        text(&again, "status"),
        "available",
        "a replay shows the present state"
    );
    assert_eq!(volumes(&w), 1);
}

#[test]
fn changed_parameters_mismatch_but_tag_order_does_not() {
    let mut w = World::new();
    let a = [
        ("TagSpecification.1.ResourceType", "volume"),
        ("TagSpecification.1.Tag.1.Key", "x"),
        ("TagSpecification.1.Tag.1.Value", "1"),
        ("TagSpecification.1.Tag.2.Key", "y"),
        ("TagSpecification.1.Tag.2.Value", "2"),
    ];
    let b = [
        ("TagSpecification.1.ResourceType", "volume"),
        ("TagSpecification.1.Tag.1.Key", "y"),
        ("TagSpecification.1.Tag.1.Value", "2"),
        ("TagSpecification.1.Tag.2.Key", "x"),
        ("TagSpecification.1.Tag.2.Value", "1"),
    ];
    assert_eq!(call(&mut w, "t", &a).0, 200);
    assert_eq!(call(&mut w, "t", &b).0, 200);
    let (status, body) = call(&mut w, "t", &[("Size", "5")]);
    assert_eq!(
        (status, text(&body, "Code").as_str()),
        (400, "IdempotentParameterMismatch")
    );
    assert_eq!(
        text(&body, "Message"),
        "Parameters on this idempotent request are inconsistent with parameters used in previous request(s)."
    );
    assert_eq!(volumes(&w), 1);
}

#[test]
fn token_of_deleted_volume_is_refused_until_expiry() {
    let mut w = World::new();
    let (_, body) = call(&mut w, "t", &[]);
    let id = text(&body, "volumeId");
    w.step(1);
    w.ok("DeleteVolume", &[("VolumeId", &id)]);
    w.step(1);
    let (status, body) = call(&mut w, "t", &[]);
    assert_eq!(status, 400);
    assert_eq!(
        text(&body, "Message"),
        format!(
            "The client token 't' is associated with resource '{id}' which has already been deleted. Please use a different client token."
        )
    );
    w.step(12 * 3_600_000);
    assert_eq!(call(&mut w, "t", &[]).0, 200);
}

#[test]
fn vanished_volume_spends_token_unlike_dry_run() {
    let mut w = World::new();
    assert_eq!(
        call(&mut w, "t", &[("DryRun", "true"), ("Size", "9")]).0,
        412
    );
    w.fault(r#"{"match":{"action":"CreateVolume"},"count":1,"fault":{"kind":"fail_create","outcome":"vanish","after_ms":5}}"#);
    let (status, body) = call(&mut w, "t", &[]);
    assert_eq!(status, 200, "accepted at first");
    let id = text(&body, "volumeId");
    w.step(5);
    assert_eq!(
        w.code("DescribeVolumes", &[("VolumeId.1", &id)]),
        "InvalidVolume.NotFound"
    );
    assert_eq!(
        text(&call(&mut w, "t", &[]).1, "Code"),
        "IdempotentParameterMismatch"
    );
    assert_eq!(call(&mut w, "t-2", &[]).0, 200);
}

/// CreateSnapshot has no client token.
#[test]
fn repeated_create_snapshot_makes_second_snapshot() {
    let mut w = World::new();
    let v = w.volume(&[]);
    let a = text(&w.ok("CreateSnapshot", &[("VolumeId", &v)]), "snapshotId");
    let b = text(&w.ok("CreateSnapshot", &[("VolumeId", &v)]), "snapshotId");
    assert_ne!(a, b);
}

#[test]
fn same_seed_and_requests_give_same_answers() {
    let run = |seed| {
        let mut w = World::of(Scenario {
            seed,
            profile: "real".to_owned(),
            ..Scenario::default()
        });
        let v = w.volume(&[]);
        w.step(60_000);
        let r = w.reply(
            "AttachVolume",
            &[
                ("VolumeId", &v),
                ("InstanceId", world::NODE_A),
                ("Device", "/dev/xvdba"),
            ],
        );
        (v, r)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}
