//! Volumes, attachments, snapshots, instances, tags and pages, as the account sees them.

mod world;

use serde_json::{Value, json};
use world::{NODE_A, NODE_B, World, all, text};

fn fixed(latency: Value) -> World {
    World::with(json!({"latency": latency}))
}

fn attach(w: &mut World, volume: &str, instance: &str, device: &str) {
    w.ok("AttachVolume", &world::attach(volume, instance, device));
}

/// Returns the state of `/dev/xvdba` in the description of its instance.
fn mapping_status(w: &mut World) -> String {
    let mapping = w.of_instance(NODE_A);
    text(mapping.split("<deviceName>/dev/xvdba").nth(1).expect("mapped"), "status")
}

/// Returns the texts of all `status` elements of a volume's description: the volume's own state,
/// then those of its attachments.
fn states(w: &mut World, volume: &str) -> Vec<String> {
    all(&w.ok("DescribeVolumes", &format!("VolumeId.1={volume}")), "status")
}

#[test]
fn volume_is_in_use_while_attaching_and_detaching() {
    let mut w = fixed(json!({"attach":{"fixed_ms":100},"detach":{"fixed_ms":100}}));
    let v = w.volume("");
    attach(&mut w, &v, NODE_A, "/dev/xvdba");
    assert_eq!(states(&mut w, &v), ["in-use", "attaching"]);
    w.step(100);
    assert_eq!(states(&mut w, &v), ["in-use", "attached"]);
    let reply = w.ok("DetachVolume", &format!("VolumeId={v}&InstanceId={NODE_A}"));
    assert_eq!(text(&reply, "status"), "detaching");
    w.step(99);
    assert_eq!(states(&mut w, &v), ["in-use", "detaching"]);
    w.ok("DetachVolume", &format!("VolumeId={v}"));
    w.step(1);
    assert_eq!(states(&mut w, &v), ["available"], "a detached attachment is not shown");
}

