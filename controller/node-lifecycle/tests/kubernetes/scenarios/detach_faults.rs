//! Detaches that do not end as they should, and their consequences.

pub(crate) mod evidence;

use std::time::Duration;

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{TestResult, World, ensure, wait_until};
use crate::scenarios::Scenario;
use crate::scenarios::manual_changes::taint;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F21_kubelet_forgets_a_volume_that_is_mounted", forgotten(world)),
        Scenario::new("F27_device_name_of_forced_detach_stays_unused", forced(world)),
        Scenario::new("F28_late_detach_spares_later_attachment", late(world)),
        Scenario::new("in_use_refusal_is_retried_when_instance_stops", stopped_in_use(world)),
        Scenario::new("F53_known_failure_pod_returns_before_late_unpublish", returned(world)),
        Scenario::new("F54_known_failure_node_registers_anew_with_empty_lists", registered(world)),
        Scenario::new("F55_known_failure_kubelet_restarts_after_refused_detach", restarted(world)),
    ]
}

/// Kubelet no longer lists the volume while its pod runs: that alone frees nothing. Then kubelet
/// ends the pod and leaves a mount: EC2 shows `busy`, nobody else gets the volume, and nothing is
/// sent twice or by force.
async fn forgotten(world: &World<'_>) -> TestResult {
    let to = "f21-b";
    let other = world.node(to).await?;
    let from = world.attached("f21", "f21-a").await?;
    let handle = &from.handle;
    from.wait_until_mountable().await?;
    from.release().await?;
    from.delete_attachment().await?;
    from.check_refused("in-use").await?;

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
    from.retry_until_detached_once().await?;
    world.begin_pod("f21-1", to, &["f21"]).await?;
    ensure(world.driver.is_attached(handle, &other)?, "the volume is where its pod is")
}

/// Kubelet's last report, which says that the volume is in use, counts as fresh for a while after
/// the instance has stopped. By itself external-attacher would retry after a minute.
async fn stopped_in_use(world: &World<'_>) -> TestResult {
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
async fn forced(world: &World<'_>) -> TestResult {
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
async fn late(world: &World<'_>) -> TestResult {
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

// Known failures with agents of an earlier release: sequences in which the driver does the wrong
// thing, because kubelet's lists are no proof. Each scenario asks for the right thing and passes
// while the driver does not do it. [`evidence`] has the same with agents that say what the kernel
// holds.

/// Turns the failure to do the right thing into success.
fn still_fails(right: TestResult) -> TestResult {
    match right {
        Err(_) => Ok(()),
        Ok(()) => {
            Err("no longer a failure: say so in limitations.md, and expect success here".into())
        }
    }
}

/// EC2 does not answer the first unpublish while a pod of a StatefulSet returns to its node. From
/// then on kubelet lists the volume as in use, and Kubernetes attaches nothing to a node from which
/// it detaches.
async fn returned(world: &World<'_>) -> TestResult {
    let at = world.attached("f53", "f53").await?;
    at.wait_until_mountable().await?;
    world.driver.fault(
        &json!({"id": "f53", "match": {"action": "DescribeInstances", "contains": at.instance},
        "fault": {"kind": "error", "code": "InternalError", "status": 500, "message": "x"}}),
    )?;
    at.end_pod().await?;
    wait_until("its detach is requested", || async { Ok(!at.is_kept().await?) }).await?;
    world.add_pod(&at.pod, &at.node, &["f53"]).await?;
    world.nodes.in_use(&at.node, &[&at.handle]).await?;
    world.driver.remove_fault("f53")?;
    at.wait_until_refused("in-use").await?;
    world.wait_for_event(&at.pod, "WaitsForRefusedDetach").await?;
    let notes = world.events(&at.pod, "WaitsForRefusedDetach").await?;
    let name = at.attachment_name().await?.ok_or("no attachment")?;
    for word in ["in-use", name.as_str(), "Delete this pod", "ebs.csi.aws.com/break-glass"] {
        ensure(notes.iter().any(|note| note.contains(word)), &format!("{word}: {notes:?}"))?;
    }
    still_fails(is_detach_sent(&at).await)?;
    // The way out that the event names.
    at.end_pod().await?;
    at.wait_until_detached_once().await?;
    at.move_to(&at.node, &at.instance).await
}

/// The Node object of a running instance is deleted, and so is the VolumeAttachment, by a person or
/// by Kubernetes after six minutes. Kubelet registers anew with empty lists, while the container
/// writes on.
async fn registered(world: &World<'_>) -> TestResult {
    let at = world.attached("f54", "f54").await?;
    world.nodes.delete(&at.node).await?;
    at.wait_until_pod_gone().await?;
    at.delete_attachment().await?;
    world.nodes.create(&at.node, &at.instance, "us-east-1a").await?;
    still_fails(stays(&at).await)
}

/// A person taints a node that is cut off. Kubernetes requests the detach, which is refused.
/// Kubelet starts anew in the same boot, with a list that leaves out what Kubernetes no longer
/// attaches, while the container writes on.
async fn restarted(world: &World<'_>) -> TestResult {
    let at = world.attached("f55", "f55").await?;
    at.fall_silent().await?;
    taint(world, &at.node).await?;
    at.wait_until_refused("SafeDetachRefused").await?;
    at.release().await?;
    at.boot("boot-1").await?;
    still_fails(stays(&at).await)
}

/// Checks that no DetachVolume is sent for a volume that a container uses.
async fn stays(at: &Attached<'_>) -> TestResult {
    let is_sent = is_detach_sent(at).await.is_ok();
    ensure(!is_sent, "the volume of a running container stays")
}

/// Checks that DetachVolume is sent while external-attacher tries again.
async fn is_detach_sent(at: &Attached<'_>) -> TestResult {
    for _ in 0..40 {
        at.retry().await?;
        if !at.world.driver.detach_requests(&at.handle)?.is_empty() {
            return Ok(());
        }
    }
    Err("no DetachVolume in forty tries".into())
}
