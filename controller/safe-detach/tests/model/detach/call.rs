//! Models one ControllerUnpublishVolume, step by step as in
//! `controller/src/attach/detach_decision.rs`; the properties are checked where the call decides
//! and where it sends.

use std::time::Duration;

use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, FRESH_LEASE, Fact, Facts, InstanceFact, KubeletReport,
    OverrideOrder, Phase, Power, Refusal, Rung, Verdict, Waiting, decide,
};
use ebs_csi_wire::InstanceId;

use super::{Call, Fault, Node, Rules, Stage, World};
use crate::explore::{Name, Steps, changed};
use crate::kubernetes_objects::{INSTANCE, NodeView};

fn id(node: Node) -> InstanceId {
    let text = match node {
        Node::A => INSTANCE,
        Node::B => "i-0bbbbbbbbbbbbbbb2",
    };
    InstanceId::parse(text).expect("an id")
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
                steps.add_if(true, "a call begins", |w| w.calls[slot] = Some(w.new_call(node)));
            }
            // S16: without a VolumeAttachment that is being deleted, no controller is called.
            return;
        };
        steps.add_fault_if(true, "a controller dies", |w| {
            w.cache = None;
            w.calls[slot] = None;
        });
        let node = call.node;
        match call.stage {
            Stage::Began => {
                for (what, instance) in self.instance_answers(node) {
                    for (how, attachment) in self.volume_answers(node) {
                        let read =
                            Call { stage: Stage::Read, attachment, instance, stale: false, ..call };
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
                let reported = |kubelet_report| {
                    Some(Call { stage: Stage::Read, kubelet_report, asked: true, ..call })
                };
                let report = self.kubelet_report(node, rules.fault);
                steps.add_if(true, "kubelet's report comes", |w| w.calls[slot] = reported(report));
                steps.add_fault_if(true, "no report comes", |w| {
                    w.calls[slot] = reported(Fact::Unknown);
                });
            }
            Stage::Read => {
                let (name, after) = self.decide_call(slot, rules, call);
                steps.add(name, after, false);
            }
            Stage::Decided(_) if call.stale && rules.fault != Fault::StaleFacts => {
                steps.add_if(true, "the facts are stale", |w| {
                    w.calls[slot] = Some(w.new_call(node));
                });
            }
            Stage::Decided(rung) => {
                let name = ("DetachVolume is sent", rung.label());
                steps.add(name, self.send_detach(slot, rung, call), false);
            }
            Stage::Sent => {
                let is_gone = self.shown.held.map(|held| held.0) != Some(node);
                steps.add_if(is_gone, "a call ends: OK", |w| w.end_call(slot, node));
                steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
            }
        }
    }

    fn with(&self, slot: usize, call: Option<Call>) -> Self {
        changed(self, |w| w.calls[slot] = call)
    }

    fn new_call(&self, node: Node) -> Call {
        let call = Call {
            node,
            stage: Stage::Began,
            attachment: Fact::Unknown,
            instance: Fact::Unknown,
            kubelet_report: Fact::Unknown,
            asked: false,
            fresh: true,
            stale: false,
        };
        match self.cache {
            Some((attachment, instance)) => {
                Call { stage: Stage::Read, attachment, instance, fresh: false, ..call }
            }
            None => call,
        }
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
            ("EC2 does not show the instance", Fact::Unknown),
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
        [shown, ("the volume unknown", Fact::Unknown)]
    }

    /// Returns kubelet's report according to the current Node object.
    fn kubelet_report(&self, node: Node, fault: Fault) -> Fact<KubeletReport> {
        if node == Node::B {
            // Node B has always released a volume that is detached from it.
            return Fact::Present(KubeletReport::Released);
        }
        let k = self.kubelet;
        let attached = k.attached && fault != Fault::ReportWithoutVolumesAttached;
        let lease_age = if k.fresh { Duration::ZERO } else { FRESH_LEASE + Duration::from_secs(1) };
        NodeView::report(Some(NodeView { ready: k.ready, lease_age, in_use: k.in_use, attached }))
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
            override_order: override_order.map_or(Fact::Absent, |attach| {
                let since = at(attach);
                Fact::Present(OverrideOrder { instance: id(node), since, subject: id(node) })
            }),
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
            Verdict::Done => Ok(changed(self, |w| w.end_call(slot, node))),
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
            return Err("S16: DetachVolume though the VolumeAttachment is not being deleted");
        }
        let since = match call.attachment {
            Fact::Present(attachment) => attachment.since,
            Fact::Absent | Fact::Unknown => None,
        };
        let held = self.ec2.held.filter(|held| held.0 == node);
        if held.is_some_and(|held| Some(at(held.1)) != since) {
            return Err("S12: DetachVolume for another attachment than was decided on");
        }
        Ok(changed(self, |w| {
            w.detach_in_flight = Some(node);
            w.by_override_order = rung == Rung::OverrideOrder;
            w.calls[slot] = Some(Call { stage: Stage::Sent, ..call });
        }))
    }

    fn end_call(&mut self, slot: usize, node: Node) {
        self.attachment_for = self.attachment_for.filter(|of| *of != (node, true));
        self.override_order = None;
        self.calls[slot] = None;
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
