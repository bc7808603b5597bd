//! Manual changes by people: to objects, to taints, to attachments.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F31_node_object_deleted_while_the_instance_runs", object_deleted(world)),
        Scenario::new("F33_attachment_of_running_pod_deleted_by_hand", deleted_by_hand(world)),
        Scenario::new("F34_a_persons_taint_on_a_running_instance", persons_taint(world)),
        Scenario::new("F35_out_of_service_taint_on_ready_node", left_tainted(world)),
        Scenario::new("break_glass_detaches_named_attachment_alone", break_glass(world)),
        Scenario::new("opted_out_node_does_not_fail_over", opted_out(world)),
    ]
}

/// A person deletes the Node object of a running instance: its volumes stay attached until the
/// instance is off.
async fn object_deleted(world: &World<'_>) -> Outcome {
    let handle = world.volume("f31").await?;
    world.run_pod("f31-0", "node-6", &["f31"]).await?;
    world.nodes.delete("node-6").await?;
    world.wait_for_event("node-6", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(world.is_kept("f31", "node-6").await?, "its attachment stays")?;
    ensure(world.driver.is_attached(&handle, &instance(6))?, "its volume stays")?;
    // The node's kubelet registers again.
    world.nodes.create("node-6", &instance(6), "us-east-1a").await?;
    ensure(world.taints("node-6").await?.is_empty(), "no taint")
}

/// A person deletes the VolumeAttachment of a running pod: kubelet's report keeps the volume
/// attached until it is unmounted.
async fn deleted_by_hand(world: &World<'_>) -> Outcome {
    let handle = world.volume("f33").await?;
    world.run_pod("f33-0", "node-11", &["f33"]).await?;
    world.delete_attachment("f33", "node-11").await?;
    // A replica that has just started has seen no lease renewal yet and has no report, so the
    // detach is tried again.
    wait_until("the detach is refused for the pod's sake", || async {
        world.touch_attachment("f33", "node-11").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.is_refused("f33", "node-11", "in-use").await
    })
    .await?;
    ensure(world.driver.is_attached(&handle, &instance(11))?, "the volume stays under the pod")?;
    world.end_pod("f33-0").await?;
    world.nodes.in_use("node-11", &[]).await?;
    world.wait_until_detached_by_retry("f33", "node-11").await?;
    ensure(!world.driver.is_attached(&handle, &instance(11))?, "the volume is free")
}

/// Kubernetes trusts a person's taint and deletes everything; the controller does not detach until
/// EC2 proves that this is safe. The taint remains the person's.
async fn persons_taint(world: &World<'_>) -> Outcome {
    let handle = world.volume("f34").await?;
    world.run_pod("f34-0", "node-7", &["f34"]).await?;
    world.nodes.stop_heartbeats("node-7");
    world.wait_until_not_ready("node-7").await?;
    taint(world, "node-7").await?;
    wait_until("the detach is refused", || async {
        let attachment = world.attachment("f34", "node-7").await?;
        let error = attachment.and_then(|a| a.status).and_then(|s| s.detach_error);
        Ok(error.is_some_and(|error| error.message.is_some()))
    })
    .await?;
    ensure(
        world.driver.is_attached(&handle, &instance(7))?,
        "the volume stays at the running instance",
    )?;
    ensure(world.taints("node-7").await? == ["nodeshutdown"], "the taint is the person's")?;
    world.driver.power(&instance(7), "stop")?;
    // external-attacher would retry after a minute; the nudge makes it retry at once.
    world.wait_until_detached("f34", "node-7", &handle, &instance(7)).await?;
    ensure(world.taints("node-7").await? == ["nodeshutdown"], "nobody touches the person's taint")?;
    world.driver.power(&instance(7), "start")?;
    world.nodes.in_use("node-7", &[]).await?;
    world.nodes.boot("node-7", "boot-2").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(world.taints("node-7").await? == ["nodeshutdown"], "nobody lifts the person's taint")
}

/// A person has forgotten to remove the taint. On such a node Kubernetes does not wait until a
/// volume is unmounted, but the controller does.
async fn left_tainted(world: &World<'_>) -> Outcome {
    let node = "f35";
    let instance = world.node(node).await?;
    let handle = world.volume("f35").await?;
    taint(world, node).await?;
    let tolerations = json!([{"key": "node.kubernetes.io/out-of-service", "operator": "Exists"}]);
    world.add_tolerant_pod("f35-0", node, &["f35"], tolerations).await?;
    world.begin_pod("f35-0", node, &["f35"]).await?;
    // The pod's object is deleted; kubelet still has to unmount.
    world.end_pod("f35-0").await?;
    world.wait_until_refused("f35", node, "in-use").await?;
    ensure(
        world.driver.is_attached(&handle, &instance)?
            && world.driver.detach_requests(&handle)?.is_empty(),
        "the volume stays until it is unmounted",
    )?;
    world.nodes.in_use(node, &[]).await?;
    world.retry_until_detached("f35", node).await?;
    world.check_detached_once(&handle, &instance)?;
    ensure(world.taints(node).await? == ["nodeshutdown"], "nobody lifts the person's taint")
}

/// Sets the taint, as a person does who has checked that the machine is off.
async fn taint(world: &World<'_>, node: &str) -> Outcome {
    let taints = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    let how = PatchParams::default();
    let patch = Patch::Strategic(taints);
    let patched = world.all_nodes().patch(node, &how, &patch).await;
    patched.map(drop).map_err(|e| e.to_string())
}

/// The pod continues to use the volume, but a person orders its detach: first for another
/// attachment, then for this one.
async fn break_glass(world: &World<'_>) -> Outcome {
    let handle = world.volume("glass").await?;
    world.run_pod("glass-0", "node-14", &["glass"]).await?;
    world.delete_attachment("glass", "node-14").await?;
    let of_another = format!("{} 2026-01-01T00:00:00Z", instance(14));
    world.break_glass("glass", "node-14", &of_another).await?;
    wait_until("the detach is refused for the pod's sake", || async {
        world.touch_attachment("glass", "node-14").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.is_refused("glass", "node-14", "in-use").await
    })
    .await?;
    ensure(
        world.driver.is_attached(&handle, &instance(14))?,
        "an order about another attachment changes nothing",
    )?;
    let since = world.driver.attached_since(&handle)?;
    let order = format!("{} {since}", instance(14));
    world.break_glass("glass", "node-14", &order).await?;
    // The pod still needs the volume: Kubernetes may have it attached again before the next check,
    // as another attachment.
    wait_until("the attachment is gone", || async {
        world.touch_attachment("glass", "node-14").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(world.driver.attached_since(&handle).ok().as_ref() != Some(&since))
    })
    .await?;
    world.end_pod("glass-0").await?;
    world.nodes.in_use("node-14", &[]).await
}

/// Like F1, on a node that a person has excluded from failover.
async fn opted_out(world: &World<'_>) -> Outcome {
    let handle = world.volume("opt-out").await?;
    world.run_pod("opt-out-0", "node-15", &["opt-out"]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/failover": "off"}}});
    let how = PatchParams::default();
    let patched = world.all_nodes().patch("node-15", &how, &Patch::Merge(label)).await;
    patched.map_err(|e| e.to_string())?;
    world.driver.power(&instance(15), "stop")?;
    world.nodes.stop_heartbeats("node-15");
    world.wait_until_not_ready("node-15").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure(world.taints("node-15").await?.is_empty(), "no taint")?;
    ensure(world.is_kept("opt-out", "node-15").await?, "the attachment stays")?;
    ensure(world.driver.is_attached(&handle, &instance(15))?, "the volume stays")?;
    world.driver.power(&instance(15), "start")?;
    world.nodes.boot("node-15", "boot-2").await
}
