//! Permissions: policies, and the errors of refused calls.

mod world;

use ec2_sim::{IamSetting, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use world::{NODE_A, World, attach, request, text};

const ROLE: &str = "arn:aws:iam::111122223333:role/path/driver";
const KEY: &str = "AKIADRIVER";

fn principal(statements: &Value) -> IamSetting {
    serde_json::from_value(json!({"principals": [{
        "arn": ROLE, "access_keys": [KEY], "tags": {"team": "red"},
        "policies": {"p": {"Version": "2012-10-17", "Statement": statements}},
    }]}))
    .expect("setting")
}

fn world() -> World {
    World::with(json!({"iam": principal(&json!([]))}))
}

fn allow(w: &mut World, statements: &Value) {
    w.sim.iam.change(principal(statements)).expect("policies");
}

fn call(w: &mut World, action: &str, parameters: &str) -> (u16, String) {
    let r = request(KEY, "us-east-1", action, parameters);
    let reply = w.sim.handle(w.now, &r);
    (reply.status, String::from_utf8(reply.body).expect("text"))
}

fn allowed(w: &mut World, action: &str, parameters: &str) -> bool {
    let (status, body) = call(w, action, parameters);
    match text(&body, "Code").as_str() {
        "UnauthorizedOperation" => {
            assert_eq!(status, 403);
            false
        }
        "" | "DryRunOperation" => true,
        other => panic!("{action} {parameters:?}: {other}: {body}"),
    }
}

const TAGGED: &str = "TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=owner&TagSpecification.1.Tag.1.Value=us";

fn create(more: &str) -> String {
    format!("AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3&{more}")
}

#[test]
fn each_action_needs_its_own_permission() {
    let mut w = world();
    let id = w.volume("");
    let snapshot = w.snapshot(&id);
    w.step(1);
    let all: BTreeSet<&str> = ec2_sim::examples().map(|(action, _)| action).collect();
    for (action, example) in ec2_sim::examples() {
        let example = example.replace("{volume}", &id).replace("{snapshot}", &snapshot);
        let example = example.replace("{instance}", NODE_A);
        let parameters = &format!("{example}&DryRun=true");
        allow(&mut w, &json!([]));
        assert!(!allowed(&mut w, action, parameters), "{action}");
        let (_, refusal) = call(&mut w, action, parameters);
        let message = text(&refusal, "Message");
        let who = "arn:aws:sts::111122223333:assumed-role/driver/ec2-sim";
        for words in [
            format!("User: {who} is not authorized to perform: ec2:{action}"),
            format!("because no identity-based policy allows the ec2:{action} action"),
        ] {
            assert!(message.contains(&words), "{message}");
        }
        let action_alone = format!("ec2:{action}");
        allow(&mut w, &json!([{"Effect": "Allow", "Action": action_alone, "Resource": "*"}]));
        assert!(allowed(&mut w, action, parameters), "{action}");
    }
    let report = w.sim.iam.report();
    let asked: BTreeSet<&str> = report["asked"]
        .as_array()
        .expect("asked")
        .iter()
        .inspect(|a| assert!(a["allowed"] != 0, "{a}"))
        .filter_map(|a| a["action"].as_str()?.strip_prefix("ec2:"))
        .collect();
    assert_eq!(asked, all);
    assert_eq!(w.call("DescribeVolumes", "").0, 200, "another key may do everything");
}

#[test]
fn conditions_see_requested_and_existing_tags() {
    let mut w = world();
    let theirs = w.volume(TAGGED);
    let not_theirs = w.volume("");
    let team = "${aws:PrincipalTag/team}";
    let statements = json!([
        {"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:*:ec2:*:*:volume/*",
         "Condition": {"StringEquals": {"aws:RequestTag/owner": "us"}}},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "arn:*:ec2:*:*:volume/*",
         "Condition": {"StringEquals": {"ec2:CreateAction": "CreateVolume"}}},
        {"Effect": "Allow", "Action": "ec2:DeleteVolume", "Resource": "*",
         "Condition": {"StringLike": {"aws:ResourceTag/owner": "u*"}}},
        {"Effect": "Allow", "Action": ["ec2:CreateTags", "ec2:DeleteTags"], "Resource": "*",
         "Condition": {"StringEquals": {"aws:ResourceTag/owner": "us"}, "ForAllValues:StringNotEquals": {"aws:TagKeys": ["owner", team]}}},
    ]);
    allow(&mut w, &statements);
    let tagged = create(&format!("{TAGGED}&DryRun=true"));
    assert!(allowed(&mut w, "CreateVolume", &tagged));
    assert!(!allowed(&mut w, "CreateVolume", &create("")), "without the tag");
    let tag = |id: &str, key: &str| format!("ResourceId.1={id}&Tag.1.Key={key}&Tag.1.Value=1");
    assert!(allowed(&mut w, "CreateTags", &tag(&theirs, "x-1")));
    assert!(!allowed(&mut w, "CreateTags", &tag(&theirs, "red")), "the principal's tag");
    assert!(!allowed(&mut w, "CreateTags", &tag(&theirs, "owner")), "a protected key");
    assert!(!allowed(&mut w, "CreateTags", &tag(&not_theirs, "x-1")), "not theirs");
    assert!(allowed(&mut w, "DeleteTags", &format!("ResourceId.1={theirs}&Tag.1.Key=x-1")));
    assert!(!allowed(&mut w, "DeleteVolume", &format!("VolumeId={not_theirs}")));
    assert!(allowed(&mut w, "DeleteVolume", &format!("VolumeId={theirs}")));
    let (_, gone) = call(&mut w, "DeleteVolume", "VolumeId=vol-0123456789abcdef0");
    assert_eq!(text(&gone, "Code"), "InvalidVolume.NotFound", "existence is checked first");
}

