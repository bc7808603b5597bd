//! The controllers: ControllerUnpublishVolume from node A, and what they answer node-lifecycle.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::{Evidence, InstanceEvidence};
use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, NodeReport, Phase, Power,
    Refusal, Verdict, Waiting, decide, decide_instance, kubelet_report,
};
use ebs_csi_wire::{InstanceId, VolumeId};

use super::{Call, On, Rules, Stage, World};
use crate::explore::{Name, Steps};

/// Node A's instance.
pub(super) const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
/// The volume.
pub(super) const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";

/// How EC2 answers about the instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ec2Answer {
    Shown,
    NotFound,
    Silent,
}

impl Ec2Answer {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::Shown, ""),
        (Self::NotFound, "EC2 does not know the instance"),
        (Self::Silent, "EC2 says nothing"),
    ];
}

impl World {
    /// Returns what EC2 shows of the instance and of the volume on it.
    fn facts(
        &self,
        rules: Rules,
        ec2_answer: Ec2Answer,
        kubelet_report: Fact<KubeletReport>,
    ) -> Facts {
        let phase = match self.detach_in_flight {
            true => Phase::Leaving,
            false => Phase::Held,
        };
        let since = Some(AttachTime { seconds: 1, nanoseconds: 0 });
        Facts {
            mode: rules.mode,
            attachment: match (ec2_answer, self.shown.held) {
                (Ec2Answer::Silent, _) => Fact::Unknown,
                (_, Some(On::A)) => Fact::Present(AttachmentFact { phase, since }),
                (_, Some(On::B) | None) => Fact::Absent,
            },
            instance: match ec2_answer {
                Ec2Answer::Shown => Fact::Present(InstanceFact {
                    power: self.shown.power,
                    hibernation: Fact::Absent,
                }),
                Ec2Answer::NotFound => Fact::Absent,
                Ec2Answer::Silent => Fact::Unknown,
            },
            kubelet_report,
            fence: Fact::Absent,
            override_order: Fact::Absent,
        }
    }

    /// Returns the answers to `Query` and `QueryInstances`.
    pub(super) fn answers(
        &self,
        rules: Rules,
        ec2_answer: Ec2Answer,
    ) -> (Evidence, InstanceEvidence) {
        let facts = self.facts(rules, ec2_answer, Fact::Unknown);
        let instance = decide_instance(&facts.instance, facts.fence);
        let launched = String::new();
        let impaired = match (ec2_answer, self.impaired) {
            (Ec2Answer::Shown, true) => Fact::Present(()),
            (Ec2Answer::Shown, false) => Fact::Absent,
            _ => Fact::Unknown,
        };
        (decide(&facts).into(), InstanceEvidence::new(instance, launched, impaired))
    }

    pub(super) fn add_controller_steps(&self, slot: usize, rules: Rules, steps: &mut Steps<Self>) {
        let Some(call) = self.calls[slot] else {
            let going = self.attachment.is_some_and(|va| va.on == On::A && va.deleting);
            let call = Call { stage: Stage::Began, gone: false };
            steps.add_if(going, "a call begins", || self.with_call(slot, Some(call)));
            return;
        };
        steps.add_fault_if(true, "a controller dies", || self.with_call(slot, None));
        match call.stage {
            Stage::Began => {
                steps.add_if(true, "a call's time ends", || self.with_call(slot, None));
                for (ec2_answer, name) in Ec2Answer::ALL {
                    let facts = self.facts(rules, ec2_answer, Fact::Unknown);
                    let (name, after) = self.decide_call(slot, call, decide(&facts), name);
                    steps.add(name, Ok(after), ec2_answer != Ec2Answer::Shown);
                }
            }
            Stage::Asking => {
                // EC2's state when the controller asked for the report: the volume attached, the
                // instance running.
                let then = Self {
                    shown: super::Ec2 { held: Some(On::A), power: Power::Running },
                    detach_in_flight: false,
                    ..*self
                };
                let facts = then.facts(rules, Ec2Answer::Shown, self.kubelet_report());
                let (name, after) =
                    self.decide_call(slot, call, decide(&facts), "by kubelet's report");
                steps.add(name, Ok(after), false);
                steps.add_fault_if(true, "no report comes", || self.with_call(slot, None));
            }
            Stage::Decided(rung) => {
                let name = ("DetachVolume is sent", rung.label());
                steps.add(name, self.send_detach(slot, call), false);
            }
            Stage::Sent => {
                let gone = self.shown.held != Some(On::A);
                steps.add_if(gone, "a call ends: OK", || self.end_call(slot, call));
                steps.add_if(true, "a call's time ends", || self.with_call(slot, None));
            }
        }
    }

    fn with_call(&self, slot: usize, call: Option<Call>) -> Self {
        let mut after = *self;
        after.calls[slot] = call;
        after
    }

    fn decide_call(
        &self,
        slot: usize,
        call: Call,
        verdict: Verdict,
        how: &'static str,
    ) -> (Name, Self) {
        let with_stage = |stage| self.with_call(slot, Some(Call { stage, ..call }));
        let was_asked = call.stage == Stage::Asking;
        match verdict {
            Verdict::Done => (("decided: done", how), self.end_call(slot, call)),
            Verdict::Safe(rung) => {
                (("decided: safe", rung.label()), with_stage(Stage::Decided(rung)))
            }
            Verdict::Wait(Waiting::Leaving) => {
                (("decided: wait", "leaving"), with_stage(Stage::Sent))
            }
            Verdict::Wait(Waiting::Transition) => {
                (("decided: wait", "transition"), with_stage(Stage::Began))
            }
            Verdict::Refuse(Refusal::NoReport) if !was_asked => {
                (("the node is asked", ""), with_stage(Stage::Asking))
            }
            Verdict::Refuse(why) => (("decided: refuse", why.token()), self.with_call(slot, None)),
        }
    }

    /// Returns kubelet's report according to the current Node object.
    fn kubelet_report(&self) -> Fact<KubeletReport> {
        let listed = |listed: bool| {
            let name = || format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}");
            listed.then(name).into_iter().collect()
        };
        let report = self.node.map(|node| NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            csi_node_id: String::new(),
            ready: node.ready,
            lease_age: Some(Duration::ZERO),
            in_use: listed(node.in_use),
            attached: listed(node.attached),
        });
        let reports: Vec<_> = report.into_iter().collect();
        let instance = InstanceId::parse(INSTANCE).expect("an id");
        let volume = VolumeId::parse(VOLUME).expect("an id");
        kubelet_report(&reports, &instance, &volume, Duration::ZERO)
    }

    fn send_detach(&self, slot: usize, call: Call) -> Result<Self, &'static str> {
        if self.guest.mounted {
            return Err("S1: DetachVolume for a volume that the node uses");
        }
        let stays = self.attachment.is_some_and(|va| !va.deleting);
        if stays && self.ec2.held == Some(On::A) {
            return Err("S16: DetachVolume behind the back of a VolumeAttachment that is to stay");
        }
        let stage = Stage::Sent;
        Ok(Self {
            detach_in_flight: self.ec2.held == Some(On::A),
            ..self.with_call(slot, Some(Call { stage, ..call }))
        })
    }

    /// Ends the call with OK: external-attacher removes the VolumeAttachment.
    fn end_call(&self, slot: usize, call: Call) -> Self {
        let after = match call.gone {
            true => *self,
            false => self.without_attachment(),
        };
        after.with_call(slot, None)
    }
}
