//! Expansions and modifications: requests that belong together make one change in EC2.

use serde_json::json;
use tonic::Code;

use ebs_csi_proto::modify::{
    GetCsiDriverModificationCapabilityRequest, ModifyVolumePropertiesRequest,
};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;

use crate::driver::{
    Driver, assert_refused, assert_status, block, map, volume, with_latency, within,
};

/// A class that changes the performance and a tag.
const CLASS: &[(&str, &str)] = &[("iops", "4000"), ("tagSpecification_1", "tier=gold")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_size_and_performance_changes_make_1_modification() {
    let (driver, id) = Driver::with_volume(10).await;
    let (grown, modified) = tokio::join!(
        driver.expand(&id, 20),
        driver.modify(
            &id,
            &[("iops", "4000"), ("throughput", "200"), ("tagSpecification_1", "tier=gold")]
        )
    );
    assert_eq!(grown.unwrap().capacity_bytes, 20 << 30);
    modified.unwrap();
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    let now = driver.look(&id).await;
    assert_eq!((now.size.0, now.iops, now.throughput), (20, Some(4000), Some(200)));
    assert_eq!(now.tags["tier"], "gold");
    // Repeated requests find their change done.
    driver.expand(&id, 20).await.unwrap();
    driver.modify(&id, &[("iops", "4000"), ("throughput", "200")]).await.unwrap();
    driver.modify(&id, &[]).await.unwrap();
    assert_eq!(driver.expand(&id, 5).await.unwrap().capacity_bytes, 20 << 30);
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_expansion_from_many_callers_modifies_once() {
    let (driver, id) = Driver::with_volume_in(10, with_latency("modify", 300)).await;
    let (a, b, c) =
        tokio::join!(driver.expand(&id, 20), driver.expand(&id, 20), driver.expand(&id, 20));
    for answer in [a, b, c] {
        assert_eq!(answer.unwrap().capacity_bytes, 20 << 30);
    }
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_during_modification_wait_for_its_end() {
    let (driver, id) = Driver::with_volume_in(10, with_latency("modify", 1000)).await;
    let later = async {
        driver.until_called("ModifyVolume", 1).await;
        tokio::join!(driver.modify(&id, &[("iops", "4000")]), driver.expand(&id, 30))
    };
    let (first, (modified, grown)) = tokio::join!(driver.expand(&id, 20), later);
    assert_eq!(first.unwrap().capacity_bytes, 20 << 30);
    modified.unwrap();
    assert_eq!(grown.unwrap().capacity_bytes, 30 << 30);
    let now = driver.look(&id).await;
    assert_eq!((now.size.0, now.iops), (30, Some(4000)));
    // EC2 never received a second modification while the first was in progress.
    let sent = &driver.world.get("/v1/statistics")["actions"]["ModifyVolume"];
    assert!(sent["calls"].as_u64().unwrap() >= 2, "{sent}");
    assert_eq!(sent["calls"], sent["ok"], "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_conflicting_modification_is_aborted() {
    // Long enough for the second request to arrive during the first, also on a busy machine.
    let (driver, id) = Driver::with_volume_in(10, with_latency("modify", 2000)).await;
    let later = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        driver.modify(&id, &[("iops", "5000")]).await
    };
    let (first, second) = tokio::join!(driver.modify(&id, &[("iops", "4000")]), later);
    first.unwrap();
    assert_eq!(second.unwrap_err().code(), Code::Aborted);
    assert_eq!(driver.look(&id).await.iops, Some(4000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_modification_changes_nothing_and_expansion_succeeds() {
    let (driver, id) = Driver::with_volume(10).await;
    let wrong: &[(&str, &str)] = &[("throughput", "9999"), ("tagSpecification_1", "tier=gold")];
    assert_refused(driver.modify(&id, wrong).await, Code::InvalidArgument, &[]);
    let (grown, modified) = tokio::join!(driver.expand(&id, 20), driver.modify(&id, wrong));
    assert_eq!(grown.unwrap().capacity_bytes, 20 << 30);
    assert_eq!(modified.unwrap_err().code(), Code::InvalidArgument);
    assert!(!driver.look(&id).await.tags.contains_key("tier"));
    assert_refused(driver.modify(&id, &[("speed", "9")]).await, Code::InvalidArgument, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modification_with_lost_reply_is_not_repeated() {
    let (driver, id) = Driver::with_volume(10).await;
    let lost = json!({ "kind": "lose_reply", "how": "close", "effect": true });
    driver.world.fault_once("ModifyVolume", &lost);
    assert_eq!(driver.expand(&id, 20).await.unwrap().capacity_bytes, 20 << 30);
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_modification_and_exhausted_quota_are_internal_errors() {
    let one_a_day = json!({ "quotas": { "modifications_per_day": 1 } });
    let (driver, id) = Driver::with_volume_in(10, one_a_day).await;
    driver.world.fault_once("ModifyVolume", &json!({ "kind": "fail_modify", "after_ms": 10 }));
    assert_refused(driver.expand(&id, 20).await, Code::Internal, &[]);
    assert_refused(driver.expand(&id, 20).await, Code::Internal, &["24 hours"]);
    assert_eq!(driver.look(&id).await.size.0, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tag_changes_make_no_modify_volume_call() {
    let (driver, id) = Driver::with_volume(10).await;
    let tags = [("tagSpecification_1", "a=1"), ("tagSpecification_2", "b=2")];
    driver.modify(&id, &tags).await.unwrap();
    driver.modify(&id, &[("tagDeletion_1", "a")]).await.unwrap();
    let tags = driver.look(&id).await.tags;
    assert!(!tags.contains_key("a") && tags["b"] == "2");
    assert_eq!(driver.world.calls("ModifyVolume"), 0);
}

/// modify.v1.Modify, the service of the volume-modifier sidecar, takes the same parameters and
/// refuses unknown volumes and parameters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_modifier_and_csi_requests_share_1_modification() {
    let (driver, id) = Driver::with_volume(10).await;
    let mut modifier = driver.modifier.clone();
    let request = within(GetCsiDriverModificationCapabilityRequest {}, 5);
    modifier.get_csi_driver_modification_capability(request).await.unwrap();
    let mut modify = async |name: &str, parameters: &[(&str, &str)]| {
        let request = ModifyVolumePropertiesRequest {
            name: name.to_owned(),
            parameters: map(parameters),
            context: map(&[("any", "thing")]),
        };
        modifier.modify_volume_properties(within(request, 30)).await
    };
    // The same request through both services at once makes one modification.
    let (old, new) = tokio::join!(modify(&id, CLASS), driver.modify(&id, CLASS));
    old.unwrap();
    new.unwrap();
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    let now = driver.look(&id).await;
    assert_eq!((now.iops, now.tags["tier"].as_str()), (Some(4000), "gold"));
    for (name, parameters, code, word) in [
        ("", CLASS, Code::InvalidArgument, "name"),
        (&id, &[("speed", "9")], Code::InvalidArgument, "speed"),
        ("nonsense", CLASS, Code::NotFound, "nonsense"),
        ("vol-0fffffffffffffff1", CLASS, Code::NotFound, "vol-0fffffffffffffff1"),
        ("local-ebs://dev/xvdb", CLASS, Code::InvalidArgument, "local-ebs"),
    ] {
        assert_refused(modify(name, parameters).await, code, &[word]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_tags_after_modification_report_modified_volume() {
    let (driver, id) = Driver::with_volume(10).await;
    // The first call is the dry run.
    driver.world.fault(json!({ "match": { "action": "CreateTags" }, "skip": 1, "fault": { "kind": "error", "code": "InvalidParameterValue", "status": 400 } }));
    let refused = driver.modify(&id, CLASS).await.unwrap_err();
    let text = "the volume is modified, its tags are not yet";
    assert_status(&refused, Code::InvalidArgument, &[text]);
    assert_eq!(driver.look(&id).await.iops, Some(4000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_tags_leave_volume_unchanged() {
    let (driver, id) = Driver::with_volume(10).await;
    let class = &[CLASS, &[("tagDeletion_1", "old")]].concat();
    for action in ["CreateTags", "DeleteTags"] {
        driver.world.clear_faults();
        driver.world.deny(action);
        let refused = driver.modify(&id, class).await.unwrap_err();
        let words = [&format!("ec2:{action}"), "nothing is changed"];
        assert_status(&refused, Code::PermissionDenied, &words);
    }
    // An expansion that comes with the class change still succeeds.
    let (grown, refused) = tokio::join!(driver.expand(&id, 11), driver.modify(&id, class));
    assert_eq!(grown.unwrap().capacity_bytes, 11 << 30);
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let before = driver.look(&id).await;
    driver.world.clear_faults();
    let many: Vec<_> =
        (0..50).map(|n| (format!("tagSpecification_{n}"), format!("t{n}=v"))).collect();
    let mut many: Vec<_> = many.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    many.push(("iops", "4000"));
    assert_refused(driver.modify(&id, &many).await, Code::InvalidArgument, &["EC2 takes 50"]);
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    assert_eq!(driver.look(&id).await, before);
    driver.modify(&id, class).await.unwrap();
    assert_eq!(driver.look(&id).await.tags["tier"], "gold");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn class_applies_equally_to_new_and_existing_volumes() {
    let driver = Driver::new().await;
    let class: &[(&str, &str)] = &[
        ("volumeType", "io2"),
        ("iopspergb", "50"),
        ("allowautoiopsincreaseonmodify", "true"),
        ("tagSpecification_1", "tier=gold"),
        ("tagDeletion_1", "old"),
        ("csi.storage.k8s.io/pvc/name", "data"),
    ];
    let create = async |name: &str, class: &[(&str, &str)]| {
        let request =
            csi::CreateVolumeRequest { mutable_parameters: map(class), ..volume(name, 10) };
        driver.create(request).await
    };
    let made = create("pvc-new", class).await.unwrap().volume_id;
    let there = create("pvc-old", &[]).await.unwrap().volume_id;
    driver.modify(&there, class).await.unwrap();
    for id in [&made, &there] {
        let now = driver.look(id).await;
        assert_eq!((now.kind.as_str(), now.iops), ("io2", Some(500)), "{id}");
        assert_eq!(now.tags["tier"], "gold");
        assert_eq!(now.tags["ebs.csi.aws.com/IOPSPerGb"], "50");
        assert_eq!(now.tags["ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify"], "true");
        // The ratio is kept when the volume grows …
        driver.expand(id, 20).await.unwrap();
        let now = driver.look(id).await;
        assert_eq!(now.iops, Some(1000), "{id}");
        assert_eq!(now.tags["ebs.csi.aws.com/IOPSPerGb"], "50");
        // … until a class names the rate itself.
        driver.modify(id, &[("iops", "700")]).await.unwrap();
        let now = driver.look(id).await;
        assert!(!now.tags.contains_key("ebs.csi.aws.com/IOPSPerGb"), "{id}");
        driver.expand(id, 30).await.unwrap();
        assert_eq!(driver.look(id).await.iops, Some(700), "{id}");
    }
    // Create and modify refuse the same parameters.
    for wrong in [("Type", "gp3"), ("encrypted", "true"), ("iops", "-1")] {
        let new = create("pvc-wrong", &[wrong]).await.unwrap_err();
        let old = driver.modify(&there, &[wrong]).await.unwrap_err();
        assert_eq!((new.code(), new.message()), (old.code(), old.message()));
        assert_eq!(new.code(), Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modify_during_optimization_is_refused_with_progress() {
    let slow = json!({ "quotas": { "modifications_per_day": 1 }, "latency": { "modify_complete": { "fixed_ms": 1500 } } });
    let (driver, id) = Driver::with_volume_in(10, slow).await;
    driver.expand(&id, 20).await.unwrap();
    let early = driver.modify(&id, CLASS).await.unwrap_err();
    assert_status(&early, Code::Internal, &["still optimizing", "%, begun 20", " ends"]);
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    assert!(!driver.look(&id).await.tags.contains_key("tier"));
    // A request that changes nothing succeeds meanwhile.
    assert_eq!(driver.expand(&id, 20).await.unwrap().capacity_bytes, 20 << 30);
    let used_up = loop {
        let refused = driver.modify(&id, CLASS).await.unwrap_err();
        if !refused.message().contains("still optimizing") {
            break refused;
        }
    };
    assert_status(&used_up, Code::Internal, &["takes the next one at 20"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expand_and_modify_map_refusals_to_same_codes() {
    let (driver, id) = Driver::with_volume(10).await;
    for (code, want) in [
        ("InvalidParameterValue", Code::InvalidArgument),
        ("InvalidParameterCombination", Code::InvalidArgument),
        ("UnknownVolumeType", Code::InvalidArgument),
        ("UnsupportedOperation", Code::InvalidArgument),
        ("ValidationError", Code::InvalidArgument),
        // A final code, so that the resizer lets the user withdraw the request.
        ("VolumeModificationSizeLimitExceeded", Code::Internal),
        ("MaxIOPSLimitExceeded", Code::Internal),
        ("VolumeModificationRateExceeded", Code::Internal),
        ("IncorrectModificationState", Code::Unavailable),
        ("UnauthorizedOperation", Code::PermissionDenied),
        ("InvalidVolume.NotFound", Code::NotFound),
    ] {
        driver.world.clear_faults();
        driver.world.refuse("ModifyVolume", code, 400);
        let grown = driver.expand(&id, 20).await.unwrap_err();
        let modified = driver.modify(&id, &[("iops", "4000")]).await.unwrap_err();
        assert_eq!((grown.code(), modified.code()), (want, want), "{code}: {grown}");
    }
    driver.world.clear_faults();
    let request =
        csi::ControllerExpandVolumeRequest { volume_id: id.clone(), ..Default::default() };
    let nothing = driver.call(request).await;
    assert_eq!(nothing.unwrap_err().code(), Code::InvalidArgument);
    // A missing size does not mean a size of zero.
    let request = csi::ControllerExpandVolumeRequest {
        volume_id: id,
        capacity_range: Some(csi::CapacityRange::default()),
        volume_capability: Some(block(Mode::SingleNodeWriter)),
        ..Default::default()
    };
    let present = driver.call(request).await.unwrap();
    assert_eq!((present.capacity_bytes, present.node_expansion_required), (10 << 30, false));
    assert_eq!(driver.world.calls("ModifyVolume"), 22);
}
