//! A volume that is still attached to an instance which is off, while the orchestrator believes
//! that the volume is attached nowhere.
//!
//! external-attacher resolves a node's name when it detaches. When another instance has taken the
//! name, the detach is about that instance, EC2 shows no such attachment, and the volume stays at
//! the first instance without anybody who would detach it again. The next publish finds it here.

use ebs_csi_ec2::{Action, Attachment, AttachmentState, Call, Ec2ErrorKind, Force, Volume};
use ebs_csi_proto::Failure;
use ebs_csi_wire::InstanceId;

use super::Attachments;
use crate::operation::Cancellation;
use crate::request::Pair;
use crate::safe_detach::{Evidence, Mode, Verdict, decide, gather};

impl Attachments {
    /// Detaches the volume from the one other instance that holds it, if EC2 proves that this
    /// instance is off. Returns whether DetachVolume was requested.
    ///
    /// Weaker evidence is not enough here. For a running instance, neither the orchestrator's
    /// statement nor kubelet's report counts, since neither was asked about this detach, and
    /// somebody may have attached the volume by hand. An override order applies only to a detach
    /// that was requested.
    ///
    /// # Errors
    /// EC2's error of DetachVolume; a failure when the operation is superseded or no caller waits
    /// for it any more.
    pub(super) async fn detach_left_behind(
        &self,
        call: &Call,
        Pair { volume, node }: &Pair,
        cancellation: &Cancellation,
    ) -> Result<bool, Failure> {
        if self.safe_detach == Mode::Off {
            return Ok(false);
        }
        let ec2 = &self.ec2;
        let look = ec2.look_volume(call, volume).await;
        let Some(attachment) = look.present().and_then(|volume| only_holder(volume, node)) else {
            return Ok(false);
        };
        let Some(holder) = attachment.instance.clone() else {
            return Ok(false);
        };
        let pair = Pair { volume: volume.clone(), node: holder.clone() };
        let queued = ec2.wait_in_queue(call, Action::DetachVolume, volume, |_| false);
        let call = &queued.await?;
        loop {
            let gathered = gather(ec2, call, self.safe_detach, &pair, &self.cluster_evidence).await;
            if gathered.root_device.is_some() || gathered.is_launch_volume {
                return Ok(false);
            }
            let Verdict::Safe(
                evidence @ (Evidence::Terminated | Evidence::Stopped | Evidence::Fenced),
            ) = decide(&gathered.facts)
            else {
                return Ok(false);
            };
            cancellation.check_not_superseded()?;
            cancellation.check_wanted()?;
            tracing::warn!(
                volume.id = volume.as_str(),
                node.id = holder.as_str(),
                evidence = evidence.label(),
                facts = ?gathered.facts,
                "the volume was left at an instance that is off; it is detached there, for it is wanted elsewhere"
            );
            let metrics = self.operation_count.metrics();
            metrics.safe_detach_decided(Verdict::Safe(evidence).label());
            match ec2.detach_volume(call, volume, &holder, Force::No, gathered.looked_at).await {
                Ok(_) => break,
                Err(error) => match error.kind {
                    Ec2ErrorKind::Stale => {}
                    Ec2ErrorKind::AttachmentNotFound | Ec2ErrorKind::IncorrectState => break,
                    _ if error.may_have_happened() => break,
                    _ => return Err(error.into()),
                },
            }
        }
        // A late look would show the volume attached there.
        self.recent.note_ended(&pair, attachment.attached);
        self.publish_options.remove(&pair);
        Ok(true)
    }
}

/// Returns the attachment to the one other instance that has a volume without Multi-Attach.
fn only_holder<'a>(volume: &'a Volume, node: &InstanceId) -> Option<&'a Attachment> {
    let mut others = volume.attachments.iter().filter(|attachment| {
        attachment.instance.as_ref() != Some(node) && attachment.state != AttachmentState::Detached
    });
    let only = others.next()?;
    let is_held = only.state == AttachmentState::Attached;
    (!volume.multi_attach && is_held && others.next().is_none()).then_some(only)
}
