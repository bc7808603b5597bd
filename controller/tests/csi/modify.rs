//! Expansions and modifications: one change in EC2 for what belongs together.

use serde_json::json;
use tonic::Code;

use ebs_csi_proto::modify::{
    GetCsiDriverModificationCapabilityRequest, ModifyVolumePropertiesRequest,
};

use crate::driver::{Driver, map, volume, within};

async fn look(driver: &Driver, id: &str) -> ebs_csi_controller::ec2::Volume {
    let id = ebs_csi_wire::VolumeId::parse(id).unwrap();
    driver
        .world
        .ec2
        .look_volume(&id)
        .await
        .known()
        .unwrap()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn size_and_performance_that_come_together_are_one_modification() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    let (grown, modified) = tokio::join!(
        driver.expand(&id, 20),
        driver.modify(
            &id,
            &[
                ("iops", "4000"),
                ("throughput", "200"),
                ("tagSpecification_1", "tier=gold")
            ]
        )
    );
    assert_eq!(grown.unwrap().capacity_bytes, 20 << 30);
    modified.unwrap();
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    let now = look(&driver, &id).await;
    assert_eq!(
        (now.size.0, now.iops, now.throughput),
        (20, Some(4000), Some(200))
    );
    assert_eq!(now.tags["tier"], "gold");
    // The same again is done already.
    driver.expand(&id, 20).await.unwrap();
    driver
        .modify(&id, &[("iops", "4000"), ("throughput", "200")])
        .await
        .unwrap();
    driver.modify(&id, &[]).await.unwrap();
    assert_eq!(
        driver.expand(&id, 5).await.unwrap().capacity_bytes,
        20 << 30
    );
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_from_many_callers_is_one_modification() {
    let driver = Driver::in_world(json!({ "latency": { "modify": { "fixed_ms": 300 } } })).await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    let (a, b, c) = tokio::join!(
        driver.expand(&id, 20),
        driver.expand(&id, 20),
        driver.expand(&id, 20)
    );
    for answer in [a, b, c] {
        assert_eq!(answer.unwrap().capacity_bytes, 20 << 30);
    }
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_contradict_the_later_alone_fails() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    let later = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        driver.modify(&id, &[("iops", "5000")]).await
    };
    let (first, second) = tokio::join!(driver.modify(&id, &[("iops", "4000")]), later);
    first.unwrap();
    assert_eq!(second.unwrap_err().code(), Code::Aborted);
    assert_eq!(look(&driver, &id).await.iops, Some(4000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_modification_changes_nothing_and_does_not_hold_up_the_expansion() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    let wrong: &[(&str, &str)] = &[("throughput", "9999"), ("tagSpecification_1", "tier=gold")];
    let alone = driver.modify(&id, wrong).await.unwrap_err();
    assert_eq!(alone.code(), Code::InvalidArgument, "{alone}");
    let (grown, modified) = tokio::join!(driver.expand(&id, 20), driver.modify(&id, wrong));
    assert_eq!(grown.unwrap().capacity_bytes, 20 << 30);
    assert_eq!(modified.unwrap_err().code(), Code::InvalidArgument);
    assert!(!look(&driver, &id).await.tags.contains_key("tier"));
    let unknown = driver.modify(&id, &[("speed", "9")]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_of_a_modification_is_looked_for() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    driver.world.fault(json!({ "match": { "action": "ModifyVolume" }, "count": 1, "fault": { "kind": "lose_reply", "how": "close", "effect": true } }));
    assert_eq!(
        driver.expand(&id, 20).await.unwrap().capacity_bytes,
        20 << 30
    );
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_modification_and_a_used_up_allowance_are_named() {
    let driver = Driver::in_world(json!({ "quotas": { "modifications_per_day": 1 } })).await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    driver.world.fault(json!({ "match": { "action": "ModifyVolume" }, "count": 1, "fault": { "kind": "fail_modify", "after_ms": 10 } }));
    let failed = driver.expand(&id, 20).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal, "{failed}");
    let used_up = driver.expand(&id, 20).await.unwrap_err();
    assert_eq!(used_up.code(), Code::ResourceExhausted, "{used_up}");
    assert!(used_up.message().contains("24 hours"), "{used_up}");
    assert_eq!(look(&driver, &id).await.size.0, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_are_changed_without_a_modification() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    driver
        .modify(
            &id,
            &[("tagSpecification_1", "a=1"), ("tagSpecification_2", "b=2")],
        )
        .await
        .unwrap();
    driver.modify(&id, &[("tagDeletion_1", "a")]).await.unwrap();
    let tags = look(&driver, &id).await.tags;
    assert!(!tags.contains_key("a") && tags["b"] == "2");
    assert_eq!(driver.world.calls("ModifyVolume"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_volume_modifiers_service_makes_the_same_change() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    let mut modifier = driver.modifier.clone();
    modifier
        .get_csi_driver_modification_capability(within(
            GetCsiDriverModificationCapabilityRequest {},
            5,
        ))
        .await
        .unwrap();
    let mut ask = async |name: &str, parameters: &[(&str, &str)]| {
        let request = ModifyVolumePropertiesRequest {
            name: name.to_owned(),
            parameters: map(parameters),
            context: map(&[("any", "thing")]),
        };
        modifier.modify_volume_properties(within(request, 30)).await
    };
    // The same request by both services at once is one modification.
    let class: &[(&str, &str)] = &[("iops", "4000"), ("tagSpecification_1", "tier=gold")];
    let (old, new) = tokio::join!(ask(&id, class), driver.modify(&id, class));
    old.unwrap();
    new.unwrap();
    assert_eq!(driver.world.calls("ModifyVolume"), 1);
    let now = look(&driver, &id).await;
    assert_eq!((now.iops, now.tags["tier"].as_str()), (Some(4000), "gold"));
    for (name, parameters, code, word) in [
        ("", class, Code::InvalidArgument, "name"),
        (
            id.as_str(),
            &[("speed", "9")] as &[(&str, &str)],
            Code::InvalidArgument,
            "speed",
        ),
        ("nonsense", class, Code::NotFound, "nonsense"),
        (
            "vol-0fffffffffffffff1",
            class,
            Code::NotFound,
            "vol-0fffffffffffffff1",
        ),
        (
            "local-ebs://dev/xvdb",
            class,
            Code::InvalidArgument,
            "local-ebs",
        ),
    ] {
        let refused = ask(name, parameters).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(word), "{refused}");
    }
}
