//! The controllers: ControllerUnpublishVolume from node A, and what they answer node-lifecycle.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::{Evidence, InstanceEvidence};
use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, Phase, Power, Refusal,
    Verdict, Waiting, decide, decide_instance,
};

use super::{Call, On, Rules, Stage, World};
use crate::explore::{Name, Steps, changed};
use crate::kubernetes_objects::NodeView;

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
        (Self::Silent, "EC2 does not answer"),
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
        let phase = if self.detach_in_flight { Phase::Leaving } else { Phase::Held };
        let since = Some(AttachTime { seconds: 1, nanoseconds: 0 });
        Facts {
            mode: rules.mode,
            attachment: match (ec2_answer, self.shown.held) {
                (Ec2Answer::Silent, _) => Fact::Unknown,
                (_, Some(On::A)) => Fact::Present(AttachmentFact { phase, since }),
                (_, Some(On::B) | None) => Fact::Absent,
            },
            instance: match ec2_answer {
                Ec2Answer::Shown => {
                    let power = self.shown.power;
                    Fact::Present(InstanceFact { power, hibernation: Fact::Absent })
                }
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
            let is_deleting = self.attachment.is_some_and(|va| va.on == On::A && va.deleting);
            steps.add_if(is_deleting, "a call begins", |w| {
                w.calls[slot] = Some(Call { stage: Stage::Began, gone: false });
            });
            return;
        };
        steps.add_fault_if(true, "a controller dies", |w| w.calls[slot] = None);
        match call.stage {
            Stage::Began => {
                steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
                for (ec2_answer, name) in Ec2Answer::ALL {
                    let facts = self.facts(rules, ec2_answer, Fact::Unknown);
                    let (name, after) = self.decide_call(slot, call, decide(&facts), name);
                    steps.add(name, Ok(after), ec2_answer != Ec2Answer::Shown);
                }
            }
            Stage::Asking => {
                // EC2's state when the controller requested the report: the volume attached, the
                // instance running.
                let then = changed(self, |w| {
                    w.shown = super::Ec2 { held: Some(On::A), power: Power::Running };
                    w.detach_in_flight = false;
                });
                let facts = then.facts(rules, Ec2Answer::Shown, self.kubelet_report());
                let (name, after) =
                    self.decide_call(slot, call, decide(&facts), "by kubelet's report");
                steps.add(name, Ok(after), false);
                steps.add_fault_if(true, "no report comes", |w| w.calls[slot] = None);
            }
            Stage::Decided(rung) => {
                let name = ("DetachVolume is sent", rung.label());
                steps.add(name, self.send_detach(slot, call), false);
            }
            Stage::Sent => {
                let is_gone = self.shown.held != Some(On::A);
                steps.add_if(is_gone, "a call ends: OK", |w| w.end_call(slot, call));
                steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
            }
        }
    }

    fn decide_call(
        &self,
        slot: usize,
        call: Call,
        verdict: Verdict,
        how: &'static str,
    ) -> (Name, Self) {
        let mut after = *self;
        let mut go_on = |stage| after.calls[slot] = Some(Call { stage, ..call });
        let name = match verdict {
            Verdict::Done => {
                after.end_call(slot, call);
                ("decided: done", how)
            }
            Verdict::Safe(rung) => {
                go_on(Stage::Decided(rung));
                ("decided: safe", rung.label())
            }
            Verdict::Wait(Waiting::Leaving) => {
                go_on(Stage::Sent);
                ("decided: wait", "leaving")
            }
            Verdict::Wait(Waiting::Transition) => {
                go_on(Stage::Began);
                ("decided: wait", "transition")
            }
            Verdict::Refuse(Refusal::NoReport) if call.stage != Stage::Asking => {
                go_on(Stage::Asking);
                ("kubelet's report is requested", "")
            }
            Verdict::Refuse(why) => {
                after.calls[slot] = None;
                ("decided: refuse", why.token())
            }
        };
        (name, after)
    }

    /// Returns kubelet's report according to the current Node object.
    fn kubelet_report(&self) -> Fact<KubeletReport> {
        let listed = self.node.map(|node| NodeView {
            ready: node.ready,
            lease_age: Duration::ZERO,
            in_use: node.in_use,
            attached: node.attached,
        });
        NodeView::report(listed)
    }

    fn send_detach(&self, slot: usize, call: Call) -> Result<Self, &'static str> {
        if self.guest.mounted {
            return Err("S1: DetachVolume for a volume that the node uses");
        }
        let is_held = self.ec2.held == Some(On::A);
        if is_held && self.attachment.is_some_and(|va| !va.deleting) {
            return Err("S16: DetachVolume though the VolumeAttachment is not being deleted");
        }
        Ok(changed(self, |w| {
            w.detach_in_flight = is_held;
            w.calls[slot] = Some(Call { stage: Stage::Sent, ..call });
        }))
    }

    /// Ends the call with OK: external-attacher removes the VolumeAttachment.
    fn end_call(&mut self, slot: usize, call: Call) {
        if !call.gone {
            self.remove_attachment();
        }
        self.calls[slot] = None;
    }
}
