//! Pods with several volumes: all of them must be proved free.

use std::time::Duration;

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{ONE_WRITER, TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F36_one_of_two_volumes_cannot_be_proved", half_proved(world)),
        Scenario::new("F37_pod_with_volume_of_another_driver_stays", not_eligible(world)),
        Scenario::new("pod_moves_after_all_volumes_are_proved_free", one_by_one(world)),
    ]
}

/// Creates a node, and a pod on it that uses two volumes.
async fn with_two_volumes<'a>(
    world: &'a World<'a>,
    node: &str,
    claims: [&str; 2],
) -> TestResult<[Attached<'a>; 2]> {
    let instance = world.node(node).await?;
    let handles = [world.volume(claims[0]).await?, world.volume(claims[1]).await?];
    let [mut one, mut two] =
        [0, 1].map(|number| world.existing(claims[number], node, &instance, &handles[number]));
    one.pod = format!("{node}-0");
    two.pod.clone_from(&one.pod);
    world.run_pod(&one.pod, node, &claims).await?;
    Ok([one, two])
}

/// Detaches the volume in EC2, bypassing the driver.
fn detach_in_ec2(at: &Attached<'_>) -> TestResult {
    at.world.as_foreign("DetachVolume", &json!({"VolumeId": at.handle})).map(drop)
}

/// Waits until the node counts as lost, and then long enough for several rounds; checks that the
/// pod stays.
async fn pod_stays(at: &Attached<'_>, pod: &str) -> TestResult {
    at.wait_until_not_ready().await?;
    at.wait_for_event("SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(at.world.pods().get(pod).await.is_ok(), "the pod stays")
}

/// One of the pod's volumes was detached in EC2; the other is attached to a running instance.
async fn half_proved(world: &World<'_>) -> TestResult {
    let both = with_two_volumes(world, "f36", ["f36-a", "f36-b"]).await?;
    let [gone, held] = &both;
    gone.stop_heartbeats();
    detach_in_ec2(gone)?;
    pod_stays(held, &held.pod).await?;
    for volume in &both {
        ensure(volume.is_kept().await?, "the attachments that the pod needs stay")?;
    }
    ensure(held.is_attached()?, "the other volume stays")?;
    held.boot("boot-1").await
}

/// The pod's volume of this driver was detached in EC2; nothing is known about its volume of the
/// other driver.
async fn not_eligible(world: &World<'_>) -> TestResult {
    let at = world.attached("f37", "f37").await?;
    // Its driver is not installed.
    world.bound("f37-foreign", ("other.example.com", "x"), ONE_WRITER).await?;
    world.add_pod("f37-1", &at.node, &["f37", "f37-foreign"]).await?;
    world.end_pod(&at.pod).await?;
    at.stop_heartbeats();
    detach_in_ec2(&at)?;
    pod_stays(&at, "f37-1").await?;
    ensure(at.is_kept().await?, "the attachment that the pod needs stays")?;
    at.boot("boot-1").await
}

/// The instance runs, but each of the pod's volumes was detached in EC2: the pod is deleted, then
/// the attachments, without a taint.
async fn one_by_one(world: &World<'_>) -> TestResult {
    let both = with_two_volumes(world, "single", ["single-a", "single-b"]).await?;
    let [one, _] = &both;
    one.fall_silent().await?;
    both.iter().try_for_each(detach_in_ec2)?;
    one.wait_until_pod_gone().await?;
    for volume in &both {
        volume.wait_until_detached().await?;
    }
    ensure(one.taints().await?.is_empty(), "nothing is known of the instance")?;
    one.release().await?;
    one.boot("boot-1").await
}
