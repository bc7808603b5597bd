//! Throttling and the faults that do not need a socket.

mod world;

use ec2_sim::Delivery;
use serde_json::json;
use world::{World, text};

const CREATE: &str = "AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3";

#[test]
fn empty_bucket_answers_503_and_refills() {
    let mut w = World::new();
    let ok = |w: &mut World, n: usize| {
        (0..n).filter(|_| w.call("CreateVolume", CREATE).0 == 200).count()
    };
    assert_eq!(ok(&mut w, 120), 100);
    let (status, body) = w.call("CreateVolume", CREATE);
    assert_eq!((status, &*text(&body, "Code")), (503, "RequestLimitExceeded"));
    assert_eq!(text(&body, "Message"), "Request limit exceeded.");
    w.step(2_000);
    assert_eq!(ok(&mut w, 20), 10);
    let s = w.sim.statistics.json();
    let of_action = &s["actions"]["CreateVolume"];
    assert_eq!((&of_action["calls"], &of_action["ok"]), (&json!(141), &json!(110)));
    assert_eq!((&of_action["throttled"], &s["totals"]["throttled"]), (&json!(31), &json!(31)));
    assert_eq!(of_action["errors"]["RequestLimitExceeded"], 31);
}

#[test]
fn each_injected_error_form_has_its_configured_effect() {
    for (rule, made, status, body) in [
        (r#"{"kind":"error","code":"InternalError","effect":true}"#, 1, 500, "<Code>InternalError"),
        (r#"{"kind":"error","code":"NoCapacity","status":503}"#, 0, 503, "NoCapacity"),
        (r#"{"kind":"error","code":"x","status":502,"body":"html"}"#, 0, 502, "<html>"),
        (r#"{"kind":"error","code":"x","status":504,"body":"empty"}"#, 0, 504, ""),
        (r#"{"kind":"throttle","retry_after_ms":100}"#, 0, 503, "RequestLimitExceeded"),
        (r#"{"kind":"garble","how":"unparsable"}"#, 1, 200, "not XML"),
        (r#"{"kind":"garble","how":"wrong_root"}"#, 1, 200, "NotCreateVolumeResponse"),
        (r#"{"kind":"garble","how":"empty"}"#, 1, 200, ""),
        (r#"{"kind":"garble","how":"cut"}"#, 1, 200, "<volumeId>"),
    ] {
        let mut w = World::new();
        w.fault(&format!(r#"{{"match":{{"action":"CreateVolume"}},"count":1,"fault":{rule}}}"#));
        let (s, b) = w.call("CreateVolume", CREATE);
        assert_eq!((s, w.volumes()), (status, made), "{rule}");
        assert!(b.contains(body), "{rule}: {b}");
        assert!(!b.contains("</CreateVolumeResponse>"), "{rule}: {b}");
        assert_eq!(w.call("CreateVolume", CREATE).0, 200, "one hit only");
    }
}

#[test]
fn reply_is_lost_before_or_after_effect() {
    for (effect, made) in [("true", 1), ("false", 0)] {
        let mut w = World::new();
        w.fault(&format!(
            r#"{{"count":1,"fault":{{"kind":"lose_reply","how":"close","effect":{effect}}}}}"#
        ));
        assert_eq!(w.reply("CreateVolume", CREATE).delivery, Delivery::Close);
        assert_eq!(w.volumes(), made);
    }
}

#[test]
fn duplicated_request_takes_effect_twice_unless_token_given() {
    for (token, made) in [("", 2), ("&ClientToken=t", 1)] {
        let mut w = World::new();
        w.fault(r#"{"fault":{"kind":"duplicate","after_ms":2000}}"#);
        w.ok("CreateVolume", &format!("{CREATE}{token}"));
        w.step(1_999);
        assert_eq!(w.volumes(), 1);
        w.step(1);
        assert_eq!(w.volumes(), made);
        w.step(60_000);
        assert_eq!(w.volumes(), made, "the duplicate has no duplicate");
    }
}

#[test]
fn a_volume_that_fails_asynchronously_stays_as_error() {
    let mut w = World::new();
    w.fault(r#"{"fault":{"kind":"fail_create","outcome":"error","after_ms":5}}"#);
    let id = text(&w.ok("CreateVolume", CREATE), "volumeId");
    w.step(5);
    assert_eq!(w.of_volume(&id, "status"), "error");
}

#[test]
fn journal_records_faults_and_effects_without_credentials() {
    let mut w = World::new();
    w.fault(r#"{"id":"lost","match":{"action":"CreateVolume"},"count":1,"fault":{"kind":"lose_reply","how":"hang","effect":true}}"#);
    w.reply("CreateVolume", CREATE);
    let request = ec2_sim::Request {
        form: b"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&WebIdentityToken=secret-token"
            .to_vec(),
        ..ec2_sim::Request::default()
    };
    assert_eq!(w.sim.handle(w.now, &request).status, 401);
    let all = w.sim.journal.after(0, 10, None);
    assert_eq!(all[0].faults, ["lost"]);
    assert_eq!(
        all[0].effects.len(),
        1,
        "the created volume is recorded although the reply was lost"
    );
    let text = serde_json::to_string(&all).expect("json");
    assert!(!text.contains("secret-token") && !text.contains("Signature"), "{text}");
}
