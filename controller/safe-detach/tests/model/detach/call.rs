//! Models one ControllerUnpublishVolume, step by step as in
//! `controller/src/attach/detach_decision.rs`; the properties are checked where the call decides
//! and where it sends.

use std::time::Duration;

use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, NodeReport,
    OverrideOrder, Phase, Power, Refusal, Rung, Verdict, Waiting, decide, kubelet_report,
};
use ebs_csi_wire::{InstanceId, VolumeId};

use super::{Call, Fault, Node, Rules, Stage, World};
use crate::explore::{Name, Steps};

fn id(node: Node) -> InstanceId {
    let text = match node {
        Node::A => "i-0aaaaaaaaaaaaaaa1",
        Node::B => "i-0bbbbbbbbbbbbbbb2",
    };
    InstanceId::parse(text).expect("an id")
}

fn volume() -> VolumeId {
    VolumeId::parse("vol-0aaaaaaaaaaaaaaa1").expect("an id")
}

fn at(attach: u8) -> AttachTime {
    AttachTime { seconds: i64::from(attach), nanoseconds: 0 }
}

fn permits_detach(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Safe(_) | Verdict::Done)
}

impl World {
    pub(super) fn add_controller_steps(&self, slot: usize, rules: Rules, steps: &mut Steps<Self>) {
        let Some(call) = self.calls[slot] else {
            if let Some((node, true)) = self.attachment_for {
                steps.add_if(true, "a call begins", || self.begin_call(slot, node));
            }
            // S16: without a VolumeAttachment that is being deleted, no controller is asked.
            return;
        };
        steps.add_fault_if(true, "a controller dies", || Self {
            cache: None,
            ..self.with(slot, None)
        });
        let node = call.node;
        match call.stage {
            Stage::Began => {
                for (what, instance) in self.instance_answers(node) {
                    for (how, attachment) in self.volume_answers(node) {
                        let read = Call { stage: Stage::Read, attachment, instance, ..call };
                        let mut after = self.with(slot, Some(read));
                        if rules.fault == Fault::ReadBeforeTheCall {
                            after.cache = Some((attachment, instance));
                        }
                        let silent = matches!(attachment, Fact::Unknown)
                            || !matches!(instance, Fact::Present(_));
                        steps.add((what, how), Ok(after), silent);
                    }
                }
            }
            Stage::Asking => {
                let heard = |kubelet_report| {
                    let stage = Stage::Read;
                    let heard = Call { stage, kubelet_report, asked: true, ..call };
                    self.with(slot, Some(heard))
                };
                let kubelet_report = self.kubelet_report(node, rules.fault);
                steps.add_if(true, "kubelet's report comes", || heard(kubelet_report));
                steps.add_fault_if(true, "no report comes", || heard(Fact::Unknown));
            }
            Stage::Read => {
                let (name, after) = self.decide_call(slot, rules, call);
                steps.add(name, after, false);
            }
            Stage::Decided(rung) => steps.add(
                ("DetachVolume is sent", rung.label()),
                self.send_detach(slot, rung, call),
                false,
            ),
            Stage::Sent => {
                let gone = self.shown.held.map(|held| held.0) != Some(node);
                steps.add_if(gone, "a call ends: OK", || self.end_call(slot, node));
                steps.add_if(true, "a call's time ends", || self.with(slot, None));
            }
        }
    }

    fn with(&self, slot: usize, call: Option<Call>) -> Self {
        let mut after = *self;
        after.calls[slot] = call;
        after
    }

    fn begin_call(&self, slot: usize, node: Node) -> Self {
        let mut call = Call {
            node,
            stage: Stage::Began,
            attachment: Fact::Unknown,
            instance: Fact::Unknown,
            kubelet_report: Fact::Unknown,
            asked: false,
            fresh: true,
        };
        if let Some((attachment, instance)) = self.cache {
            call = Call { stage: Stage::Read, attachment, instance, fresh: false, ..call };
        }
        self.with(slot, Some(call))
    }

