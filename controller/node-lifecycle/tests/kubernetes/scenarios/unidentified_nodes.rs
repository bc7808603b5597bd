//! Nodes whose object does not name their instance.

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("node_without_provider_id_is_known_by_csinode", by_its_csi_node(world)),
        Scenario::new("node_without_any_identity_is_reported", without_identity(world)),
    ]
}

/// Creates a node and a pod on it; the claim has the node's name.
async fn node_with_pod<'a>(world: &'a World<'a>, node: &str) -> TestResult<Attached<'a>> {
    let instance = world.instance(&json!({}))?;
    world.nodes.create_without_identity(node).await?;
    world.nodes.register(node, Some(&instance)).await?;
    let at = world.existing(node, node, &instance, &world.volume(node).await?);
    world.run_pod(&at.pod, node, &[node]).await?;
    Ok(at)
}

async fn by_its_csi_node(world: &World<'_>) -> TestResult {
    let at = node_with_pod(world, "nameless").await?;
    at.delete_attachment().await?;
    // Kubelet's report is used: the refusal is not `no-report`.
    at.check_refused("in-use").await?;
    at.end_pod().await?;
    at.wait_until_detached_once().await
}

async fn without_identity(world: &World<'_>) -> TestResult {
    let at = node_with_pod(world, "unknown").await?;
    world.nodes.register(&at.node, None).await?;
    at.end_pod().await?;
    at.check_refused("no-report").await?;
    let name = at.attachment_name().await?.ok_or("no attachment")?;
    wait_until("the event on the attachment says why", || async {
        let notes = world.events(&name, "SafeDetachRefused").await?;
        Ok(notes.iter().any(|note| note.contains("neither a providerID")))
    })
    .await?;
    world.wait_for_metric("aws_ebs_csi_safe_detach_nodes_unidentified").await?;
    ensure(world.driver.lifecycle_log().contains("nodes have neither"), "the log names it")?;
    world.nodes.register(&at.node, Some(&at.instance)).await?;
    at.wait_until_detached_once().await
}