#[test]
fn every_resource_of_a_call_must_be_allowed() {
    let mut w = world();
    let id = w.volume("");
    let snapshot = w.snapshot(&id);
    w.step(1);
    let on = |action: &str, resources: &[&str]| json!([{"Effect": "Allow", "Action": action, "Resource": resources}]);
    let volume = "arn:aws:ec2:us-east-1:111122223333:volume/*";
    let taken = "arn:aws:ec2:us-east-1::snapshot/*";
    let instance = "arn:aws:ec2:us-east-1:111122223333:instance/*";
    let attaching = attach(&id, NODE_A, "/dev/xvdba");
    for (action, parameters, resources) in [
        ("AttachVolume", attaching, [volume, instance]),
        ("CreateVolume", create(&format!("SnapshotId={snapshot}")), [volume, taken]),
        ("CreateSnapshot", format!("VolumeId={id}"), [volume, taken]),
    ] {
        let parameters = &format!("{parameters}&DryRun=true");
        for part in &resources {
            allow(&mut w, &on(&format!("ec2:{action}"), &[part]));
            assert!(!allowed(&mut w, action, parameters), "{action} {part}");
        }
        allow(&mut w, &on(&format!("ec2:{action}"), &resources));
        assert!(allowed(&mut w, action, parameters), "{action}");
    }
    // A set needs the permission for each of its volumes, but not for an excluded one.
    let [ours, theirs] = <[String; 2]>::try_from(w.attached(NODE_A, 2)).expect("two");
    let arn = |id: &str| format!("arn:aws:ec2:us-east-1:111122223333:volume/{id}");
    let (of_ours, of_theirs) = (arn(&ours), arn(&theirs));
    let set = world::set_of(NODE_A) + "&DryRun=true";
    let part = set.clone() + &world::without(std::slice::from_ref(&theirs));
    let needed = [instance, taken, &of_ours, &of_theirs];
    for missing in 0..needed.len() {
        let mut resources = needed.to_vec();
        resources.remove(missing);
        allow(&mut w, &on("ec2:CreateSnapshots", &resources));
        assert!(!allowed(&mut w, "CreateSnapshots", &set), "{missing}");
        assert_eq!(allowed(&mut w, "CreateSnapshots", &part), missing == 3, "{missing}");
    }
    allow(&mut w, &on("ec2:CreateSnapshots", &needed));
    assert!(allowed(&mut w, "CreateSnapshots", &set));
    allow(&mut w, &on("ec2:CreateVolume", &["*"]));
    let (_, refusal) = call(&mut w, "CreateVolume", &create(TAGGED));
    let message = text(&refusal, "Message");
    let words = format!("perform: ec2:CreateTags on resource: {volume}");
    assert!(message.contains(&words), "{message}");
}

