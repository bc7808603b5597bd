//! node-lifecycle in its other modes: failover as the KEP proposes it, and fences that terminate
//! instances.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("kep_mode_deletes_pods_and_detaches_with_proof", as_proposed(world)),
        Scenario::new("F43_F44_fence_refused_by_EC2_detaches_nothing", refused_fences(world)),
    ]
}

/// Without proof, the pod of a silent node is deleted once Kubernetes asks it to end; its volume
/// stays attached until EC2 shows the instance off.
async fn as_proposed(world: &World<'_>) -> Outcome {
    let (from, to) = ("kep-a", "kep-b");
    let (instance, other) = (world.node(from).await?, world.node(to).await?);
    let handle = world.volume("kep").await?;
    world.run_pod("kep-0", from, &["kep"]).await?;
    world
        .driver
        .change_lifecycle(world.kubeconfig, &["--failover=kep", "--safe-detach=enforce"])?;
    world.nodes.stop_heartbeats(from);
    world.wait_until_not_ready(from).await?;
    world.wait_until_pod_gone("kep-0").await?;
    world.wait_until_refused("kep", from, "node-not-ready").await?;
    ensure(world.taints(from).await?.is_empty(), "no taint without proof")?;
    world.check_untouched(from, &handle, &instance).await?;

    world.driver.power(&instance, "stop")?;
    world.wait_until_detached("kep", from, &handle, &instance).await?;
    world.check_detached_once(&handle, &instance)?;
    world.run_pod("kep-0", to, &["kep"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}

async fn refused_fences(world: &World<'_>) -> Outcome {
    world.driver.change_lifecycle(
        world.kubeconfig,
        // EC2's status checks of these instances pass: the nodes are only cut off.
        &["--fence=terminate", "--fence-when=lost"],
    )?;
    let (one, other) = tokio::join!(recovered(world), terminated(world));
    one.and(other)
}

/// Creates a lost node whose instance may be fenced while EC2 refuses to terminate it, by a fault
/// with the node's name.
async fn lost_and_refused(
    world: &World<'_>,
    name: &str,
    claim: &str,
    pod: &str,
) -> Result<(String, String), String> {
    let instance = world.node(name).await?;
    let handle = world.volume(claim).await?;
    world.run_pod(pod, name, &[claim]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/fence": "true"}}});
    let (how, label) = (PatchParams::default(), Patch::Merge(label));
    let patched = world.all_nodes().patch(name, &how, &label).await;
    patched.map_err(|e| e.to_string())?;
    world.driver.fault(&json!({"id": name, "match": {"action": "TerminateInstances", "contains": instance},
        "fault": {"kind": "error", "code": "UnsupportedOperation", "status": 400, "message": "The instance cannot be ended."}}))?;
    world.nodes.stop_heartbeats(name);
    world.wait_until_not_ready(name).await?;
    world.wait_for_event(name, "FenceFailed").await?;
    ensure(world.taints(name).await?.is_empty(), "no taint without proof")?;
    ensure(
        world.driver.is_attached(&handle, &instance)?,
        "a fence that was refused moves nothing",
    )?;
    Ok((instance, handle))
}

/// The node is Ready again while its fence keeps failing: nobody retries the fence.
async fn recovered(world: &World<'_>) -> Outcome {
    let node = "f44";
    let (instance, handle) = lost_and_refused(world, node, "f44", "f44-0").await?;
    world.nodes.boot(node, "boot-1").await?;
    wait_until("it is Ready again", || world.is_ready(node)).await?;
    wait_until("nobody asks for its end any more", || async {
        let before = world.driver.fault_hits(node)?;
        // This takes several rounds.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(world.driver.fault_hits(node)? == before)
    })
    .await?;
    world.driver.remove_fault(node)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(world.driver.is_attached(&handle, &instance)?, "its instance runs and has its volume")?;
    let fenced = world.events(node, "FenceRequested").await?;
    ensure(fenced.is_empty(), "it was not fenced")?;
    ensure(world.taints(node).await?.is_empty(), "no taint")
}

/// As with a spot instance that cannot be stopped: an event reports the refusal, and nothing moves;
/// once EC2 accepts the fence, the pod moves.
async fn terminated(world: &World<'_>) -> Outcome {
    let (from, to) = ("f43-a", "f43-b");
    let other = world.node(to).await?;
    let (instance, handle) = lost_and_refused(world, from, "f43", "f43-0").await?;
    world.driver.remove_fault(from)?;
    world.wait_for_event(from, "FenceRequested").await?;
    wait_until("our taint is on it", || async {
        Ok(world.taints(from).await? == ["ebs-safe-detach"])
    })
    .await?;
    world.wait_until_pod_gone("f43-0").await?;
    world.wait_until_detached("f43", from, &handle, &instance).await?;
    world.run_pod("f43-0", to, &["f43"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}
