//! The reports about a node, as text for the reader.

use std::collections::BTreeMap;

use ebs_csi_safe_detach::lifecycle::{Intent, Phase};

use super::{Failover, fencing};
use crate::cluster::Suspect;
use crate::events::{EventReason, EventSubject};

impl Failover {
    pub(super) fn say_unproven(&self, suspect: &Suspect, phase: Phase) {
        if !matches!(phase, Phase::Querying | Phase::VolumesProven) {
            return;
        }
        let (text, checks) = {
            let rota = self.rota();
            let of =
                |texts: &BTreeMap<String, String>| texts.get(suspect.facts.instance()?).cloned();
            (of(rota.texts()), of(rota.checks()))
        };
        if let Some(why) = self.fencing.left_alone(&suspect.facts) {
            let note = fencing::words(why, &checks.unwrap_or_default());
            self.tell(suspect, EventReason::FenceHeld, &note);
            return;
        }
        let note =
            text.unwrap_or_else(|| "nothing proves that its volumes may leave it".to_owned());
        self.tell(suspect, EventReason::Unproven, &note);
    }

    pub(super) fn say_done(&self, suspect: &Suspect, intent: &Intent) {
        let (tale, note) = match intent {
            Intent::AddTaint(about) => (
                EventReason::ProvenDown,
                format!(
                    "instance {} is off: the node is out of service until it has booted again",
                    about.instance
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
            Intent::Nudge { .. } => return,
        };
        self.tell(suspect, tale, &note);
    }

    pub(super) fn tell(&self, suspect: &Suspect, tale: EventReason, note: &str) {
        let about = EventSubject::Node { name: suspect.name.clone(), uid: suspect.uid.clone() };
        self.teller.tell(about, tale, note);
    }
}
