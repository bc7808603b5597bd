//! A volume is detached from a node only when what EC2 shows proves that this is safe.

mod attach_limits;
mod fences;
mod socket;

use std::time::Duration;

use ebs_csi_controller::safe_detach::Mode;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::driver::{Driver, NODE_1, NODE_2, assert_refused, with_latency};

/// Creates a volume and attaches it to the first node. Returns its id.
pub(crate) async fn attached(driver: &Driver) -> String {
    let id = driver.created("pvc-1", 1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    id
}

async fn under(mode: Mode) -> Driver {
    Driver::under(mode, two_nodes()).await
}

pub(crate) fn two_nodes() -> Value {
    json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a", "hibernation": true },
        { "id": NODE_2, "type": "m5.large", "zone": "us-east-1a" },
    ] })
}

pub(crate) fn instances(ids: &[String]) -> Value {
    let instance = |id| json!({ "id": id, "type": "m5.large", "zone": "us-east-1a" });
    json!({ "instances": ids.iter().map(instance).collect::<Vec<_>>() })
}

pub(crate) fn refused(answer: Result<(), Status>, token: &str) -> String {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let start = format!("SafeDetachRefused/{token}: ");
    assert!(status.message().starts_with(&start), "{status}");
    status.message().to_owned()
}

/// Checks that the volume is still attached and that no DetachVolume was sent.
async fn assert_still_attached(driver: &Driver, id: &str) {
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    assert!(driver.world.get("/v1/state").to_string().contains(id));
    assert_refused(driver.publish(id, NODE_2).await, Code::FailedPrecondition, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ec2_only_adds_no_calls_for_running_instance() {
    // A read of the preceding publish may still be on its way.
    for attempt in 1.. {
        let off = calls_before_detach(Mode::Off).await;
        let ec2_only = calls_before_detach(Mode::Ec2Only).await;
        if ec2_only <= off {
            break;
        }
        assert!(attempt < 5, "{ec2_only} calls, {off} without safe detach");
    }
}

async fn calls_before_detach(mode: Mode) -> usize {
    let driver = under(mode).await;
    let id = attached(&driver).await;
    let last = driver.world.get("/v1/journal?limit=1")["last"].clone();
    driver.unpublish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DetachVolume"), 1);
    // The number of reads after DetachVolume depends on timing.
    let passed = driver.world.get(&format!("/v1/journal?after={last}"));
    let passed = passed["records"].as_array().unwrap();
    let detached = |record: &Value| record["action"] == "DetachVolume";
    passed.iter().position(detached).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_instance_allows_detach_in_checking_modes() {
    for mode in [Mode::Ec2Only, Mode::Enforce] {
        let driver = under(mode).await;
        let id = attached(&driver).await;
        driver.world.power(NODE_1, "stop");
        driver.unpublish(&id, NODE_1).await.unwrap();
        driver.publish(&id, NODE_2).await.unwrap();
        // A repeated unpublish succeeds at once: nothing is attached there.
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert_eq!(driver.world.calls("DetachVolume"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_detach_is_rechecked_before_resend() {
    let driver = under(Mode::Enforce).await;
    let id = attached(&driver).await;
    driver.world.power(NODE_1, "stop");
    let limit = |limits: Value| driver.world.command(|control| control.put("/v1/limits", &limits));
    let none = json!({ "capacity": 0, "refill": 0.001 });
    limit(json!({ "enabled": true, "actions": { "DetachVolume": none } }));
    let detach = async {
        let detach = driver.unpublish(&id, NODE_1).await;
        refused(detach, "no-report");
    };
    let started = async {
        driver.until_called("DetachVolume", 1).await;
        driver.world.power(NODE_1, "start");
        // Longer than the facts stay valid; then EC2 accepts the next request.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        limit(json!({ "enabled": false }));
    };
    tokio::join!(detach, started);
    let journal = driver.world.get("/v1/journal?limit=1000");
    let records = journal["records"].as_array().unwrap();
    let detaches = records.iter().filter(|r| r["action"] == "DetachVolume");
    let sent: Vec<_> = detaches.map(|record| &record["status"]).collect();
    assert!(!sent.is_empty() && sent.iter().all(|status| **status == 503), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enforce_refuses_detach_from_unconfirmed_running_instance() {
    let driver = under(Mode::Enforce).await;
    let id = attached(&driver).await;
    let text = refused(driver.unpublish(&id, NODE_1).await, "no-report");
    for part in [&id, NODE_1, "running", "stop or terminate", "node-lifecycle"] {
        assert!(text.contains(part), "{text}");
    }
    assert_still_attached(&driver, &id).await;
    // The refusal does not outlast its cause.
    driver.world.power(NODE_1, "terminate");
    driver.unpublish(&id, NODE_1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hibernated_instance_keeps_its_volumes() {
    for mode in [Mode::Ec2Only, Mode::Enforce] {
        let driver = under(mode).await;
        let id = attached(&driver).await;
        driver.world.power(NODE_1, "hibernate");
        refused(driver.unpublish(&id, NODE_1).await, "hibernated");
        assert_still_attached(&driver, &id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_elsewhere_detaches_only_from_stopped_instance() {
    for mode in [Mode::Off, Mode::Ec2Only, Mode::Enforce] {
        for (how, off) in [("", false), ("hibernate", false), ("stop", mode != Mode::Off)] {
            let driver = under(mode).await;
            let id = attached(&driver).await;
            if !how.is_empty() {
                driver.world.power(NODE_1, how);
            }
            let published = driver.publish(&id, NODE_2).await;
            let code = published.as_ref().err().map(Status::code);
            let want = (!off).then_some(Code::FailedPrecondition);
            assert_eq!(code, want, "{mode} {how}: {published:?}");
            let detaches = driver.world.calls("DetachVolume");
            assert_eq!(detaches, u64::from(off), "{mode} {how}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublish_waits_for_stopping_instance() {
    for mode in [Mode::Ec2Only, Mode::Enforce] {
        let driver = Driver::under(mode, with_latency("instance_stop", 1500)).await;
        let id = attached(&driver).await;
        driver.world.post(&format!("/v1/instances/{NODE_1}/stop"), &json!({}));
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert_eq!(driver.world.calls("DetachVolume"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detach_is_refused_for_instance_unknown_to_ec2() {
    let driver = under(Mode::Ec2Only).await;
    let id = attached(&driver).await;
    driver.world.refuse("DescribeInstances", "InvalidInstanceID.NotFound", 400);
    driver.unpublish(&id, NODE_1).await.unwrap_err();
    assert_eq!(driver.world.calls("DetachVolume"), 0);
    driver.world.clear_faults();
    driver.unpublish(&id, NODE_1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detach_under_way_is_awaited_not_repeated() {
    for mode in [Mode::Ec2Only, Mode::Enforce] {
        let driver = Driver::under(mode, with_latency("detach", 1500)).await;
        let id = attached(&driver).await;
        driver.world.as_foreign("DetachVolume", &json!({ "VolumeId": id }));
        let before = driver.world.calls("DetachVolume");
        driver.unpublish(&id, NODE_1).await.unwrap();
        assert_eq!(driver.world.calls("DetachVolume"), before);
    }
}
