//! What the scenarios check and wait for.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;

use crate::environment::world::{Outcome, World, ensure, wait_until};

impl World<'_> {
    /// Returns whether the detach was refused with that token.
    pub(crate) async fn is_refused(
        &self,
        volume: &str,
        node: &str,
        token: &str,
    ) -> Result<bool, String> {
        let status = self.attachment(volume, node).await?.and_then(|a| a.status);
        let message = status.and_then(|s| s.detach_error).and_then(|e| e.message);
        Ok(message.is_some_and(|message| message.contains(token)))
    }

    /// Returns whether the attachment exists and is not being deleted.
    pub(crate) async fn is_kept(&self, volume: &str, node: &str) -> Result<bool, String> {
        let attachment = self.attachment(volume, node).await?;
        Ok(attachment.is_some_and(|a| a.metadata.deletion_timestamp.is_none()))
    }

    /// Waits until the volume is attached neither in Kubernetes nor in EC2.
    pub(crate) async fn wait_until_detached(
        &self,
        claim: &str,
        node: &str,
        handle: &str,
        instance: &str,
    ) -> Outcome {
        wait_until(&format!("{claim} is off {node}"), || async {
            Ok(self.attachment(claim, node).await?.is_none())
        })
        .await?;
        ensure(
            !self.driver.is_attached(handle, instance)?,
            "EC2 shows no attachment once Kubernetes has none",
        )
    }

    pub(crate) async fn is_ready(&self, node: &str) -> Result<bool, String> {
        let node = self.all_nodes().get(node).await.map_err(|e| e.to_string())?;
        let conditions = node.status.and_then(|status| status.conditions);
        Ok(conditions
            .unwrap_or_default()
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"))
    }

    /// Waits until Kubernetes marks the node not Ready.
    pub(crate) async fn wait_until_not_ready(&self, node: &str) -> Outcome {
        wait_until(&format!("{node} is not Ready"), || async { Ok(!self.is_ready(node).await?) })
            .await
    }

    /// Returns the notes of the events of that reason about a node or a pod.
    pub(crate) async fn events(&self, name: &str, reason: &str) -> Result<Vec<String>, String> {
        let events: Api<Event> = Api::all(self.admin.clone());
        let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let about = all.into_iter().filter(|event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name)
        });
        Ok(about.map(|event| event.note.unwrap_or_default()).collect())
    }

    pub(crate) async fn wait_for_event(&self, node: &str, reason: &str) -> Outcome {
        wait_until(&format!("the event {reason} about {node}"), || async {
            Ok(!self.events(node, reason).await?.is_empty())
        })
        .await
    }

    pub(crate) async fn wait_until_pod_gone(&self, name: &str) -> Outcome {
        wait_until(&format!("pod {name} is gone"), || async {
            let pod = self.pods().get_opt(name).await.map_err(|e| e.to_string())?;
            Ok(pod.is_none())
        })
        .await
    }

    /// Returns the values of the node's out-of-service taints.
    pub(crate) async fn taints(&self, node: &str) -> Result<Vec<String>, String> {
        let node = self.all_nodes().get_opt(node).await.map_err(|e| e.to_string())?;
        let taints = node.and_then(|node| node.spec).and_then(|spec| spec.taints);
        let ours = taints.unwrap_or_default().into_iter();
        Ok(ours
            .filter(|taint| taint.key == "node.kubernetes.io/out-of-service")
            .map(|taint| taint.value.unwrap_or_default())
            .collect())
    }

    /// Returns the holder of node-lifecycle's Lease.
    pub(crate) async fn leader(&self) -> Result<Option<String>, String> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), "kube-system");
        let lease = leases.get_opt("ebs-csi-node-lifecycle").await;
        let spec = lease.map_err(|e| e.to_string())?.and_then(|lease| lease.spec);
        Ok(spec.and_then(|spec| spec.holder_identity))
    }

    /// Waits until the volume is detached and the attachment is gone. Meanwhile, makes
    /// external-attacher retry: by itself it would wait for a minute after a refusal.
    pub(crate) async fn retry_until_detached(&self, claim: &str, node: &str) -> Outcome {
        wait_until(&format!("{claim} is detached from {node}"), || async {
            self.touch_attachment(claim, node).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(self.attachment(claim, node).await?.is_none())
        })
        .await
    }

    /// Waits until the attachment is gone after a refusal: either node-lifecycle causes a retry, or
    /// external-attacher retries after its back-off, whichever is first.
    pub(crate) async fn wait_until_detached_by_retry(&self, claim: &str, node: &str) -> Outcome {
        wait_until(&format!("{claim} is detached from {node}"), || async {
            Ok(self.attachment(claim, node).await?.is_none())
        })
        .await
    }

    /// Waits until the detach is refused with that token, and has it retried meanwhile.
    pub(crate) async fn wait_until_refused(&self, claim: &str, node: &str, token: &str) -> Outcome {
        let what = format!("the detach of {claim} from {node} is refused: {token}");
        wait_until(&what, || async {
            self.touch_attachment(claim, node).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.is_refused(claim, node, token).await
        })
        .await
    }

    /// Waits until Kubernetes has asked the pod to end.
    pub(crate) async fn wait_until_pod_deleting(&self, pod: &str) -> Outcome {
        wait_until(&format!("pod {pod} is asked to end"), || async {
            let pod = self.pods().get(pod).await.map_err(|e| e.to_string())?;
            Ok(pod.metadata.deletion_timestamp.is_some())
        })
        .await
    }

    /// Waits until the Node object lists the volume in `volumesAttached`, so that kubelet may mount
    /// it.
    pub(crate) async fn wait_until_mountable(&self, node: &str, handle: &str) -> Outcome {
        wait_until(&format!("{node} lists {handle}"), || async {
            let node = self.all_nodes().get(node).await;
            let status = node.map_err(|e| e.to_string())?.status.unwrap_or_default();
            let attached = status.volumes_attached.unwrap_or_default();
            Ok(attached.iter().any(|volume| volume.name.contains(handle)))
        })
        .await
    }

    /// Checks that the volume is attached to the instance, that no DetachVolume was sent, and that
    /// the node has no taint.
    pub(crate) async fn check_untouched(
        &self,
        node: &str,
        handle: &str,
        instance: &str,
    ) -> Outcome {
        ensure(self.driver.is_attached(handle, instance)?, &format!("{handle} is at {instance}"))?;
        let asked = self.driver.detach_requests(handle)?;
        ensure(asked.is_empty(), &format!("no DetachVolume was sent: {asked:?}"))?;
        ensure(self.taints(node).await?.is_empty(), &format!("{node} has no out-of-service taint"))
    }

    /// Checks that EC2 received one DetachVolume, without Force, and has detached the volume from
    /// the instance.
    pub(crate) fn check_detached_once(&self, handle: &str, instance: &str) -> Outcome {
        let asked = self.driver.detach_requests(handle)?;
        ensure(
            asked.len() == 1,
            &format!("one DetachVolume of {handle} from {instance}: {asked:?}"),
        )?;
        self.check_detached_without_force(handle, instance)
    }

    /// Checks that EC2 received DetachVolume for this instance alone, never with Force, and has
    /// detached the volume.
    pub(crate) fn check_detached_without_force(&self, handle: &str, instance: &str) -> Outcome {
        let asked = self.driver.detach_requests(handle)?;
        let unforced = (instance.to_owned(), false);
        ensure(
            !asked.is_empty() && asked.iter().all(|request| *request == unforced),
            &format!("each DetachVolume of {handle} from {instance}, none by force: {asked:?}"),
        )?;
        ensure(
            !self.driver.is_attached(handle, instance)?,
            &format!("{handle} is no longer at {instance}"),
        )
    }

    /// Checks a node that is not Ready and about which nothing is proved: waits until an event says
    /// so and the pod is asked to end, and checks that nothing else is done.
    pub(crate) async fn check_left_alone(
        &self,
        node: &str,
        pod: &str,
        handle: &str,
        instance: &str,
    ) -> Outcome {
        self.wait_until_not_ready(node).await?;
        self.wait_for_event(node, "SafeDetachUnproven").await?;
        self.wait_until_pod_deleting(pod).await?;
        ensure(self.pods().get(pod).await.is_ok(), "the pod's object stays")?;
        self.check_untouched(node, handle, instance).await
    }
}
