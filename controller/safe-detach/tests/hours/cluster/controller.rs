//! The simulated answers of EC2, and the ControllerUnpublishVolume call.

use std::time::Duration;

use ebs_csi_safe_detach::{
    AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, Mode, NodeReport, Phase, Refusal,
    Verdict, Waiting, decide, kubelet_report,
};
use ebs_csi_wire::{InstanceId, VolumeId};

use super::{CALL, Cluster, INSTANCE, LONGEST_PAUSE, VOLUME, Weather};

impl Cluster {
    /// Reads EC2 once.
    pub(super) fn ec2(&mut self) -> (Fact<AttachmentFact>, Fact<InstanceFact>) {
        let attachment = AttachmentFact {
            phase: match self.leaving_until {
                Some(_) => Phase::Leaving,
                None => Phase::Held,
            },
            since: None,
        };
        let shown = match self.held {
            true => Fact::Present(attachment),
            false => Fact::Absent,
        };
        let instance = Fact::Present(InstanceFact { power: self.power, hibernation: Fact::Absent });
        let (throttled, unknown) = (self.roll(5) != 0, self.roll(2) == 0);
        match self.weather {
            Weather::Throttled if throttled => (Fact::Unknown, Fact::Unknown),
            Weather::Flapping if unknown => (shown, Fact::Absent),
            Weather::Clear | Weather::Throttled | Weather::Flapping => (shown, instance),
        }
    }

    pub(super) fn kubelet_report(&self) -> Fact<KubeletReport> {
        let names = |listed: bool| match listed {
            true => vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}")],
            false => Vec::new(),
        };
        let report = NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            csi_node_id: String::new(),
            ready: self.lost[0].is_none(),
            lease_age: Some(Duration::from_secs(self.now - self.heard[0])),
            in_use: names(self.in_use),
            attached: names(self.attached),
        };
        let instance = InstanceId::parse(INSTANCE).expect("an id");
        let volume = VolumeId::parse(VOLUME).expect("an id");
        kubelet_report(&[report], &instance, &volume, Duration::ZERO)
    }

    pub(super) fn facts(&mut self) -> Facts {
        let (attachment, instance) = self.ec2();
        Facts {
            mode: Mode::Enforce,
            attachment,
            instance,
            kubelet_report: Fact::Unknown,
            fence: Fact::Absent,
            override_order: Fact::Absent,
        }
    }

    pub(super) fn of_call(&mut self) {
        let Some((begun, sent)) = self.call else {
            return;
        };
        let mut facts = self.facts();
        let mut verdict = decide(&facts);
        if verdict == Verdict::Refuse(Refusal::NoReport) && self.api_up {
            facts.kubelet_report = self.kubelet_report();
            verdict = decide(&facts);
        }
        match verdict {
            // While the API server is down, external-attacher cannot record that the attachment is
            // gone.
            Verdict::Done if !self.api_up => {}
            Verdict::Done => {
                assert!(!self.held, "S11: OK though the volume is attached: {self:?}");
                self.attachment = None;
                self.call = None;
                self.pause = 1;
            }
            Verdict::Safe(_) if !sent => {
                assert!(!self.mounted, "S1: a volume in use: {self:?}");
                self.sent += 1;
                self.leaving_until = Some(self.now + self.busy_for);
                self.call = Some((begun, true));
            }
            Verdict::Refuse(_) => self.call_failed(),
            Verdict::Safe(_) | Verdict::Wait(Waiting::Leaving | Waiting::Transition) => {}
        }
        if self.call.is_some() && self.now - begun >= CALL {
            self.deadlines += 1;
            self.call_failed();
        }
    }

    pub(super) fn call_failed(&mut self) {
        self.call = None;
        self.next_call = self.now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}
