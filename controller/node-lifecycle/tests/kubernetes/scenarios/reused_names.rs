//! Another instance under the name of a node that was deleted.

use serde_json::json;

use crate::environment::world::{TestResult, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F32_another_instance_under_the_nodes_name", replaced(world))]
}

/// A proof about one instance does not apply to the other. The volume, which Kubernetes now
/// believes to be detached, is attached nowhere else while it is attached to the first instance.
async fn replaced(world: &World<'_>) -> TestResult {
    let to = "f32-b";
    let other = world.node(to).await?;
    let first = world.attached("f32", "f32-a").await?;
    world.nodes.delete(&first.node).await?;
    let second = world.instance(&json!({}))?;
    world.nodes.create(&first.node, &second, "us-east-1a").await?;
    // external-attacher reads the CSINode of that name, which names the second instance: there is
    // no such attachment.
    world.end_pod(&first.pod).await?;
    first.retry_until_detached().await?;
    first.check_untouched().await?;

    let elsewhere = world.existing("f32", to, &other, &first.handle);
    world.add_pod("f32-1", to, &["f32"]).await?;
    wait_until("the attach elsewhere is refused", || async {
        let attachment = world.attachment("f32", to).await?;
        let error = attachment.and_then(|a| a.status).and_then(|s| s.attach_error);
        let message = error.and_then(|error| error.message).unwrap_or_default();
        Ok(message.contains(&first.instance))
    })
    .await?;
    first.check_untouched().await?;
    first.power("stop")?;
    wait_until("the volume is where its pod is", || async {
        elsewhere.retry().await?;
        elsewhere.is_attached()
    })
    .await?;
    first.check_detached_once()?;
    ensure(
        first.taints().await?.is_empty(),
        "a proof about the first instance does not apply to the second",
    )
}
