//! Pods with several volumes: all of them must be proved free.

use std::time::Duration;

use crate::environment::world::{Outcome, World, ensure};
use crate::scenarios::{Scenario, instance};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F36_one_of_two_volumes_cannot_be_proved", half_proved(world)),
        Scenario::new("F37_a_pod_with_another_drivers_volume_stays", not_eligible(world)),
        Scenario::new("pod_moves_after_all_volumes_are_proved_free", one_by_one(world)),
    ]
}

/// One of the pod's volumes was detached in EC2; the other is attached to a running instance.
async fn half_proved(world: &World<'_>) -> Outcome {
    let gone = world.volume("f36-a").await?;
    let held = world.volume("f36-b").await?;
    world.run_pod("f36-0", "node-8", &["f36-a", "f36-b"]).await?;
    world.nodes.stop_heartbeats("node-8");
    world.detach_in_ec2(&gone)?;
    world.wait_until_not_ready("node-8").await?;
    world.wait_for_event("node-8", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(world.pods().get("f36-0").await.is_ok(), "the pod stays")?;
    for claim in ["f36-a", "f36-b"] {
        ensure(world.is_kept(claim, "node-8").await?, "the attachments that the pod needs stay")?;
    }
    ensure(world.driver.is_attached(&held, &instance(8))?, "the other volume stays")?;
    world.nodes.boot("node-8", "boot-1").await
}

/// The pod's volume of this driver was detached in EC2; nothing is known about its volume of the
/// other driver.
async fn not_eligible(world: &World<'_>) -> Outcome {
    let handle = world.volume("f37").await?;
    world.foreign_volume("f37-foreign").await?;
    world.run_pod("f37-0", "node-10", &["f37"]).await?;
    world.add_pod("f37-1", "node-10", &["f37", "f37-foreign"]).await?;
    world.end_pod("f37-0").await?;
    world.nodes.stop_heartbeats("node-10");
    world.detach_in_ec2(&handle)?;
    world.wait_until_not_ready("node-10").await?;
    world.wait_for_event("node-10", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(world.pods().get("f37-1").await.is_ok(), "the pod stays")?;
    ensure(world.is_kept("f37", "node-10").await?, "the attachment that the pod needs stays")?;
    world.nodes.boot("node-10", "boot-1").await
}

/// The instance runs, but each of the pod's volumes was detached in EC2: the pod is deleted, then
/// the attachments, without a taint.
async fn one_by_one(world: &World<'_>) -> Outcome {
    let handles = [world.volume("single-a").await?, world.volume("single-b").await?];
    world.run_pod("single-0", "node-12", &["single-a", "single-b"]).await?;
    world.nodes.stop_heartbeats("node-12");
    world.wait_until_not_ready("node-12").await?;
    for handle in &handles {
        world.detach_in_ec2(handle)?;
    }
    world.wait_until_pod_gone("single-0").await?;
    for (claim, handle) in ["single-a", "single-b"].into_iter().zip(&handles) {
        world.wait_until_detached(claim, "node-12", handle, &instance(12)).await?;
    }
    ensure(world.taints("node-12").await?.is_empty(), "nothing is known of the instance")?;
    world.nodes.in_use("node-12", &[]).await?;
    world.nodes.boot("node-12", "boot-1").await
}
