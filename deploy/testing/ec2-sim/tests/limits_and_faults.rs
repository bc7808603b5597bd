//! Throttling and the faults that do not need a socket.

mod world;

use ec2_sim::Delivery;
use serde_json::json;
use std::collections::BTreeSet;
use world::{NODE_A, NODE_B, World, all, set_of, text, without};

const CREATE: &str = "AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3";
const TAGGED: &str = "TagSpecification.1.ResourceType=snapshot&TagSpecification.1.Tag.1.Key=s&TagSpecification.1.Tag.1.Value=1";
const BY_TAG: &str = "Filter.1.Name=tag:s&Filter.1.Value.1=1";

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
    assert_eq!(w.sim.handle(w.now, &request).status, 400);
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

#[test]
fn invalid_snapshot_sets_are_refused_without_effect() {
    let mut w = World::new();
    let (attached, root) = (w.attached(NODE_A, 2), w.root(NODE_A));
    let free = w.volume("");
    let data = set_of(NODE_A);
    let excluding = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        format!("{data}{}", without(&ids))
    };
    let many: Vec<String> = (0..41).map(|n| format!("vol-0123456789abcde{n:02x}")).collect();
    let tagged_as_volume = format!("{data}&TagSpecification.1.ResourceType=volume");
    for (parameters, code) in [
        (String::new(), "MissingParameter"),
        (set_of("i-1"), "InvalidInstanceID.Malformed"),
        (set_of("i-0123456789abcdef0"), "InvalidInstanceID.NotFound"),
        (format!("{data}{}", without(&many)), "InvalidParameterValue"),
        (excluding(&[&root]), "InvalidParameterValue"),
        (excluding(&["vol-1"]), "InvalidParameterValue"),
        (excluding(&[&free]), "InvalidAttachment.NotFound"),
        (excluding(&["vol-0123456789abcdef0"]), "InvalidAttachment.NotFound"),
        (excluding(&[&attached[0], &attached[1]]), "InvalidParameterCombination"),
        (set_of(NODE_B), "InvalidParameterCombination"),
        (format!("{data}&CopyTagsFromSource=instance"), "InvalidParameterValue"),
        (tagged_as_volume, "InvalidParameterValue"),
        (format!("{data}&Location=local"), "UnknownParameter"),
        (format!("{data}&DryRun=true"), "DryRunOperation"),
    ] {
        w.refused("CreateSnapshots", &parameters, code);
    }
    assert!(w.sim.realm().snapshots().is_empty());
    // The 40th is one too many only because it is not attached.
    let most = format!("{data}{}", without(&many[..40]));
    w.refused("CreateSnapshots", &most, "InvalidAttachment.NotFound");
}

#[test]
fn each_member_counts_for_limits_of_snapshots() {
    let mut w = World::with(json!({
        "quotas": {"snapshot_interval_ms": 15_000, "pending_snapshots": 5},
        "latency": {"snapshot": {"fixed_ms": 60_000}},
    }));
    let attached = w.attached(NODE_A, 3);
    w.ok("CreateSnapshot", &format!("VolumeId={}", attached[2]));
    let data = set_of(NODE_A);
    w.refused("CreateSnapshots", &data, "SnapshotCreationPerVolumeRateExceeded");
    assert_eq!(w.sim.realm().snapshots().len(), 1, "all or nothing");
    w.step(15_000);
    w.ok("CreateSnapshots", &data);
    let single = format!("VolumeId={}", attached[0]);
    w.refused("CreateSnapshot", &single, "SnapshotCreationPerVolumeRateExceeded");
    w.step(15_000);
    // Four are pending: one more may be, but not three.
    w.refused("CreateSnapshots", &data, "PendingSnapshotLimitExceeded");
    w.ok("CreateSnapshots", &format!("{data}{}", without(&attached[1..])));
    w.sim.change_quotas(json!({"concurrent_snapshots": 2})).expect("quotas");
    w.step(15_000);
    w.refused("CreateSnapshots", &data, "ConcurrentSnapshotLimitExceeded");
}