#[test]
fn accepted_volume_with_denied_kms_key_vanishes() {
    let key = "arn:aws:kms:us-east-1:111122223333:key/k";
    let kms = ["kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext"];
    for missing in [None, Some(kms[0]), Some(kms[1])] {
        let mut w = world();
        let actions: Vec<&str> = kms.into_iter().filter(|a| Some(*a) != missing).collect();
        let statements = json!([
            {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"},
            {"Effect": "Allow", "Action": actions, "Resource": key,
             "Condition": {"StringEquals": {"kms:ViaService": "ec2.us-east-1.amazonaws.com"}}},
        ]);
        allow(&mut w, &statements);
        let p = create("Encrypted=true&KmsKeyId=k&ClientToken=t");
        let (status, made) = call(&mut w, "CreateVolume", &p);
        assert_eq!((status, text(&made, "status").as_str()), (200, "creating"), "{missing:?}");
        w.step(10_000);
        let id = text(&made, "volumeId");
        let (status, _) = call(&mut w, "DescribeVolumes", &format!("VolumeId.1={id}"));
        assert_eq!(status, if missing.is_none() { 200 } else { 400 }, "{missing:?}");
        if missing.is_some() {
            let (_, again) = call(&mut w, "CreateVolume", &p);
            assert_eq!(text(&again, "Code"), "IdempotentParameterMismatch");
        }
    }
}

/// The role of `policy/iam/trust-irsa.json`, which may describe volumes.
fn with_trust() -> World {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let file = std::path::Path::new(&root).join("../../../policy/iam/trust-irsa.json");
    let trust: Value =
        serde_json::from_slice(&std::fs::read(file).expect("file")).expect("document");
    let read = json!({"Version": "2012-10-17", "Statement":
        {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"}});
    World::with(json!({"iam": {"principals": [
        {"arn": ROLE, "trust": trust, "policies": {"read": read}},
        {"arn": "arn:aws:iam::111122223333:role/other"},
    ]}}))
}

/// Returns an unsigned request of a session for a token with these claims beside the trusted ones.
fn assume(w: &World, role: &str, claims: Value) -> Request {
    let mut token = json!({
        "iss": "https://oidc.example.com/id/0", "aud": ["sts.amazonaws.com"],
        "sub": "system:serviceaccount:kube-system:ebs-csi-controller-sa",
        "exp": w.now.0 / 1000 + 60,
    });
    if let (Value::Object(token), Value::Object(claims)) = (&mut token, claims) {
        token.extend(claims);
    }
    let token = format!("e30.{}.c2ln", base64url(token.to_string().as_bytes()));
    let parameters = format!("RoleArn={role}&RoleSessionName=me&WebIdentityToken={token}");
    let request = request("", "us-east-1", "AssumeRoleWithWebIdentity", &parameters);
    Request { authorization: None, ..request }
}

fn base64url(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)).collect();
    let digit = |six: &[u8]| (0..6).fold(0, |n, i| n << 1 | six.get(i).copied().unwrap_or(0));
    bits.chunks(6).map(|six| char::from(digits[usize::from(digit(six))])).collect()
}

#[test]
fn trusted_token_begins_session_with_roles_permissions() {
    let mut w = with_trust();
    let reply = w.sim.handle(w.now, &assume(&w, ROLE, json!({})));
    let body = String::from_utf8(reply.body).expect("text");
    assert_eq!(reply.status, 200, "{body}");
    let who = "arn:aws:sts::111122223333:assumed-role/driver/me";
    assert_eq!(text(&body, "Arn"), who);
    let key = text(&body, "AccessKeyId");
    let mut call = |now, action: &str, parameters: &str| {
        let reply = w.sim.handle(now, &request(&key, "us-east-1", action, parameters));
        String::from_utf8(reply.body).expect("text")
    };
    let now = w.now;
    assert_eq!(text(&call(now, "GetCallerIdentity", ""), "Arn"), who);
    assert_eq!(text(&call(now, "DescribeVolumes", ""), "Code"), "");
    let refusal = call(now, "CreateVolume", &create(""));
    assert!(text(&refusal, "Message").contains(who), "{refusal}");
    for (after_ms, code) in [(3_599_999, ""), (3_600_000, "RequestExpired")] {
        let answer = call(now.plus(after_ms), "DescribeVolumes", "");
        assert_eq!(text(&answer, "Code"), code, "after {after_ms} ms");
    }
}

#[test]
fn token_outside_trust_policy_is_refused() {
    let mut w = with_trust();
    let elsewhere = "arn:aws:iam::111122223333:role/other";
    for (role, claims, code) in [
        (ROLE, json!({"sub": "system:serviceaccount:kube-system:ebs-csi-node-sa"}), "AccessDenied"),
        (ROLE, json!({"aud": "https://kubernetes.default.svc"}), "AccessDenied"),
        (elsewhere, json!({}), "AccessDenied"),
        (ROLE, json!({"iss": "https://oidc.example.com/id/1"}), "InvalidIdentityToken"),
        (ROLE, json!({"iss": 1}), "InvalidIdentityToken"),
        (ROLE, json!({"exp": w.now.0 / 1000}), "ExpiredTokenException"),
    ] {
        let reply = w.sim.handle(w.now, &assume(&w, role, claims.clone()));
        let body = String::from_utf8(reply.body).expect("text");
        assert_eq!(text(&body, "Code"), code, "{role} {claims}");
    }
}

#[test]
fn bad_settings_are_refused() {
    let role = r#""arn":"arn:aws:iam::111122223333:role/a""#;
    let by_ip = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}}"#;
    let by_ip_words = "policy base: statement #1: the condition operator \"IpAddress\"";
    for (principal, words) in [
        (r#""arn":"driver""#.to_owned(), "must be as arn:aws:iam"),
        (format!(r#"{role},"access_keys":["K","K"]"#), "twice"),
        (format!(r#"{role},"policies":{{"base":{by_ip}}}"#), by_ip_words),
        (
            format!(
                r#"{role},"trust":{{"Version":"1","Statement":{{"Effect":"Allow","Principal":{{"Federated":"p"}},"Action":"sts:*"}}}}"#
            ),
            "trust: Version \"1\"",
        ),
    ] {
        let json = format!(r#"{{"principals":[{{{principal}}}]}}"#);
        let setting: IamSetting = serde_json::from_str(&json).expect("json");
        assert!(setting.check().expect_err(&json).contains(words), "{json}");
    }
}

#[test]
fn tagged_snapshot_set_needs_permission_to_tag() {
    let mut w = world();
    let volumes = w.attached(NODE_A, 1);
    let tag = |key: &str| format!("ResourceId.1={}&Tag.1.Key={key}&Tag.1.Value=us", volumes[0]);
    w.ok("CreateTags", &tag("source"));
    let set = world::set_of(NODE_A) + "&DryRun=true";
    let tagged = format!("{set}&{}", TAGGED.replace("=volume", "=snapshot"));
    let copied = format!("{set}&CopyTagsFromSource=volume");
    for (create_action, may) in [("CreateSnapshot", false), ("CreateSnapshots", true)] {
        let statements = json!([
            {"Effect": "Allow", "Action": "ec2:CreateSnapshots", "Resource": ["arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:volume/*"]},
            {"Effect": "Allow", "Action": "ec2:CreateSnapshots", "Resource": "arn:*:ec2:*:*:snapshot/*",
             "Condition": {"StringEquals": {"aws:RequestTag/owner": "us"}}},
            {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "arn:*:ec2:*:*:snapshot/*",
             "Condition": {"StringEquals": {"ec2:CreateAction": create_action}}},
        ]);
        allow(&mut w, &statements);
        assert_eq!(allowed(&mut w, "CreateSnapshots", &tagged), may, "{create_action}");
        assert!(!allowed(&mut w, "CreateSnapshots", &set), "without the tag");
        assert!(!allowed(&mut w, "CreateSnapshots", &copied), "a copied tag is not requested");
    }
    allow(&mut w, &json!([{"Effect": "Allow", "Action": "ec2:CreateSnapshots", "Resource": "*"}]));
    assert!(allowed(&mut w, "CreateSnapshots", &set));
    assert!(!allowed(&mut w, "CreateSnapshots", &copied), "copied tags need CreateTags");
}
