//! Detaches that do not end as they should, and their consequences.

pub(super) mod known_failures;

use std::time::Duration;

use serde_json::json;

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F21_kubelet_forgets_a_volume_that_is_mounted", forgotten(world)),
        Scenario::new("F27_device_name_of_forced_detach_stays_unused", forced(world)),
        Scenario::new("F28_late_detach_spares_later_attachment", late(world)),
        Scenario::new("in_use_refusal_is_retried_when_instance_stops", stopped_in_use(world)),
    ]
}

/// Kubelet no longer lists the volume while its pod runs: that alone frees nothing. Then kubelet
/// ends the pod and leaves a mount: EC2 shows `busy`, nobody else gets the volume, and nothing is
/// sent twice or by force.
async fn forgotten(world: &World<'_>) -> Outcome {
    let to = "f21-b";
    let other = world.node(to).await?;
    let from = world.attached("f21", "f21-a").await?;
    let handle = &from.handle;
    from.wait_until_mountable().await?;
    from.release().await?;
    from.delete_attachment().await?;
    from.wait_until_refused("in-use").await?;
    from.check_untouched().await?;

    world
        .driver
        .fault(&json!({"id": "f21", "match": {"action": "DetachVolume", "resource": handle},
        "fault": {"kind": "stuck_detach", "busy": true}}))?;
    world.end_pod(&from.pod).await?;
    from.wait_until_detach_sent().await?;
    world.add_pod("f21-1", to, &["f21"]).await?;
    // Nothing follows, whoever calls.
    for _ in 0..5 {
        from.retry().await?;
    }
    ensure(from.is_attached()?, "what is mounted stays")?;
    ensure(!world.driver.is_attached(handle, &other)?, "nobody else has it")?;
    // When the mount is gone, the volume is detached.
    world.driver.remove_fault("f21")?;
    let path = format!("/v1/volumes/{handle}/force");
    world.driver.ec2("POST", &path, &json!({"detached": from.instance}))?;
    from.retry_until_detached().await?;
    from.check_detached_once()?;
    world.begin_pod("f21-1", to, &["f21"]).await?;
    ensure(world.driver.is_attached(handle, &other)?, "the volume is where its pod is")
}

/// Kubelet's last report, which says that the volume is in use, counts as fresh for a while after
/// the instance has stopped. By itself external-attacher would retry after a minute.
async fn stopped_in_use(world: &World<'_>) -> Outcome {
    let at = world.attached("stopped-in-use", "stopped-in-use").await?;
    at.delete_attachment().await?;
    // Without a retry of the test's own, which might come after the stop.
    wait_until("the detach is refused: in-use", || at.is_refused("in-use")).await?;
    let name = at.attachment_name().await?.ok_or("no attachment")?;
    at.power("stop")?;
    at.wait_until_detached().await?;
    ensure(world.is_ready(&at.node).await?, "its node still counts as Ready")?;
    let retried = world.plane.patches("volumeattachments", &name)?;
    ensure(retried > 0, "node-lifecycle has the detach retried")?;
    at.check_detached_once()
}

/// A person has a stuck volume detached by force. Its device name stays taken on the instance:
/// another volume gets another name.
async fn forced(world: &World<'_>) -> Outcome {
    let from = world.attached("f27-x", "f27-a").await?;
    let (instance, handle) = (&from.instance, &from.handle);
    let name = world.driver.device(handle)?;
    let since = from.attached_since()?;
    world.driver.fault(&json!({"id": "f27-stuck", "count": 1, "match": {"action": "DetachVolume", "resource": handle},
        "fault": {"kind": "stuck_detach", "busy": true}}))?;
    world.driver.fault(&json!({"id": "f27-held", "match": {"action": "AttachVolume", "instance": instance, "resource": name},
        "fault": {"kind": "device_taken"}}))?;
    from.end_pod().await?;
    from.wait_until_detach_sent().await?;
    from.order_override(&since).await?;
    from.retry_until_detached().await?;
    let sent = world.driver.detach_requests(handle)?;
    ensure(
        sent == [(instance.clone(), false), (instance.clone(), true)],
        &format!("a plain detach, then one by force: {sent:?}"),
    )?;

    let next = world.volume("f27-y").await?;
    world.run_pod("f27-1", &from.node, &["f27-y"]).await?;
    ensure(world.driver.device(&next)? != name, "the name that the instance holds is not used")?;
    from.move_to_new("f27-b").await
}

/// The first detach request takes effect late, and the reply of the second is lost: both times the
/// pod returns to the same node and keeps its volume there.
async fn late(world: &World<'_>) -> Outcome {
    let at = world.attached("f28", "f28").await?;
    let of_volume = json!({"action": "DetachVolume", "resource": at.handle});
    let mut since = at.attached_since()?;
    for (round, effect) in [false, true].into_iter().enumerate() {
        world.driver.fault(&json!({"id": "f28-lost", "count": 1, "match": of_volume,
            "fault": {"kind": "lose_reply", "how": if effect { "hang" } else { "close" }, "effect": effect}}))?;
        if !effect {
            world.driver.fault(&json!({"id": "f28-late", "count": 1, "match": of_volume,
                "fault": {"kind": "duplicate", "after_ms": 3000}}))?;
        }
        at.end_pod().await?;
        at.retry_until_detached().await?;
        world.run_pod(&at.pod, &at.node, &["f28"]).await?;
        let again = at.attached_since()?;
        ensure(again != since, "it is another attachment")?;
        since = again;
        let sent = world.driver.detach_requests(&at.handle)?;
        ensure(sent.len() == round + 1, &format!("each was sent once: {sent:?}"))?;
    }
    // Requests that were still on their way have arrived.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure(
        at.attached_since()? == since && at.is_attached()?,
        "the attachment of the pod that runs is the last one",
    )?;
    let sent = world.driver.detach_requests(&at.handle)?;
    ensure(sent.len() == 2, &format!("nothing more was sent: {sent:?}"))
}
