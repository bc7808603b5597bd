//! Sequences in which the driver does the wrong thing: kubelet's lists are no proof. Each scenario
//! asks for the right thing and passes while the driver does not do it
//! (`deploy/docs/limitations.md`).

use serde_json::json;

use crate::environment::attached::Attached;
use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;
use crate::scenarios::manual_changes::taint;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("F53_known_failure_pod_returns_before_late_unpublish", returned(world)),
        Scenario::new("F54_known_failure_node_registers_anew_with_empty_lists", registered(world)),
        Scenario::new("F55_known_failure_kubelet_restarts_after_refused_detach", restarted(world)),
    ]
}

/// Turns the failure to do the right thing into success.
fn still_fails(right: Outcome) -> Outcome {
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
async fn returned(world: &World<'_>) -> Outcome {
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
    at.wait_until_detached().await?;
    at.check_detached_once()?;
    at.move_to(&at.node, &at.instance).await
}

/// The Node object of a running instance is deleted, and so is the VolumeAttachment, by a person or
/// by Kubernetes after six minutes. Kubelet registers anew with empty lists, while the container
/// writes on.
async fn registered(world: &World<'_>) -> Outcome {
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
async fn restarted(world: &World<'_>) -> Outcome {
    let at = world.attached("f55", "f55").await?;
    at.stop_heartbeats();
    at.wait_until_not_ready().await?;
    taint(world, &at.node).await?;
    at.wait_until_refused("SafeDetachRefused").await?;
    at.release().await?;
    at.boot("boot-1").await?;
    still_fails(stays(&at).await)
}

/// Checks that no DetachVolume is sent for a volume that a container uses.
async fn stays(at: &Attached<'_>) -> Outcome {
    let is_sent = is_detach_sent(at).await.is_ok();
    ensure(!is_sent, "the volume of a running container stays")
}

/// Checks that DetachVolume is sent while external-attacher tries again.
async fn is_detach_sent(at: &Attached<'_>) -> Outcome {
    for _ in 0..40 {
        at.retry().await?;
        if !at.world.driver.detach_requests(&at.handle)?.is_empty() {
            return Ok(());
        }
    }
    Err("no DetachVolume in forty tries".into())
}
