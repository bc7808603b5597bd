//! Nodes whose object does not name their instance.

use kube::ResourceExt;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("node_without_provider_id_is_known_by_csinode", by_its_csi_node(world)),
        Scenario::new("a_node_without_any_identity_is_told_of", without_identity(world)),
    ]
}

/// Creates a node and a pod on it; the claim has the node's name.
async fn node_with_pod(world: &World<'_>, node: &str) -> Result<(String, String), String> {
    let instance = world.instance(&serde_json::json!({}))?;
    world.nodes.create_without_identity(node).await?;
    world.nodes.register(node, Some(&instance)).await?;
    let handle = world.volume(node).await?;
    world.run_pod(&format!("{node}-0"), node, &[node]).await?;
    Ok((instance, handle))
}

async fn by_its_csi_node(world: &World<'_>) -> Outcome {
    let node = "nameless";
    let (instance, handle) = node_with_pod(world, node).await?;
    world.delete_attachment(node, node).await?;
    // Kubelet's report is used: the refusal is not `no-report`.
    world.wait_until_refused(node, node, "in-use").await?;
    world.check_untouched(node, &handle, &instance).await?;
    world.end_pod("nameless-0").await?;
    world.nodes.in_use(node, &[]).await?;
    world.wait_until_detached_by_retry(node, node).await?;
    world.check_detached_once(&handle, &instance)
}

async fn without_identity(world: &World<'_>) -> Outcome {
    let node = "unknown";
    let (instance, handle) = node_with_pod(world, node).await?;
    world.nodes.register(node, None).await?;
    world.end_pod("unknown-0").await?;
    world.nodes.in_use(node, &[]).await?;
    world.wait_until_refused(node, node, "no-report").await?;
    world.check_untouched(node, &handle, &instance).await?;
    let found = world.attachment(node, node).await?.ok_or("it has gone")?;
    let name = found.name_any();
    wait_until("the event on the attachment says why", || async {
        let notes = world.events(&name, "SafeDetachRefused").await?;
        Ok(notes.iter().any(|note| note.contains("neither a providerID")))
    })
    .await?;
    let metric = "aws_ebs_csi_safe_detach_nodes_unidentified";
    wait_until("the metric counts the node", || async { Ok(world.driver.metric(metric) >= 1.0) })
        .await?;
    ensure(world.driver.lifecycle_log().contains("nodes have neither"), "the log names it")?;
    world.nodes.register(node, Some(&instance)).await?;
    world.wait_until_detached_by_retry(node, node).await?;
    world.check_detached_once(&handle, &instance)
}