    fn instance_answers(&self, node: Node) -> [(&'static str, Fact<InstanceFact>); 3] {
        let (power, hibernated) = match node {
            Node::A => (self.shown.power, self.shown.hibernated),
            Node::B => (Power::Running, false),
        };
        let hibernation = if hibernated { Fact::Present(()) } else { Fact::Absent };
        let shown = match power {
            Power::Pending => "EC2 shows the instance pending",
            Power::Running => "EC2 shows the instance running",
            Power::ShuttingDown => "EC2 shows the instance shutting down",
            Power::Terminated => "EC2 shows the instance terminated",
            Power::Stopping => "EC2 shows the instance stopping",
            Power::Stopped if hibernated => "EC2 shows the instance hibernated",
            Power::Stopped => "EC2 shows the instance stopped",
            Power::Strange => "EC2 shows the instance in another state",
        };
        let seen = Fact::Present(InstanceFact { power, hibernation });
        [
            (shown, seen),
            ("EC2 does not know the instance", Fact::Absent),
            ("EC2 says nothing of the instance", Fact::Unknown),
        ]
    }

    fn volume_answers(&self, node: Node) -> [(&'static str, Fact<AttachmentFact>); 2] {
        let shown = match self.shown.held.filter(|held| held.0 == node) {
            Some((_, attach)) => {
                let leaving = self.detach_in_flight.is_some();
                let phase = if leaving { Phase::Leaving } else { Phase::Held };
                let since = Some(at(attach));
                ("the volume attached", Fact::Present(AttachmentFact { phase, since }))
            }
            None => ("the volume free", Fact::Absent),
        };
        [shown, ("nothing of the volume", Fact::Unknown)]
    }

    /// Returns kubelet's report according to the current Node object, derived with the shipped
    /// `kubelet_report`.
    fn kubelet_report(&self, node: Node, fault: Fault) -> Fact<KubeletReport> {
        let k = self.kubelet;
        if node == Node::B {
            // Node B has always released a volume that is detached from it.
            return Fact::Present(KubeletReport::Released);
        }
        let named = |listed: bool| {
            if listed {
                vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{}", volume())]
            } else {
                vec![]
            }
        };
        let report = NodeReport {
            provider_id: format!("aws:///us-east-1a/{}", id(node)),
            csi_node_id: String::new(),
            ready: k.ready,
            lease_age: Some(if k.fresh { Duration::ZERO } else { Duration::from_secs(41) }),
            in_use: named(k.in_use),
            attached: named(k.attached && fault != Fault::ReportWithoutVolumesAttached),
        };
        kubelet_report(&[report], &id(node), &volume(), Duration::ZERO)
    }

    fn decide_call(
        &self,
        slot: usize,
        rules: Rules,
        call: Call,
    ) -> (Name, Result<Self, &'static str>) {
        let node = call.node;
        let override_order = self.override_order.filter(|_| node == Node::A);
        let facts = Facts {
            mode: rules.mode,
            attachment: call.attachment,
            instance: call.instance,
            kubelet_report: call.kubelet_report,
            fence: if self.fenced { Fact::Present(()) } else { Fact::Absent },
            override_order: match override_order {
                Some(attach) => Fact::Present(OverrideOrder {
                    instance: id(node),
                    since: at(attach),
                    asked: id(node),
                }),
                None => Fact::Absent,
            },
        };
        let mut verdict = decide(&facts);
        if rules.fault == Fault::DetachOnNotFound
            && verdict == Verdict::Refuse(Refusal::InstanceMissing)
        {
            verdict = Verdict::Safe(Rung::Terminated);
        }
        let name = match verdict {
            Verdict::Done => "decided: done",
            Verdict::Safe(_) => "decided: safe",
            Verdict::Wait(_) => "decided: wait",
            Verdict::Refuse(_) => "decided: refuse",
        };
        let with_stage = |stage| Ok(self.with(slot, Some(Call { stage, ..call })));
        let after = match verdict {
            // S6, S17: losing a fact never makes a detach safe that was not safe before, and
            // without any fact no detach is safe.
            _ if rules.fault == Fault::None && lost_fact_permits_detach(&facts, verdict) => {
                Err("S17: losing a fact made it safe")
            }
            _ if permits_detach(verdict) && facts.attachment == Fact::Unknown => {
                Err("S6: detached without knowing the attachment")
            }
            _ if permits_detach(verdict) && !call.fresh => {
                Err("S7: decided on what was read before the call began")
            }
            Verdict::Done if call.attachment != Fact::Absent => {
                Err("S11: OK though EC2 showed an attachment")
            }
            Verdict::Done => Ok(self.end_call(slot, node)),
            Verdict::Safe(rung) => with_stage(Stage::Decided(rung)),
            Verdict::Wait(Waiting::Leaving) => with_stage(Stage::Sent),
            Verdict::Wait(Waiting::Transition) => with_stage(Stage::Began),
            Verdict::Refuse(Refusal::NoReport) if !call.asked => with_stage(Stage::Asking),
            Verdict::Refuse(_) => Ok(self.with(slot, None)),
        };
        ((name, verdict.label().1), after)
    }

    fn send_detach(&self, slot: usize, rung: Rung, call: Call) -> Result<Self, &'static str> {
        let node = call.node;
        let off = matches!(self.ec2.power, Power::Stopped | Power::Terminated);
        let by_order = matches!(rung, Rung::Fenced | Rung::OverrideOrder);
        if node == Node::A && self.kubelet.mounted && !off && !by_order {
            return Err("S1: DetachVolume for a volume that the node uses");
        }
        if self.attachment_for == Some((node, false)) {
            return Err("S16: DetachVolume behind the back of a VolumeAttachment that is to stay");
        }
        let since = match call.attachment {
            Fact::Present(attachment) => attachment.since,
            Fact::Absent | Fact::Unknown => None,
        };
        let held = self.ec2.held.filter(|held| held.0 == node);
        if held.is_some_and(|held| Some(at(held.1)) != since) {
            return Err("S12: DetachVolume for another attachment than was decided on");
        }
        let stage = Stage::Sent;
        Ok(Self {
            detach_in_flight: Some(node),
            by_override_order: rung == Rung::OverrideOrder,
            ..self.with(slot, Some(Call { stage, ..call }))
        })
    }

    fn end_call(&self, slot: usize, node: Node) -> Self {
        let going = self.attachment_for == Some((node, true));
        Self {
            attachment_for: self.attachment_for.filter(|_| !going),
            override_order: None,
            ..self.with(slot, None)
        }
    }
}

/// Returns whether the loss of one fact would turn a verdict that keeps the attachment into one
/// that gives it up.
fn lost_fact_permits_detach(facts: &Facts, verdict: Verdict) -> bool {
    let less = [
        Facts { attachment: Fact::Unknown, ..facts.clone() },
        Facts { instance: Fact::Unknown, ..facts.clone() },
        Facts { kubelet_report: Fact::Unknown, ..facts.clone() },
        Facts { fence: Fact::Unknown, ..facts.clone() },
        Facts { override_order: Fact::Unknown, ..facts.clone() },
    ];
    !permits_detach(verdict) && less.iter().any(|facts| permits_detach(decide(facts)))
}
