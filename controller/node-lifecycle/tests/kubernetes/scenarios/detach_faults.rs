//! Detaches that do not end as they should, and their consequences.

use std::time::Duration;

use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F21_kubelet_forgets_a_volume_that_is_mounted", forgotten(world)),
        Scenario::new("F27_device_name_of_forced_detach_stays_unused", forced(world)),
        Scenario::new("F28_late_detach_spares_later_attachment", late(world)),
    ]
}

/// Kubelet no longer lists the volume while its pod runs: that alone frees nothing. Then kubelet
/// ends the pod and leaves a mount: EC2 shows `busy`, nobody else gets the volume, and nothing is
/// sent twice or by force.
async fn forgotten(world: &World<'_>) -> Outcome {
    let (from, to) = ("f21-a", "f21-b");
    let instance = world.node(from).await?;
    let other = world.node(to).await?;
    let handle = world.volume("f21").await?;
    world.run_pod("f21-0", from, &["f21"]).await?;
    world.wait_until_mountable(from, &handle).await?;
    world.nodes.in_use(from, &[]).await?;
    world.delete_attachment("f21", from).await?;
    world.wait_until_refused("f21", from, "in-use").await?;
    world.check_untouched(from, &handle, &instance).await?;

    world
        .driver
        .fault(&json!({"id": "f21", "match": {"action": "DetachVolume", "resource": handle},
        "fault": {"kind": "stuck_detach", "busy": true}}))?;
    world.end_pod("f21-0").await?;
    wait_until("its detach is asked for", || async {
        world.touch_attachment("f21", from).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(!world.driver.detach_requests(&handle)?.is_empty())
    })
    .await?;
    world.add_pod("f21-1", to, &["f21"]).await?;
    // Nothing follows, whoever calls.
    for _ in 0..5 {
        world.touch_attachment("f21", from).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ensure(world.driver.is_attached(&handle, &instance)?, "what is mounted stays")?;
    ensure(!world.driver.is_attached(&handle, &other)?, "nobody else has it")?;
    // When the mount is gone, the volume is detached.
    world.driver.remove_fault("f21")?;
    let path = format!("/v1/volumes/{handle}/force");
    world.driver.ec2("POST", &path, &json!({"detached": instance}))?;
    world.retry_until_detached("f21", from).await?;
    world.check_detached_once(&handle, &instance)?;
    world.begin_pod("f21-1", to, &["f21"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "the volume is where its pod is")
}

/// A person has a stuck volume detached by force. Its device name stays taken on the instance:
/// another volume gets another name.
async fn forced(world: &World<'_>) -> Outcome {
    let (from, to) = ("f27-a", "f27-b");
    let instance = world.node(from).await?;
    let other = world.node(to).await?;
    let handle = world.volume("f27-x").await?;
    world.run_pod("f27-0", from, &["f27-x"]).await?;
    let name = world.driver.device(&handle)?;
    let since = world.driver.attached_since(&handle)?;
    world.driver.fault(&json!({"id": "f27-stuck", "count": 1, "match": {"action": "DetachVolume", "resource": handle},
        "fault": {"kind": "stuck_detach", "busy": true}}))?;
    world.driver.fault(&json!({"id": "f27-held", "match": {"action": "AttachVolume", "instance": instance, "resource": name},
        "fault": {"kind": "device_taken"}}))?;
    world.end_pod("f27-0").await?;
    world.nodes.in_use(from, &[]).await?;
    wait_until("its detach is stuck", || async {
        world.touch_attachment("f27-x", from).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(!world.driver.detach_requests(&handle)?.is_empty())
    })
    .await?;
    let order = format!("{instance} {since}");
    world.break_glass("f27-x", from, &order).await?;
    world.retry_until_detached("f27-x", from).await?;
    let asked = world.driver.detach_requests(&handle)?;
    ensure(
        asked == [(instance.clone(), false), (instance.clone(), true)],
        &format!("a plain detach, then one by force: {asked:?}"),
    )?;

    let next = world.volume("f27-y").await?;
    world.run_pod("f27-1", from, &["f27-y"]).await?;
    ensure(world.driver.device(&next)? != name, "the name that the instance holds is not used")?;
    world.run_pod("f27-0", to, &["f27-x"]).await?;
    ensure(world.driver.is_attached(&handle, &other)?, "what was forced off is where its pod is")
}

/// The first detach request takes effect late, and the reply of the second is lost: both times the
/// pod returns to the same node and keeps its volume there.
async fn late(world: &World<'_>) -> Outcome {
    let node = "f28";
    let instance = world.node(node).await?;
    let handle = world.volume("f28").await?;
    world.run_pod("f28-0", node, &["f28"]).await?;
    let lost = |effect: bool| {
        json!({"id": "f28-lost", "count": 1, "match": {"action": "DetachVolume", "resource": handle},
            "fault": {"kind": "lose_reply", "how": if effect { "hang" } else { "close" }, "effect": effect}})
    };
    let mut since = world.driver.attached_since(&handle)?;
    for (round, effect) in [false, true].into_iter().enumerate() {
        world.driver.fault(&lost(effect))?;
        if !effect {
            world.driver.fault(&json!({"id": "f28-late", "count": 1, "match": {"action": "DetachVolume", "resource": handle},
                "fault": {"kind": "duplicate", "after_ms": 3000}}))?;
        }
        world.end_pod("f28-0").await?;
        world.nodes.in_use(node, &[]).await?;
        world.retry_until_detached("f28", node).await?;
        world.run_pod("f28-0", node, &["f28"]).await?;
        let again = world.driver.attached_since(&handle)?;
        ensure(again != since, "it is another attachment")?;
        since = again;
        let asked = world.driver.detach_requests(&handle)?;
        ensure(asked.len() == round + 1, &format!("each was asked for once: {asked:?}"))?;
    }
    // Requests that were still on their way have arrived.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(
        world.driver.attached_since(&handle)? == since
            && world.driver.is_attached(&handle, &instance)?,
        "the attachment of the pod that runs is the last one",
    )?;
    let asked = world.driver.detach_requests(&handle)?;
    ensure(asked.len() == 2, &format!("nothing more was sent: {asked:?}"))
}
