//! The simulated answers of EC2, and the ControllerUnpublishVolume call.

use std::time::Duration;

use ebs_csi_safe_detach::{
    Agent, AttachmentFact, Fact, Facts, InstanceFact, KernelState, Mode, NodeEvidence, OldAgents,
    Phase, Refusal, Verdict, Waiting, decide,
};

use super::{CALL_TIMEOUT, Cluster, DETACH, LONGEST_PAUSE};
use crate::kubernetes_objects::{ATTACHED, NodeView, answered};

impl Cluster {
    fn node_evidence(&self) -> Fact<NodeEvidence> {
        let state = if self.mounted { KernelState::Held } else { KernelState::Free };
        let node = NodeView {
            ready: self.not_ready_since[0].is_none(),
            lease_age: Duration::from_secs(self.now - self.last_heartbeat[0]),
            in_use: self.in_use,
            attached: self.attached,
            young: false,
            agent: match self.reaches_api_server {
                true => answered(state, false),
                false => Agent::Silent,
            },
        };
        NodeView::evidence(Some(node), OldAgents::Refuse)
    }

    /// Returns what EC2 shows.
    pub(super) fn facts(&self) -> Facts {
        let phase = if self.detach_ends_at.is_some() { Phase::Leaving } else { Phase::Attached };
        let attachment = match self.is_attached {
            true => Fact::Present(AttachmentFact { phase, since: Some(ATTACHED) }),
            false => Fact::Absent,
        };
        let instance = Fact::Present(InstanceFact { power: self.power, hibernation: Fact::Absent });
        Facts { mode: Mode::Enforce, attachment, instance, ..Facts::default() }
    }

    pub(super) fn run_call(&mut self) {
        let Some((began_at, has_sent)) = self.call else {
            return;
        };
        let mut facts = self.facts();
        let mut verdict = decide(&facts);
        if verdict == Verdict::Refuse(Refusal::NoReport) && self.api_server_up {
            facts.node = self.node_evidence();
            verdict = decide(&facts);
        }
        match verdict {
            // While the API server is down, external-attacher cannot record that the attachment is
            // gone.
            Verdict::Done if !self.api_server_up => {}
            Verdict::Done => {
                assert!(!self.is_attached, "S11: OK though the volume is attached: {self:?}");
                self.attachment = None;
                self.call = None;
                self.retry_pause = 1;
            }
            Verdict::Safe(_) if !has_sent => {
                assert!(!self.mounted, "S1: a volume in use: {self:?}");
                self.detaches_sent += 1;
                self.detach_ends_at = Some(self.now + DETACH);
                self.call = Some((began_at, true));
            }
            Verdict::Refuse(_) => self.fail_call(),
            Verdict::Safe(_)
            | Verdict::Wait(Waiting::Leaving | Waiting::Transition | Waiting::Promise) => {}
        }
        if self.call.is_some() && self.now - began_at >= CALL_TIMEOUT {
            self.fail_call();
        }
    }

    pub(super) fn fail_call(&mut self) {
        self.call = None;
        self.next_call = self.now + self.retry_pause;
        self.retry_pause = (self.retry_pause * 2).min(LONGEST_PAUSE);
    }
}