#[test]
fn snapshot_sets_have_their_own_rate() {
    let mut w = World::with(json!({"quotas": {"concurrent_snapshots": 1000}}));
    w.attached(NODE_A, 1);
    let ok = |w: &mut World, n: usize| {
        (0..n).filter(|_| w.call("CreateSnapshots", &set_of(NODE_A)).0 == 200).count()
    };
    assert_eq!(ok(&mut w, 110), 100);
    w.step(1_000);
    assert_eq!(ok(&mut w, 10), 5);
}

#[test]
fn failed_member_or_whole_set_ends_in_error() {
    for (member, failed) in [("0", vec![0]), ("1", vec![1]), ("null", vec![0, 1])] {
        let mut w = World::new();
        w.attached(NODE_A, 2);
        w.fault(&format!(
            r#"{{"match":{{"action":"CreateSnapshots"}},"count":1,"fault":{{"kind":"fail_snapshot","after_ms":10,"member":{member}}}}}"#
        ));
        let ids = all(&w.ok("CreateSnapshots", &set_of(NODE_A)), "snapshotId");
        w.step(10);
        let is_failed = |id: &String| w.sim.realm().snapshots()[id].status() == "error";
        let found: Vec<usize> = (0..2).filter(|n| is_failed(&ids[*n])).collect();
        assert_eq!(found, failed, "{member}");
    }
}

#[test]
fn lost_reply_to_snapshot_set_leaves_tagged_members() {
    let mut w = World::new();
    let attached = w.attached(NODE_A, 2);
    w.fault(r#"{"match":{"action":"CreateSnapshots"},"count":1,"fault":{"kind":"lose_reply","how":"hang","effect":true}}"#);
    let tagged = format!("{}&{TAGGED}", set_of(NODE_A));
    assert!(matches!(w.reply("CreateSnapshots", &tagged).delivery, Delivery::Hang(_)));
    let found = w.ok("DescribeSnapshots", BY_TAG);
    let set = |ids: Vec<String>| ids.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(set(all(&found, "volumeId")), set(attached));
    let record = &w.sim.journal.after(0, 10, Some("CreateSnapshots"))[0];
    assert_eq!(set(record.effects.clone()), set(all(&found, "snapshotId")));
}

#[test]
fn look_ups_find_tagged_members_one_by_one() {
    let mut w = World::new();
    w.attached(NODE_A, 3);
    w.fault(r#"{"match":{"action":"CreateSnapshots"},"count":1,"fault":{"kind":"tags_one_by_one","ms":1000}}"#);
    let tagged = format!("{}&{TAGGED}", set_of(NODE_A));
    let ids = all(&w.ok("CreateSnapshots", &tagged), "snapshotId");
    let by_id = format!("SnapshotId.1={}", ids[2]);
    let pages = format!("{BY_TAG}&MaxResults=1000");
    for seen in 0..=3 {
        for by_tag in [BY_TAG, &pages, "Filter.1.Name=tag-key&Filter.1.Value.1=s*"] {
            let found = all(&w.ok("DescribeSnapshots", by_tag), "snapshotId").len();
            assert_eq!(found, seen, "{by_tag}");
        }
        assert_eq!(text(&w.ok("DescribeSnapshots", &by_id), "value"), "1");
        w.step(1_000);
    }
    w.ok("CreateSnapshots", &tagged);
    assert_eq!(all(&w.ok("DescribeSnapshots", BY_TAG), "snapshotId").len(), 6);
}

#[test]
fn volume_attached_just_before_is_in_set() {
    let mut w = World::with(json!({"latency": {"attach": {"fixed_ms": 1000}}}));
    let (ours, foreign) = (w.attached(NODE_A, 1), w.volume(""));
    w.step(1_000);
    let rule = json!({
        "match": {"action": "CreateSnapshots"}, "count": 1,
        "fault": {"kind": "foreign", "action": "AttachVolume", "parameters": {
            "VolumeId": foreign, "InstanceId": "$InstanceSpecification.InstanceId", "Device": "/dev/xvdbz",
        }},
    });
    w.fault(&rule.to_string());
    let taken = all(&w.ok("CreateSnapshots", &set_of(NODE_A)), "volumeId");
    let mut expected = [ours, vec![foreign]].concat();
    expected.sort();
    assert_eq!(taken, expected);
}
