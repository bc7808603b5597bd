//! EC2 is unreachable or answers wrongly: what is not known is not acted on, and what was left
//! undone follows once it is known.
//!
//! These scenarios concern every node, so they run one after the other.

use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new(
            "F10_F11_controller_without_EC2_and_node_without_kubernetes",
            cut_off_from_ec2(world),
        ),
        Scenario::new("F29_a_storm_of_throttling", throttled(world)),
        Scenario::new("F30_EC2_sometimes_does_not_know_instance", unseen(world)),
    ]
}

/// While EC2 is unreachable, the volume of a pod that ends on a healthy node stays attached, and so
/// does that of a pod whose node is silent and, which nobody can know, off. Both volumes are
/// detached when EC2 is reachable again.
async fn cut_off_from_ec2(world: &World<'_>) -> Outcome {
    let (well, silent) = ("f10", "f11");
    let (well_instance, off_instance) = (world.node(well).await?, world.node(silent).await?);
    let (kept, left) = (world.volume("f10").await?, world.volume("f11").await?);
    world.run_pod("f10-0", well, &["f10"]).await?;
    world.run_pod("f11-0", silent, &["f11"]).await?;
    world.driver.fault(
        &json!({"id": "f10", "fault": {"kind": "lose_reply", "how": "reset", "effect": false}}),
    )?;

    world.end_pod("f10-0").await?;
    world.nodes.in_use(well, &[]).await?;
    world.driver.power(&off_instance, "stop")?;
    world.nodes.stop_heartbeats(silent);
    world.check_left_alone(silent, "f11-0", &left, &off_instance).await?;
    world.wait_until_refused("f10", well, "attachment-unknown").await?;
    ensure(world.driver.is_attached(&kept, &well_instance)?, "the volume stays where it is")?;
    world.check_untouched(silent, &left, &off_instance).await?;

    world.driver.remove_fault("f10")?;
    world.retry_until_detached("f10", well).await?;
    world.check_detached_once(&kept, &well_instance)?;
    is_failed_over(world, silent, "f11", &left, &off_instance).await?;
    world.run_pod("f11-0", well, &["f11"]).await?;
    ensure(world.driver.is_attached(&left, &well_instance)?, "the volume is where its pod is")
}

/// While every call is throttled, nothing is known; while every other call is, the facts become
/// known eventually.
async fn throttled(world: &World<'_>) -> Outcome {
    let node = "f29";
    let instance = world.node(node).await?;
    let handle = world.volume("f29").await?;
    world.run_pod("f29-0", node, &["f29"]).await?;
    let storm = |share: f64| json!({"id": "f29", "match": {"action": "Describe*"}, "probability": share, "fault": {"kind": "throttle"}});
    world.driver.fault(&storm(1.0))?;
    world.driver.power(&instance, "stop")?;
    world.nodes.stop_heartbeats(node);
    world.check_left_alone(node, "f29-0", &handle, &instance).await?;
    world.driver.fault(&storm(0.5))?;
    is_failed_over(world, node, "f29", &handle, &instance).await?;
    world.driver.remove_fault("f29")
}

/// `InvalidInstanceID.NotFound`, for a running instance and for one that is off, at every call and
/// at some calls: it never counts as the end of the instance.
async fn unseen(world: &World<'_>) -> Outcome {
    let node = "f30";
    let instance = world.node(node).await?;
    let handle = world.volume("f30").await?;
    world.run_pod("f30-0", node, &["f30"]).await?;
    let unseen = |share: f64| {
        json!({"id": "f30", "match": {"action": "DescribeInstances"}, "probability": share,
            "fault": {"kind": "unseen", "id": instance}})
    };
    world.driver.fault(&unseen(1.0))?;
    world.nodes.stop_heartbeats(node);
    world.check_left_alone(node, "f30-0", &handle, &instance).await?;
    world.delete_attachment("f30", node).await?;
    world.wait_until_refused("f30", node, "instance-missing").await?;
    world.check_untouched(node, &handle, &instance).await?;
    world.driver.fault(&unseen(0.5))?;
    world.wait_until_refused("f30", node, "node-not-ready").await?;
    world.check_untouched(node, &handle, &instance).await?;
    world.driver.power(&instance, "stop")?;
    // The attachment was deleted by hand above, so the volume may be detached before the pod is
    // gone. Then either no taint is needed, or Kubernetes attaches the volume once more, because a
    // pod still needs it.
    world.wait_until_pod_gone("f30-0").await?;
    world.retry_until_detached("f30", node).await?;
    world.check_detached_without_force(&handle, &instance)?;
    world.driver.remove_fault("f30")
}

/// Waits for our taint, and then until the pod, the attachment and the volume have left the node.
async fn is_failed_over(
    world: &World<'_>,
    node: &str,
    claim: &str,
    handle: &str,
    instance: &str,
) -> Outcome {
    wait_until(&format!("our taint is on {node}"), || async {
        Ok(world.taints(node).await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_until_pod_gone(&format!("{claim}-0")).await?;
    world.retry_until_detached(claim, node).await?;
    world.check_detached_once(handle, instance)
}
