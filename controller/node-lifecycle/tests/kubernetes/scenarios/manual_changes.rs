//! Manual changes by people: to objects, to taints, to attachments.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::world::{TestResult, World, ensure, patch, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F31_node_object_deleted_while_the_instance_runs", object_deleted(world)),
        Scenario::new("F33_attachment_of_running_pod_deleted_by_hand", deleted_by_hand(world)),
        Scenario::new("F34_taint_of_person_on_running_instance", persons_taint(world)),
        Scenario::new("F35_out_of_service_taint_on_ready_node", left_tainted(world)),
        Scenario::new("break_glass_detaches_named_attachment_alone", override_ordered(world)),
        Scenario::new("opted_out_node_does_not_fail_over", opted_out(world)),
        Scenario::new("opted_out_pod_keeps_driver_taint_away", opted_out_pod(world)),
    ]
}

/// A person deletes the Node object of a running instance: its volumes stay attached until the
/// instance is off.
async fn object_deleted(world: &World<'_>) -> TestResult {
    let at = world.attached("f31", "f31").await?;
    world.nodes.delete(&at.node).await?;
    at.wait_for_event("SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(at.is_kept().await?, "its attachment stays")?;
    ensure(at.is_attached()?, "its volume stays")?;
    // The node's kubelet registers again.
    world.nodes.create(&at.node, &at.instance, "us-east-1a").await?;
    ensure(at.taints().await?.is_empty(), "no taint")
}

/// A person deletes the VolumeAttachment of a running pod: kubelet's report keeps the volume
/// attached until it is unmounted.
async fn deleted_by_hand(world: &World<'_>) -> TestResult {
    let at = world.attached("f33", "f33").await?;
    at.delete_attachment().await?;
    // A replica that has just started has seen no lease renewal yet and has no report, so the
    // detach is tried again.
    at.wait_until_refused("in-use").await?;
    ensure(at.is_attached()?, "the volume stays under the pod")?;
    at.end_pod().await?;
    at.wait_until_detached().await
}

/// Kubernetes trusts a person's taint and deletes everything; the controller does not detach until
/// EC2 proves that this is safe. The taint remains the person's.
async fn persons_taint(world: &World<'_>) -> TestResult {
    let at = world.attached("f34", "f34").await?;
    let is_persons = async |what: &str| ensure(at.taints().await? == ["nodeshutdown"], what);
    at.fall_silent().await?;
    taint(world, &at.node).await?;
    at.wait_until_refused("SafeDetachRefused").await?;
    ensure(at.is_attached()?, "the volume stays at the running instance")?;
    is_persons("the taint is the person's").await?;
    at.power("stop")?;
    // external-attacher would retry after a minute; node-lifecycle's annotation makes it retry at
    // once.
    at.wait_until_detached().await?;
    is_persons("nobody touches the person's taint").await?;
    at.start_again().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    is_persons("nobody removes the person's taint").await
}

/// A person has forgotten to remove the taint. On such a node Kubernetes does not wait until a
/// volume is unmounted, but the controller does.
async fn left_tainted(world: &World<'_>) -> TestResult {
    let node = "f35";
    let instance = world.node(node).await?;
    let handle = world.volume("f35").await?;
    taint(world, node).await?;
    let at = world.existing("f35", node, &instance, &handle);
    let tolerations = json!([{"key": "node.kubernetes.io/out-of-service", "operator": "Exists"}]);
    world.add_tolerant_pod(&at.pod, node, &["f35"], tolerations).await?;
    world.begin_pod(&at.pod, node, &["f35"]).await?;
    // The pod's object is deleted; kubelet still has to unmount.
    world.end_pod(&at.pod).await?;
    at.wait_until_refused("in-use").await?;
    ensure(
        at.is_attached()? && world.driver.detach_requests(&handle)?.is_empty(),
        "the volume stays until it is unmounted",
    )?;
    at.release().await?;
    at.retry_until_detached_once().await?;
    ensure(at.taints().await? == ["nodeshutdown"], "nobody removes the person's taint")
}

/// Sets the taint, as a person does who has checked that the machine is off.
pub(super) async fn taint(world: &World<'_>, node: &str) -> TestResult {
    let taints = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    // Keeps Kubernetes' own taints.
    let patch = Patch::Strategic(taints);
    world.all_nodes().patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The pod continues to use the volume, but a person orders its detach: first for another
/// attachment, then for this one.
async fn override_ordered(world: &World<'_>) -> TestResult {
    let at = world.attached("override", "override").await?;
    at.delete_attachment().await?;
    at.order_override("2026-01-01T00:00:00Z").await?;
    at.wait_until_refused("in-use").await?;
    ensure(at.is_attached()?, "an order about another attachment changes nothing")?;
    let since = at.attached_since()?;
    at.order_override(&since).await?;
    // The pod still needs the volume: Kubernetes may have it attached again before the next check,
    // as another attachment.
    wait_until("the attachment is gone", || async {
        at.retry().await?;
        Ok(at.attached_since().ok().as_ref() != Some(&since))
    })
    .await?;
    at.end_pod().await
}

/// Like F1, on a node that a person has excluded from failover.
async fn opted_out(world: &World<'_>) -> TestResult {
    let at = world.attached("opt-out", "opt-out").await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/failover": "off"}}});
    patch(&world.all_nodes(), &at.node, label).await?;
    at.power_off()?;
    at.wait_until_not_ready().await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    ensure(at.taints().await?.is_empty(), "no taint")?;
    ensure(at.is_kept().await?, "the attachment stays")?;
    ensure(at.is_attached()?, "the volume stays")?;
    at.power("start")?;
    at.boot("boot-2").await
}

/// The instance is off. The pod that is opted out stays, and so does the node without the taint, by
/// which Kubernetes would evict that pod; the other pod is moved by itself.
async fn opted_out_pod(world: &World<'_>) -> TestResult {
    let kept = world.attached("kept", "kept").await?;
    let off = json!({"metadata": {"annotations": {"ebs.csi.aws.com/failover": "off"}}});
    patch(&world.pods(), &kept.pod, off).await?;
    let handle = world.volume("moved").await?;
    let moved = world.existing("moved", &kept.node, &kept.instance, &handle);
    world.run_pod(&moved.pod, &moved.node, &["moved"]).await?;
    world.nodes.in_use(&kept.node, &[&kept.handle, &handle]).await?;
    kept.power_off()?;
    moved.wait_until_pod_gone().await?;
    moved.wait_until_detached().await?;
    moved.move_to_new("kept-b").await?;
    ensure(world.pods().get(&kept.pod).await.is_ok(), "the pod that is opted out stays")?;
    ensure(kept.is_kept().await? && kept.is_attached()?, "its volume stays")?;
    ensure(kept.taints().await?.is_empty(), "the node has no taint")?;
    kept.power("start")?;
    kept.boot("boot-2").await?;
    kept.wait_until_ready().await?;
    kept.end_pod().await
}