#[test]
fn a_stuck_attachment_stays_until_it_is_detached() {
    let mut w = World::new();
    let v = w.volume("");
    w.fault(r#"{"match":{"action":"AttachVolume"},"count":1,"fault":{"kind":"stuck_attach"}}"#);
    attach(&mut w, &v, NODE_A, "/dev/xvdba");
    w.step(3_600_000);
    assert_eq!(states(&mut w, &v), ["in-use", "attaching"]);
    w.ok("DetachVolume", &format!("VolumeId={v}&Force=true"));
    w.step(1);
    assert_eq!(states(&mut w, &v), ["available"]);
}

#[test]
fn instance_mapping_shows_attached_before_volume() {
    let mut w = fixed(json!({"attach":{"fixed_ms":100}}));
    let v = w.volume("");
    w.fault(r#"{"fault":{"kind":"skew_attach","ms":50}}"#);
    attach(&mut w, &v, NODE_A, "/dev/xvdba");
    w.step(100);
    assert_eq!(mapping_status(&mut w), "attached");
    assert_eq!(states(&mut w, &v), ["in-use", "attaching"]);
    w.step(50);
    assert_eq!(states(&mut w, &v), ["in-use", "attached"]);
}

#[test]
fn a_stuck_detachment_shows_detaching_or_busy() {
    for (busy, shown) in [("false", "detaching"), ("true", "busy")] {
        let mut w = World::new();
        let v = w.volume("");
        attach(&mut w, &v, NODE_A, "/dev/xvdba");
        w.step(1);
        w.fault(&format!(r#"{{"fault":{{"kind":"stuck_detach","for_ms":1000,"busy":{busy}}}}}"#));
        w.ok("DetachVolume", &format!("VolumeId={v}"));
        w.step(999);
        assert_eq!(states(&mut w, &v), ["in-use", shown]);
        assert_eq!(mapping_status(&mut w), "detaching");
        w.step(1);
        assert_eq!(states(&mut w, &v), ["available"]);
    }
}

#[test]
fn multi_attach_volume_needs_instance_to_detach() {
    let zone = "us-east-1a";
    let instances = [NODE_A, NODE_B].map(|id| json!({"id": id, "zone": zone}));
    let mut w = World::with(json!({"instances": instances}));
    let v = w.volume("VolumeType=io2&Iops=100&MultiAttachEnabled=true");
    attach(&mut w, &v, NODE_A, "/dev/xvdba");
    attach(&mut w, &v, NODE_B, "/dev/xvdba");
    w.step(1);
    w.refused("AttachVolume", &world::attach(&v, NODE_B, "/dev/xvdbb"), "VolumeInUse");
    w.refused("DetachVolume", &format!("VolumeId={v}"), "MissingParameter");
    w.ok("DetachVolume", &format!("VolumeId={v}&InstanceId={NODE_A}"));
    w.step(1);
    assert_eq!(w.of_volume(&v, "instanceId"), NODE_B);
    w.check_invariants();
    let io1 = w.volume("VolumeType=io1&Iops=100&MultiAttachEnabled=true");
    let grow = format!("VolumeId={io1}&Size=20");
    w.refused("ModifyVolume", &grow, "UnsupportedOperation");
}

#[test]
fn terminated_instance_frees_volumes_and_expires_after_1h() {
    let mut w = World::new();
    let v = w.volume("");
    attach(&mut w, &v, NODE_A, "/dev/xvdba");
    w.step(1);
    w.ok("StopInstances", &format!("InstanceId.1={NODE_A}"));
    w.step(1);
    assert_eq!(states(&mut w, &v), ["in-use", "attached"], "a stopped instance keeps its volumes");
    let reply = w.ok("TerminateInstances", &format!("InstanceId.1={NODE_A}"));
    assert_eq!(all(&reply, "name"), ["shutting-down", "stopped"]);
    w.step(1);
    assert_eq!(states(&mut w, &v), ["available"]);
    let roots = w.sim.realm().volumes().values().filter(|v| v.root);
    assert_eq!(roots.count(), 1, "the other instance's");
    assert_eq!(text(&w.of_instance(NODE_A), "name"), "terminated");
    w.refused("AttachVolume", &world::attach(&v, NODE_A, "/dev/xvdba"), "IncorrectState");
    w.step(3_600_000);
    w.refused("DescribeInstances", &format!("InstanceId.1={NODE_A}"), "InvalidInstanceID.NotFound");
}

#[test]
fn restored_volume_is_at_least_snapshot_size() {
    let mut w = fixed(json!({"snapshot":{"fixed_ms":100},"initialize_per_gib":{"fixed_ms":50}}));
    let v = w.volume("Encrypted=true");
    let s = text(&w.ok("CreateSnapshot", &format!("VolumeId={v}&Description=d")), "snapshotId");
    let restore = format!("AvailabilityZone=us-east-1b&SnapshotId={s}&Size=2");
    let message = "Snapshot is in invalid state - pending";
    w.refused_as("CreateVolume", &restore, "IncorrectState", message);
    w.step(100);
    let body = w.ok("CreateVolume", &restore);
    assert_eq!(text(&body, "size"), "4");
    assert_eq!(text(&body, "encrypted"), "true");
    let r = text(&body, "volumeId");
    w.step(100);
    let status = w.ok("DescribeVolumeStatus", &format!("VolumeId.1={r}"));
    assert_eq!(text(&status, "initializationType"), "default");
    assert_eq!(text(&status, "progress"), "50");
    assert!(status.contains("<name>initialization-state</name><status>initializing</status>"));
    w.ok("DeleteSnapshot", &format!("SnapshotId={s}"));
    w.refused("DeleteSnapshot", &format!("SnapshotId={s}"), "InvalidSnapshot.NotFound");
}

#[test]
fn requested_initialization_rate_is_shown() {
    let mut w = World::with(json!({"zones": [
        {"name": "us-east-1a", "id": "use1-az6"}, {"name": "us-east-1b", "id": "use1-az1"},
        {"name": "us-east-1-bos-1a", "id": "use1-bos1-az1", "type": "local-zone"},
    ]}));
    let v = w.volume("");
    assert!(!w.ok("DescribeVolumes", &format!("VolumeId.1={v}")).contains("InitializationRate"));
    let s = w.snapshot(&v);
    w.step(1);
    let fast = format!("SourceSnapshotId.1={s}&AvailabilityZone.1=us-east-1b");
    w.ok("EnableFastSnapshotRestores", &fast);
    let restore = format!("SnapshotId={s}&VolumeInitializationRate=200&AvailabilityZone=");
    let body = w.ok("CreateVolume", &format!("{restore}us-east-1b"));
    assert_eq!(text(&body, "volumeInitializationRate"), "200");
    let r = text(&body, "volumeId");
    assert_eq!(w.of_volume(&r, "volumeInitializationRate"), "200");
    let status = w.ok("DescribeVolumeStatus", &format!("VolumeId.1={r}"));
    assert_eq!(text(&status, "initializationType"), "provisioned-rate");
    let local = format!("{restore}us-east-1-bos-1a");
    w.refused("CreateVolume", &local, "InvalidParameterCombination");
}

#[test]
fn a_locked_snapshot_stays_until_the_lock_expires() {
    let mut w = fixed(json!({"snapshot":{"fixed_ms":5_000}}));
    let v = w.volume("");
    let s = w.snapshot(&v);
    let lock = |mode: &str| format!("SnapshotId={s}&LockMode={mode}");
    let state = |w: &mut World| text(&w.ok("DescribeLockedSnapshots", ""), "lockState");
    let reply = w.ok("LockSnapshot", &format!("{}&LockDuration=1", lock("governance")));
    assert_eq!(text(&reply, "lockState"), "governance");
    assert_eq!(text(&reply, "lockDuration"), "1");
    assert!(!reply.contains("lockDurationStartTime"), "{reply}");
    w.refused("DeleteSnapshot", &format!("SnapshotId={s}"), "SnapshotLocked");
    assert_eq!(all(&w.ok("DescribeLockedSnapshots", ""), "snapshotId"), std::slice::from_ref(&s));
    w.step(5_000);
    let completed = w.now;
    w.step(24 * 3_600_000 - 1);
    assert_eq!(state(&mut w), "governance", "the days began with the completed snapshot");
    let shown = w.ok("DescribeLockedSnapshots", "");
    assert_eq!(text(&shown, "lockDurationStartTime"), completed.iso());
    w.step(1);
    assert_eq!(state(&mut w), "expired");

    let compliance = format!("{}&LockDuration=1&CoolOffPeriod=2", lock("compliance"));
    assert_eq!(text(&w.ok("LockSnapshot", &compliance), "coolOffPeriod"), "2");
    for (hours, shown) in [(1, "compliance-cooloff"), (2, "compliance"), (21, "expired")] {
        w.step(hours * 3_600_000);
        assert_eq!(state(&mut w), shown);
    }

    // A date that was 24 hours ahead when somebody wrote it down.
    let until = w.now.plus(24 * 3_600_000);
    w.step(3_000);
    let dated = format!("{}&ExpirationDate=", lock("governance"));
    let reply = w.ok("LockSnapshot", &format!("{dated}{}", until.iso()));
    assert_eq!(text(&reply, "lockExpiresOn"), until.iso());
    assert!(!reply.contains("lockDuration"), "{reply}");
    w.refused("LockSnapshot", &format!("{dated}{}", w.now.iso()), "InvalidParameterValue");
    w.step(24 * 3_600_000 - 3_000);
    assert_eq!(state(&mut w), "expired");
    w.ok("DeleteSnapshot", &format!("SnapshotId={s}"));
}

#[test]
fn unlock_removes_lock_until_compliance_begins() {
    let mut w = World::new();
    let v = w.volume("");
    let s = w.snapshot(&v);
    w.step(1);
    let of_s = format!("SnapshotId={s}");
    w.refused("UnlockSnapshot", &of_s, "IncorrectState");
    for lock in ["governance", "compliance&CoolOffPeriod=1"] {
        w.ok("LockSnapshot", &format!("{of_s}&LockMode={lock}&LockDuration=1"));
        assert_eq!(text(&w.ok("UnlockSnapshot", &of_s), "snapshotId"), s);
        assert!(!w.ok("DescribeLockedSnapshots", "").contains("lockState"), "{lock}");
    }
    w.ok("LockSnapshot", &format!("{of_s}&LockMode=compliance&LockDuration=1"));
    w.refused("UnlockSnapshot", &of_s, "OperationNotPermitted");
    w.refused("DeleteSnapshot", &of_s, "SnapshotLocked");
    w.step(24 * 3_600_000);
    w.refused("UnlockSnapshot", &of_s, "IncorrectState");
    w.ok("DeleteSnapshot", &of_s);
}

#[test]
fn archived_snapshot_cannot_be_used_until_restored() {
    let latency = json!({"snapshot_archive":{"fixed_ms":50},"snapshot_restore":{"fixed_ms":100}});
    let mut w = fixed(latency);
    let v = w.volume("");
    let s = w.snapshot(&v);
    w.step(1);
    let of_s = format!("SnapshotId={s}");
    let restore = format!("{of_s}&AvailabilityZone=us-east-1a");
    let back = format!("{of_s}&PermanentRestore=true");
    let archive = format!("{of_s}&StorageTier=archive");
    let tier = |w: &mut World| {
        text(&w.ok("DescribeSnapshots", &format!("SnapshotId.1={s}")), "storageTier")
    };
    let fast = format!("SourceSnapshotId.1={s}&AvailabilityZone.1=us-east-1a");
    w.ok("EnableFastSnapshotRestores", &fast);
    for _ in 0..2 {
        assert_eq!(tier(&mut w), "standard");
        w.refused("RestoreSnapshotTier", &back, "IncorrectState");
        w.ok("ModifySnapshotTier", &archive);
        w.refused("ModifySnapshotTier", &archive, "IncorrectState");
        w.ok("CreateVolume", &restore);
        w.step(50);
        assert_eq!(tier(&mut w), "archive");
        w.refused("CreateVolume", &restore, "IncorrectState");
        w.ok("RestoreSnapshotTier", &back);
        w.step(99);
        assert_eq!(tier(&mut w), "archive");
        w.step(1);
        w.ok("CreateVolume", &restore);
    }
    let fast = w.ok("DescribeFastSnapshotRestores", "");
    assert!(!fast.contains(&s), "an archived snapshot has no fast restores: {fast}");
}

#[test]
fn fast_snapshot_restore_reports_failures_in_200_response() {
    let mut w = World::new();
    let v = w.volume("");
    let s = w.snapshot(&v);
    let of_s = format!("SourceSnapshotId.1={s}&AvailabilityZone.1=us-east-1a");
    let two_zones = format!("{of_s}&AvailabilityZone.2=mars-1a");
    let body = w.ok("EnableFastSnapshotRestores", &two_zones);
    let (good, bad) = body.split_once("<unsuccessful>").expect("one failed");
    assert_eq!(text(good, "availabilityZone"), "us-east-1a");
    assert_eq!(text(bad, "availabilityZone"), "mars-1a");
    assert_eq!(text(bad, "code"), "InvalidZone.NotFound");
    w.fault(r#"{"count":1,"fault":{"kind":"unsuccessful","code":"Client.InvalidSnapshot","message":"no"}}"#);
    let body = w.ok("EnableFastSnapshotRestores", &of_s);
    assert!(body.contains("<successful/>"), "{body}");
    assert!(body.contains("<code>Client.InvalidSnapshot</code>"), "{body}");
    w.step(1);
    assert_eq!(text(&w.ok("DescribeFastSnapshotRestores", ""), "state"), "enabled");
}

#[test]
fn copies_run_1_per_source_5_per_region() {
    let mut w = fixed(json!({"initialize_per_gib":{"fixed_ms":1000}}));
    let sources: Vec<String> = (0..6).map(|_| w.volume("")).collect();
    let copy = |w: &mut World, v: &str| {
        w.call("CopyVolumes", &format!("SourceVolumeId={v}&VolumeType=gp3"))
    };
    let (_, body) = copy(&mut w, &sources[0]);
    assert_eq!(text(&body, "sourceVolumeId"), sources[0]);
    assert_eq!(text(&body, "availabilityZone"), "us-east-1a");
    assert_eq!(text(&copy(&mut w, &sources[0]).1, "Code"), "IncorrectState");
    for s in &sources[1..5] {
        assert_eq!(copy(&mut w, s).0, 200);
    }
    assert_eq!(text(&copy(&mut w, &sources[5]).1, "Code"), "CopyVolumesLimitExceeded");
    w.step(4_000);
    assert_eq!(copy(&mut w, &sources[5]).0, 200);
}

/// EC2 shows a key by its ARN, also where the request has an id or an alias.
#[test]
fn copy_has_requested_encryption_and_shows_key_arn() {
    let under =
        |key: &str| ("true".to_owned(), format!("arn:aws:kms:us-east-1:111122223333:key/{key}"));
    let mut w = World::new();
    let encrypted = |body: &str| (text(body, "encrypted"), text(body, "kmsKeyId"));
    for (source, copy, shown) in [
        ("", "", ("false".to_owned(), String::new())),
        ("", "Encrypted=true", ("true".to_owned(), String::new())),
        ("", "Encrypted=true&KmsKeyId=k", under("k")),
        ("", "Encrypted=true&KmsKeyId=alias/x", under("of-alias-x")),
        ("Encrypted=true&KmsKeyId=k", "", under("k")),
        ("Encrypted=true&KmsKeyId=k", "Encrypted=true&KmsKeyId=l", under("l")),
    ] {
        let v = w.volume(source);
        let p = format!("SourceVolumeId={v}&VolumeType=gp3&{copy}");
        assert_eq!(encrypted(&w.ok("CopyVolumes", &p)), shown, "{source} {copy}");
    }
    let v = w.volume("");
    w.fault(r#"{"fault":{"kind":"keep_source_key"}}"#);
    let p = format!("SourceVolumeId={v}&VolumeType=gp3&Encrypted=true");
    assert_eq!(encrypted(&w.ok("CopyVolumes", &p)).0, "false");
}

#[test]
fn create_tags_merges_and_delete_tags_removes_keys() {
    let mut w = World::new();
    let v = w.volume("");
    for tags in ["Tag.1.Key=a&Tag.1.Value=1&Tag.2.Key=b&Tag.2.Value=3", "Tag.1.Key=a&Tag.1.Value=3"]
    {
        w.ok("CreateTags", &format!("ResourceId.1={v}&{tags}"));
    }
    w.ok("DeleteTags", &format!("ResourceId.1={v}&Tag.1.Key=b&Tag.2.Key=never"));
    // A tag of another value stays.
    w.ok("DeleteTags", &format!("ResourceId.1={v}&Tag.1.Key=a&Tag.1.Value="));
    for (filter, found) in [("tag:a", 1), ("tag:b", 0)] {
        let body = w.ok("DescribeVolumes", &format!("Filter.1.Name={filter}&Filter.1.Value.1=3"));
        assert_eq!(all(&body, "volumeId").len(), found, "{filter}");
    }
    w.ok("DeleteTags", &format!("ResourceId.1={v}&Tag.1.Key=a&Tag.1.Value=3"));
    assert_eq!(w.of_volume(&v, "key"), "");
}

#[test]
fn pages_cover_all_volumes_before_tag_filter_applies() {
    let mut w = World::new();
    for i in 0..12 {
        let value = if i == 11 { "last" } else { "other" };
        w.volume(&world::tagged("volume", &[("k", value)]));
    }
    let pages = |w: &mut World, filter: Option<&str>| {
        let (mut ids, mut pages, mut token) = (Vec::new(), 0, String::new());
        loop {
            let mut p = format!("MaxResults=5&NextToken={token}");
            if let Some(value) = filter {
                p += &format!("&Filter.1.Name=tag:k&Filter.1.Value.1={value}");
            }
            let body = w.ok("DescribeVolumes", &p);
            ids.extend(all(&body, "volumeId"));
            pages += 1;
            token = text(&body, "nextToken");
            if token.is_empty() {
                break (ids, pages);
            }
        }
    };
    let (ids, n) = pages(&mut w, None);
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    // Twelve volumes, and the two root volumes, which their attachments name again.
    assert_eq!((ids.len(), distinct.len(), n), (16, 14, 3));
    let (found, n) = pages(&mut w, Some("last"));
    assert_eq!((found.len(), n), (1, 3), "the filter comes after the page was cut");
}

#[test]
fn zones_are_shown_with_their_kind() {
    let zone = |name: &str, kind: &str| json!({"name": name, "id": name, "type": kind});
    let kinds = ["availability-zone", "local-zone", "wavelength-zone"];
    let mut zones = kinds.map(|kind| zone(kind, kind)).to_vec();
    zones.push(json!({"name": "us-east-1a", "id": "use1-az6"}));
    let mut w = World::with(json!({"zones": zones, "instances": []}));
    let body = w.ok("DescribeAvailabilityZones", "");
    assert_eq!(all(&body, "zoneType"), [&kinds[..], &["availability-zone"]].concat());
    let opted = ["opt-in-not-required", "opted-in", "opted-in", "opt-in-not-required"];
    assert_eq!(all(&body, "optInStatus"), opted);
}

/// Returns volume, snapshot, state and start time of each member of a set.
fn members(reply: &str) -> Vec<[String; 4]> {
    let items = reply.split("<volumeId>").skip(1).map(|item| format!("<volumeId>{item}"));
    items
        .map(|item| ["volumeId", "snapshotId", "state", "startTime"].map(|name| text(&item, name)))
        .collect()
}

#[test]
fn snapshot_set_takes_attached_volumes_not_excluded() {
    let mut w = fixed(json!({"snapshot": {"fixed_ms": 100}, "attach": {"fixed_ms": 50}}));
    let attached = w.attached(NODE_A, 3);
    let (root, free) = (w.root(NODE_A), w.volume(""));
    let whole = format!("InstanceSpecification.InstanceId={NODE_A}");
    let data = world::set_of(NODE_A);
    let mut with_root = attached.clone();
    with_root.push(root);
    with_root.sort();
    let starts = w.now.iso();
    for (parameters, expected) in [
        (whole, &with_root[..]),
        (data.clone(), &attached[..]),
        (format!("{data}{}", world::without(&attached[1..])), &attached[..1]),
    ] {
        let reply = w.ok("CreateSnapshots", &format!("{parameters}&Description=one+%26+two"));
        let set = members(&reply);
        let volumes: Vec<&str> = set.iter().map(|[volume, ..]| volume.as_str()).collect();
        assert_eq!(volumes, expected, "{parameters}");
        let is_new = |[_, _, state, start]: &[String; 4]| state == "pending" && *start == starts;
        assert!(set.iter().all(is_new), "{set:?}");
        let descriptions = all(&reply, "description");
        assert_eq!(descriptions, vec!["one & two"; expected.len()]);
        assert_eq!(all(&reply, "availabilityZone"), vec!["us-east-1a"; expected.len()]);
    }
    w.step(100);
    let ours = |id: &str| format!("Filter.1.Name=volume-id&Filter.1.Value.1={id}");
    let shown = w.ok("DescribeSnapshots", &ours(&attached[0]));
    assert_eq!(all(&shown, "status"), ["completed"; 3]);
    assert_eq!(all(&shown, "description"), ["one & two"; 3]);
    assert!(!w.ok("DescribeSnapshots", &ours(&free)).contains("snapshotId"));
    w.ok("StopInstances", &format!("InstanceId.1={NODE_A}"));
    w.step(10_000);
    w.ok("CreateSnapshots", &data);
}

#[test]
fn snapshot_set_has_requested_and_copied_tags() {
    let mut w = World::new();
    let attached = w.attached(NODE_A, 2);
    for (id, n) in attached.iter().zip(["1", "2"]) {
        let tags = world::tag_list("Tag", &[("n", n), ("k", "v")]);
        w.ok("CreateTags", &format!("ResourceId.1={id}&{tags}"));
    }
    let requested = world::tagged("snapshot", &[("k", "new")]);
    let data = world::set_of(NODE_A);
    let reply = w.ok("CreateSnapshots", &format!("{data}&{requested}"));
    assert_eq!(all(&reply, "key"), ["k"; 2]);
    assert_eq!(all(&reply, "value"), ["new"; 2]);
    let reply = w.ok("CreateSnapshots", &format!("{data}&{requested}&CopyTagsFromSource=volume"));
    assert_eq!(all(&reply, "value"), ["new", "1", "new", "2"]);
    let by_tag = "Filter.1.Name=tag:k&Filter.1.Value.1=new";
    assert_eq!(all(&w.ok("DescribeSnapshots", by_tag), "snapshotId").len(), 4);
}
