//! Partitions between the components.

use std::time::Duration;

use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F9_partition_of_running_instance_heals", cut_off(world)),
        Scenario::new("refused_detach_is_retried_when_node_returns", back(world)),
    ]
}

/// Only the API server loses contact with the node: nothing is done, and the node recovers by
/// itself.
async fn cut_off(world: &World<'_>) -> TestResult {
    let at = world.attached("f9", "f9").await?;
    at.stop_heartbeats();
    at.check_left_alone().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    at.check_left_alone().await?;
    ensure(at.is_kept().await?, "its attachment stays")?;
    at.boot("boot-1").await?;
    at.wait_until_ready().await
}

/// A detach that is refused while the node is cut off ends soon after the node is Ready again.
async fn back(world: &World<'_>) -> TestResult {
    let at = world.attached("back", "back").await?;
    at.fall_silent().await?;
    at.delete_attachment().await?;
    at.check_refused("node-not-ready").await?;
    at.end_pod().await?;
    at.boot("boot-1").await?;
    at.wait_until_detached_once().await
}
