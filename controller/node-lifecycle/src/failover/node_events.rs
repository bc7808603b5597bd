//! The events about a node.

use ebs_csi_safe_detach::lifecycle::{Intent, NodePhase};

use super::{Failover, fencing};
use crate::cluster::Suspect;
use crate::events::{EventReason, EventSubject};

impl Failover {
    pub(super) fn report_unproven(&self, suspect: &Suspect, phase: NodePhase) {
        if !matches!(phase, NodePhase::Querying | NodePhase::VolumesProven) {
            return;
        }
        let instance = suspect.facts.instance().unwrap_or_default();
        if let Some(why) = self.fencing.reason_left_alone(&suspect.facts) {
            let checks = self.query_schedule().answers.checks.get(instance).cloned();
            let note = fencing::fence_held_note(why, &checks.unwrap_or_default());
            self.send_event(suspect, EventReason::FenceHeld, &note);
            return;
        }
        let text = self.query_schedule().answers.texts.get(instance).cloned();
        let note = text.as_deref().unwrap_or("nothing proves that its volumes may leave it");
        self.send_event(suspect, EventReason::Unproven, note);
    }

    pub(super) fn report_act(&self, suspect: &Suspect, intent: &Intent) {
        let (reason, note) = match intent {
            Intent::AddTaint(tainted) => (
                EventReason::ProvenDown,
                format!(
                    "instance {} is off: the node is out of service until it has booted again",
                    tainted.instance
                ),
            ),
            Intent::RemoveTaint => (
                EventReason::TaintRemoved,
                "the node has booted again and nothing of the former boot is left".to_owned(),
            ),
            Intent::DeletePod { namespace, name, .. } => (
                EventReason::FailedOver,
                format!("pod {namespace}/{name} was deleted: its volumes may leave the node"),
            ),
            Intent::DeleteAttachment { name, .. } => (
                EventReason::FailedOver,
                format!("VolumeAttachment {name} was deleted: its volume may leave the node"),
            ),
            Intent::RetryDetach { .. } => return,
        };
        self.send_event(suspect, reason, &note);
    }

    pub(super) fn send_event(&self, suspect: &Suspect, reason: EventReason, note: &str) {
        let subject = EventSubject::Node { name: suspect.name.clone(), uid: suspect.uid.clone() };
        self.context.events.send(subject, reason, note);
    }
}
