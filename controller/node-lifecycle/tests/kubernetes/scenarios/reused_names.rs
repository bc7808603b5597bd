//! Another instance under the name of a node that was deleted.

use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F32_another_instance_under_the_nodes_name", replaced(world))]
}

/// A proof about one instance does not apply to the other. The volume, which Kubernetes now
/// believes to be detached, is attached nowhere else while it is attached to the first instance.
async fn replaced(world: &World<'_>) -> Outcome {
    let (node, to) = ("f32", "f32-b");
    let first = world.node(node).await?;
    let other = world.node(to).await?;
    let handle = world.volume("f32").await?;
    world.run_pod("f32-0", node, &["f32"]).await?;
    world.nodes.delete(node).await?;
    let second = world.instance(&json!({}))?;
    world.nodes.create(node, &second, "us-east-1a").await?;
    // external-attacher reads the CSINode of that name, which names the second instance: there is
    // no such attachment.
    world.end_pod("f32-0").await?;
    world.retry_until_detached("f32", node).await?;
    world.check_untouched(node, &handle, &first).await?;

    world.add_pod("f32-1", to, &["f32"]).await?;
    wait_until("the attach elsewhere is refused", || async {
        let attachment = world.attachment("f32", to).await?;
        let error = attachment.and_then(|a| a.status).and_then(|s| s.attach_error);
        let message = error.and_then(|error| error.message).unwrap_or_default();
        Ok(message.contains(&first))
    })
    .await?;
    world.check_untouched(node, &handle, &first).await?;
    world.driver.power(&first, "stop")?;
    wait_until("the volume is where its pod is", || async {
        world.touch_attachment("f32", to).await?;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        world.driver.is_attached(&handle, &other)
    })
    .await?;
    world.check_detached_once(&handle, &first)?;
    ensure(
        world.taints(node).await?.is_empty(),
        "what is proved of the first instance is not said of the second",
    )
}
