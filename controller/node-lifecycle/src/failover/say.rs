//! What is said of a node, in words for people.

use ebs_csi_safe_detach::lifecycle::{Intent, Phase};

use super::{Failover, Suspect};
use crate::seen::Refused;
use crate::tell::{About, Tale};

impl Failover {
    pub(super) fn say_unproven(&self, suspect: &Suspect, phase: Phase) {
        let text = {
            let rota = self.rota();
            let instance = suspect.facts.instance();
            instance.and_then(|instance| rota.text(instance).map(str::to_owned))
        };
        let note = match (phase, text) {
            (Phase::Querying | Phase::VolumesProven, Some(text)) => text,
            (Phase::Querying | Phase::VolumesProven, None) => {
                "nothing proves that its volumes may leave it".to_owned()
            }
            _ => return,
        };
        self.tell(suspect, Tale::Unproven, &note);
    }

    pub(super) fn say_done(&self, suspect: &Suspect, intent: &Intent) {
        let (tale, note) = match intent {
            Intent::AddTaint(about) => (
                Tale::ProvenDown,
                format!(
                    "instance {} is off: the node is out of service until it has booted again",
                    about.instance
                ),
            ),
            Intent::RemoveTaint => (
                Tale::TaintRemoved,
                "the node has booted again and nothing of the former boot is left".to_owned(),
            ),
            Intent::DeletePod {
                namespace, name, ..
            } => (
                Tale::FailedOver,
                format!("pod {namespace}/{name} was deleted: its volumes may leave the node"),
            ),
            Intent::DeleteAttachment { name, .. } => (
                Tale::FailedOver,
                format!("VolumeAttachment {name} was deleted: its volume may leave the node"),
            ),
            Intent::Nudge { .. } => return,
        };
        self.tell(suspect, tale, &note);
    }

    pub(super) fn say_refused(&self, all: &[Refused]) {
        for Refused {
            name, uid, token, ..
        } in all
        {
            let note = format!(
                "the detach is refused ({token}); status.detachError has the reason and the next step"
            );
            let about = About::Attachment {
                name: name.clone(),
                uid: uid.clone(),
            };
            self.teller.tell(about, Tale::Refused, &note);
        }
    }

    pub(super) fn tell(&self, suspect: &Suspect, tale: Tale, note: &str) {
        let about = About::Node {
            name: suspect.name.clone(),
            uid: suspect.uid.clone(),
        };
        self.teller.tell(about, tale, note);
    }
}
