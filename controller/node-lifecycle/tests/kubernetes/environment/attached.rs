//! A volume and the pod that uses it on a node: what the scenarios do to them and wait for.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

use crate::environment::world::{TestResult, World, ensure, patch, wait_until};

/// A volume that a pod on a node uses. The pod is called `CLAIM-0`.
pub(crate) struct Attached<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) claim: String,
    pub(crate) node: String,
    pub(crate) instance: String,
    /// The volume's id in EC2.
    pub(crate) handle: String,
    pub(crate) pod: String,
}

impl<'a> World<'a> {
    pub(crate) async fn attached(&'a self, claim: &str, node: &str) -> TestResult<Attached<'a>> {
        let instance = self.node(node).await?;
        let handle = self.volume(claim).await?;
        let attached = self.existing(claim, node, &instance, &handle);
        self.run_pod(&attached.pod, node, &[claim]).await?;
        Ok(attached)
    }

    /// Returns the value for a volume, a node and a pod that the caller creates.
    pub(crate) fn existing(
        &'a self,
        claim: &str,
        node: &str,
        instance: &str,
        handle: &str,
    ) -> Attached<'a> {
        Attached {
            world: self,
            claim: claim.to_owned(),
            node: node.to_owned(),
            instance: instance.to_owned(),
            handle: handle.to_owned(),
            pod: format!("{claim}-0"),
        }
    }
}

