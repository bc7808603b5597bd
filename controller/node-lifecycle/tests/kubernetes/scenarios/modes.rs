//! node-lifecycle in its other modes: failover as the KEP proposes it, and fences that terminate
//! instances.

use std::time::Duration;

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, ensure, wait_until};
use crate::scenarios::{Scenario, fencing};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("kep_mode_deletes_pods_and_detaches_with_proof", as_proposed(world)),
        Scenario::new("F43_F44_fence_refused_by_EC2_detaches_nothing", refused_fences(world)),
    ]
}

/// Without proof, the pod of a silent node is deleted once Kubernetes evicts it; its volume
/// stays attached until EC2 shows the instance off.
async fn as_proposed(world: &World<'_>) -> TestResult {
    let from = world.attached("kep", "kep-a").await?;
    world.driver.change_lifecycle(&["--failover=kep", "--safe-detach=enforce"])?;
    from.fall_silent().await?;
    from.wait_until_pod_gone().await?;
    from.check_refused("node-not-ready").await?;

    from.power("stop")?;
    from.wait_until_detached_once().await?;
    from.move_to_new("kep-b").await
}

async fn refused_fences(world: &World<'_>) -> TestResult {
    // EC2's status checks of these instances pass: the nodes are only cut off.
    world.driver.change_lifecycle(&["--fence=terminate", "--fence-when=lost"])?;
    let (one, other) = tokio::join!(recovered(world), terminated(world));
    one.and(other)
}

/// Creates a lost node whose instance may be fenced while EC2 refuses to terminate it, by a fault
/// with the node's name.
async fn lost_and_refused<'a>(
    world: &'a World<'a>,
    claim: &str,
    node: &str,
) -> TestResult<Attached<'a>> {
    let at = world.attached(claim, node).await?;
    fencing::permit(world, node).await?;
    world.driver.fault(&json!({"id": node, "match": {"action": "TerminateInstances", "contains": at.instance},
        "fault": {"kind": "error", "code": "UnsupportedOperation", "status": 400, "message": "The instance cannot be ended."}}))?;
    at.fall_silent().await?;
    at.wait_for_event("FenceFailed").await?;
    ensure(at.taints().await?.is_empty(), "no taint without proof")?;
    ensure(at.is_attached()?, "a fence that was refused moves nothing")?;
    Ok(at)
}

/// The node is Ready again while its fence keeps failing: nobody retries the fence.
async fn recovered(world: &World<'_>) -> TestResult {
    let at = lost_and_refused(world, "f44", "f44").await?;
    let fault = &at.node;
    at.boot("boot-1").await?;
    at.wait_until_ready().await?;
    wait_until("no further fence is requested", || async {
        let before = world.driver.fault_hits(fault)?;
        // This takes several rounds.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(world.driver.fault_hits(fault)? == before)
    })
    .await?;
    world.driver.remove_fault(fault)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure(at.is_attached()?, "its instance runs and has its volume")?;
    let fenced = world.events(&at.node, "FenceRequested").await?;
    ensure(fenced.is_empty(), "it was not fenced")?;
    ensure(at.taints().await?.is_empty(), "no taint")
}

/// As with a spot instance that cannot be stopped: an event reports the refusal, and nothing moves;
/// once EC2 accepts the fence, the pod moves.
async fn terminated(world: &World<'_>) -> TestResult {
    let at = lost_and_refused(world, "f43", "f43-a").await?;
    world.driver.remove_fault(&at.node)?;
    at.wait_for_event("FenceRequested").await?;
    at.wait_until_tainted().await?;
    at.wait_until_pod_gone().await?;
    at.wait_until_detached().await?;
    at.move_to_new("f43-b").await
}
