//! EC2 is unreachable or answers wrongly: what is not known is not acted on, and what was left
//! undone follows once it is known.
//!
//! These scenarios concern every node, so they run one after the other.

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new(
            "F10_F11_controller_without_EC2_and_node_without_kubernetes",
            cut_off_from_ec2(world),
        ),
        Scenario::new("F29_throttling_delays_failover", throttled(world)),
        Scenario::new("F30_EC2_sometimes_does_not_know_instance", unseen(world)),
    ]
}

/// While EC2 is unreachable, the volume of a pod that ends on a healthy node stays attached, and so
/// does that of a pod whose node is silent and, which nobody can know, off. Both volumes are
/// detached when EC2 is reachable again.
async fn cut_off_from_ec2(world: &World<'_>) -> TestResult {
    let well = world.attached("f10", "f10").await?;
    let silent = world.attached("f11", "f11").await?;
    world.driver.fault(
        &json!({"id": "f10", "fault": {"kind": "lose_reply", "how": "reset", "effect": false}}),
    )?;

    well.end_pod().await?;
    silent.power_off()?;
    silent.check_left_alone().await?;
    well.wait_until_refused("attachment-unknown").await?;
    ensure(well.is_attached()?, "the volume stays where it is")?;
    silent.check_untouched().await?;

    world.driver.remove_fault("f10")?;
    well.retry_until_detached_once().await?;
    is_failed_over(&silent).await?;
    silent.move_to(&well.node, &well.instance).await
}

/// While every call is throttled, nothing is known; while every other call is, the facts become
/// known eventually.
async fn throttled(world: &World<'_>) -> TestResult {
    let at = world.attached("f29", "f29").await?;
    let storm = |share: f64| json!({"id": "f29", "match": {"action": "Describe*"}, "probability": share, "fault": {"kind": "throttle"}});
    world.driver.fault(&storm(1.0))?;
    at.power_off()?;
    at.check_left_alone().await?;
    world.driver.fault(&storm(0.5))?;
    is_failed_over(&at).await?;
    world.driver.remove_fault("f29")
}

/// `InvalidInstanceID.NotFound`, for a running instance and for one that is off, at every call and
/// at some calls: it never counts as the end of the instance.
async fn unseen(world: &World<'_>) -> TestResult {
    let at = world.attached("f30", "f30").await?;
    let unseen = |share: f64| {
        json!({"id": "f30", "match": {"action": "DescribeInstances"}, "probability": share,
            "fault": {"kind": "unseen", "id": at.instance}})
    };
    world.driver.fault(&unseen(1.0))?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    at.delete_attachment().await?;
    at.check_refused("instance-missing").await?;
    world.driver.fault(&unseen(0.5))?;
    at.check_refused("node-not-ready").await?;
    at.power("stop")?;
    // The attachment was deleted by hand above, so the volume may be detached before the pod is
    // gone. Then either no taint is needed, or Kubernetes attaches the volume once more, because a
    // pod still needs it.
    at.wait_until_pod_gone().await?;
    at.retry_until_detached().await?;
    at.check_detached_without_force()?;
    world.driver.remove_fault("f30")
}

/// Waits for our taint, and then until the pod, the attachment and the volume have left the node.
async fn is_failed_over(at: &Attached<'_>) -> TestResult {
    at.wait_until_tainted().await?;
    at.wait_until_pod_gone().await?;
    at.retry_until_detached_once().await
}