impl Attached<'_> {
    pub(crate) fn stop_heartbeats(&self) {
        self.world.nodes.stop_heartbeats(&self.node);
    }

    pub(crate) fn power(&self, how: &str) -> TestResult {
        self.world.driver.power(&self.instance, how)
    }

    /// Stops the instance, so that its kubelet is silent.
    pub(crate) fn power_off(&self) -> TestResult {
        self.power("stop")?;
        self.stop_heartbeats();
        Ok(())
    }

    /// Silences the kubelet, and waits until the node is not Ready.
    pub(crate) async fn fall_silent(&self) -> TestResult {
        self.stop_heartbeats();
        self.wait_until_not_ready().await
    }

    pub(crate) async fn boot(&self, boot: &str) -> TestResult {
        self.world.nodes.boot(&self.node, boot).await
    }

    /// Starts the instance, which no longer uses the volume, and reports another boot as Ready.
    pub(crate) async fn start_again(&self) -> TestResult {
        self.release().await?;
        self.power("start")?;
        self.boot("boot-2").await
    }

    /// Reports that kubelet uses no volume.
    pub(crate) async fn release(&self) -> TestResult {
        self.world.nodes.in_use(&self.node, &[]).await
    }

    /// Ends the pod and releases the volume, as kubelet does.
    pub(crate) async fn end_pod(&self) -> TestResult {
        self.world.end_pod(&self.pod).await?;
        self.release().await
    }

    pub(crate) async fn move_to_new(&self, node: &str) -> TestResult {
        let instance = self.world.node(node).await?;
        self.move_to(node, &instance).await
    }

    /// Runs the pod anew on that node, and checks that the volume follows.
    pub(crate) async fn move_to(&self, node: &str, instance: &str) -> TestResult {
        self.world.run_pod(&self.pod, node, &[&self.claim]).await?;
        let is_there = self.world.driver.is_attached(&self.handle, instance)?;
        ensure(is_there, "the volume is where its pod is")
    }

    /// Deletes the attachment, as a person with kubectl would.
    pub(crate) async fn delete_attachment(&self) -> TestResult {
        let name = self.attachment_name().await?.ok_or("no attachment")?;
        self.world.attachments().delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn order_override(&self, since: &str) -> TestResult {
        let name = self.attachment_name().await?.ok_or("no attachment")?;
        let order = format!("{} {since}", self.instance);
        let annotation =
            json!({"metadata": {"annotations": {"ebs.csi.aws.com/break-glass": order}}});
        patch(&self.world.attachments(), &name, annotation).await
    }

    /// Changes the attachment, so that external-attacher processes it at once, and gives it a
    /// second.
    pub(crate) async fn retry(&self) -> TestResult {
        if let Some(name) = self.attachment_name().await? {
            let now = jiff::Timestamp::now().to_string();
            let touched = json!({"metadata": {"annotations": {"rig/touched": now}}});
            // The attachment may be deleted at this moment.
            let _ = patch(&self.world.attachments(), &name, touched).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    pub(crate) async fn attachment_name(&self) -> TestResult<Option<String>> {
        let found = self.world.attachment(&self.claim, &self.node).await?;
        Ok(found.map(|attachment| attachment.name_any()))
    }

    /// Returns whether the attachment exists and is not being deleted.
    pub(crate) async fn is_kept(&self) -> TestResult<bool> {
        let attachment = self.world.attachment(&self.claim, &self.node).await?;
        Ok(attachment.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
    }

    pub(crate) fn is_attached(&self) -> TestResult<bool> {
        self.world.driver.is_attached(&self.handle, &self.instance)
    }

    pub(crate) fn attached_since(&self) -> TestResult<String> {
        self.world.driver.attached_since(&self.handle)
    }

    /// Returns the values of the node's out-of-service taints.
    pub(crate) async fn taints(&self) -> TestResult<Vec<String>> {
        let spec = self.world.all_nodes().get_opt(&self.node).await?.and_then(|node| node.spec);
        let taints = spec.and_then(|spec| spec.taints).into_iter().flatten();
        let ours = taints.filter(|taint| taint.key == "node.kubernetes.io/out-of-service");
        Ok(ours.map(|taint| taint.value.unwrap_or_default()).collect())
    }

    /// Waits until the node has the driver's own out-of-service taint.
    pub(crate) async fn wait_until_tainted(&self) -> TestResult {
        wait_until(&format!("our taint is on {}", self.node), || async {
            Ok(self.taints().await? == ["ebs-safe-detach"])
        })
        .await
    }

    pub(crate) async fn wait_until_untainted(&self) -> TestResult {
        let what = format!("our taint is no longer on {}", self.node);
        wait_until(&what, || async { Ok(self.taints().await?.is_empty()) }).await
    }

    pub(crate) async fn wait_until_ready(&self) -> TestResult {
        wait_until("the node is Ready again", || self.world.is_ready(&self.node)).await
    }

    pub(crate) async fn wait_until_not_ready(&self) -> TestResult {
        self.world.wait_until_not_ready(&self.node).await
    }

    pub(crate) async fn wait_for_event(&self, reason: &str) -> TestResult {
        self.world.wait_for_event(&self.node, reason).await
    }

    pub(crate) async fn wait_until_pod_gone(&self) -> TestResult {
        wait_until(&format!("pod {} is gone", self.pod), || async {
            Ok(self.world.pods().get_opt(&self.pod).await?.is_none())
        })
        .await
    }

    pub(crate) async fn wait_until_pod_deleting(&self) -> TestResult {
        wait_until(&format!("the deletion of pod {} is requested", self.pod), || async {
            let pod = self.world.pods().get(&self.pod).await?;
            Ok(pod.metadata.deletion_timestamp.is_some())
        })
        .await
    }

    /// Waits until the Node object lists the volume in `volumesAttached`, so that kubelet may mount
    /// it.
    pub(crate) async fn wait_until_mountable(&self) -> TestResult {
        wait_until(&format!("{} lists {}", self.node, self.handle), || async {
            let status = self.world.all_nodes().get(&self.node).await?.status.unwrap_or_default();
            let mut attached = status.volumes_attached.into_iter().flatten();
            Ok(attached.any(|volume| volume.name.contains(&self.handle)))
        })
        .await
    }

    /// Waits until the volume is attached neither in Kubernetes nor in EC2. After a refusal, either
    /// node-lifecycle causes a retry, or external-attacher retries after its back-off.
    pub(crate) async fn wait_until_detached(&self) -> TestResult {
        wait_until(&format!("{} is detached from {}", self.claim, self.node), || async {
            Ok(self.attachment_name().await?.is_none())
        })
        .await?;
        ensure(!self.is_attached()?, "EC2 shows no attachment once Kubernetes has none")
    }

    /// Waits until the attachment is gone. Meanwhile, makes external-attacher retry: by itself it
    /// would wait for a minute after a refusal.
    pub(crate) async fn retry_until_detached(&self) -> TestResult {
        wait_until(&format!("{} is detached from {}", self.claim, self.node), || async {
            self.retry().await?;
            Ok(self.attachment_name().await?.is_none())
        })
        .await
    }

    /// Waits until the detach is refused with that token, and has it retried meanwhile.
    pub(crate) async fn wait_until_refused(&self, token: &str) -> TestResult {
        let what = format!("the detach of {} from {} is refused: {token}", self.claim, self.node);
        wait_until(&what, || async {
            self.retry().await?;
            self.is_refused(token).await
        })
        .await
    }

    /// Waits until the detach is refused with that token, and checks that nothing else is done.
    pub(crate) async fn check_refused(&self, token: &str) -> TestResult {
        self.wait_until_refused(token).await?;
        self.check_untouched().await
    }

    /// Returns whether the last attempt to detach was refused with this token.
    pub(crate) async fn is_refused(&self, token: &str) -> TestResult<bool> {
        let status = self.world.attachment(&self.claim, &self.node).await?;
        let error = status.and_then(|it| it.status).and_then(|status| status.detach_error);
        let message = error.and_then(|error| error.message);
        Ok(message.is_some_and(|message| message.contains(token)))
    }

    /// Waits until EC2 has received a DetachVolume for the volume, and has it retried meanwhile.
    pub(crate) async fn wait_until_detach_sent(&self) -> TestResult {
        wait_until("EC2 has received a DetachVolume", || async {
            self.retry().await?;
            Ok(!self.world.driver.detach_requests(&self.handle)?.is_empty())
        })
        .await
    }

    /// Checks that the volume is attached to the instance, that no DetachVolume was sent, and that
    /// the node has no taint.
    pub(crate) async fn check_untouched(&self) -> TestResult {
        let Self { handle, instance, node, .. } = self;
        ensure(self.is_attached()?, &format!("{handle} is at {instance}"))?;
        let sent = self.world.driver.detach_requests(handle)?;
        ensure(sent.is_empty(), &format!("no DetachVolume was sent: {sent:?}"))?;
        ensure(self.taints().await?.is_empty(), &format!("{node} has no out-of-service taint"))
    }

    /// Waits until the volume is detached, by one DetachVolume without Force.
    pub(crate) async fn wait_until_detached_once(&self) -> TestResult {
        self.wait_until_detached().await?;
        self.check_detached_once()
    }

    /// The same as [`Attached::wait_until_detached_once`], with retries meanwhile.
    pub(crate) async fn retry_until_detached_once(&self) -> TestResult {
        self.retry_until_detached().await?;
        self.check_detached_once()
    }

    /// Checks that EC2 received one DetachVolume, without Force, and has detached the volume from
    /// the instance.
    pub(crate) fn check_detached_once(&self) -> TestResult {
        let sent = self.world.driver.detach_requests(&self.handle)?;
        ensure(sent.len() == 1, &format!("one DetachVolume of {}: {sent:?}", self.handle))?;
        self.check_detached_without_force()
    }

    /// Checks that EC2 received DetachVolume for this instance alone, never with Force, and has
    /// detached the volume.
    pub(crate) fn check_detached_without_force(&self) -> TestResult {
        let Self { handle, instance, .. } = self;
        let sent = self.world.driver.detach_requests(handle)?;
        let unforced = (instance.clone(), false);
        ensure(
            !sent.is_empty() && sent.iter().all(|request| *request == unforced),
            &format!("each DetachVolume of {handle} from {instance}, none by force: {sent:?}"),
        )?;
        ensure(!self.is_attached()?, &format!("{handle} is no longer at {instance}"))
    }

    /// Checks a node that is not Ready and about which nothing is proved: waits until an event says
    /// so and the pod's deletion is requested, and checks that nothing else is done.
    pub(crate) async fn check_left_alone(&self) -> TestResult {
        self.wait_until_not_ready().await?;
        self.wait_for_event("SafeDetachUnproven").await?;
        self.wait_until_pod_deleting().await?;
        ensure(self.world.pods().get(&self.pod).await.is_ok(), "the pod's object stays")?;
        self.check_untouched().await
    }
}
