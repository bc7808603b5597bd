//! The controllers: ControllerUnpublishVolume from node A, step by step as in
//! `controller/src/attach/detach_decision.rs`, and what they answer node-lifecycle. The properties
//! of a detach are checked where the call decides and where it sends.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::{InstanceEvidence, VolumeEvidence};
use ebs_csi_safe_detach::{
    Agent, AttachTime, AttachmentFact, Evidence, Fact, Facts, InstanceFact, KernelState,
    NodeEvidence, OverrideOrder, Phase, Power, Refusal, Verdict, Waiting, decide, decide_instance,
};
use ebs_csi_wire::InstanceId;

use super::{Call, Ec2, Fault, Lists, NodeObject, On, Order, Rules, Stage, World};
use crate::explore::{Name, Steps, changed};
use crate::kubernetes_objects::{ATTACHED, INSTANCE, NodeView, answered};

/// How EC2 answers about the instance and about the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ec2Answer {
    Shown,
    NotFound,
    InstanceSilent,
    VolumeSilent,
    Silent,
}

impl Ec2Answer {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Shown, ""),
        (Self::NotFound, "EC2 does not know the instance"),
        (Self::InstanceSilent, "EC2 does not show the instance"),
        (Self::VolumeSilent, "EC2 does not show the volume"),
        (Self::Silent, "EC2 does not answer"),
    ];
    pub(super) const OF_INSTANCE: [(Self, &'static str); 3] =
        [Self::ALL[0], Self::ALL[1], Self::ALL[4]];
}

fn permits_detach(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Safe(_) | Verdict::Done)
}

impl World {
    /// Returns what EC2 shows of the instance and of the volume on it.
    fn facts(&self, rules: Rules, ec2_answer: Ec2Answer, shown: Ec2) -> Facts {
        use Ec2Answer::{InstanceSilent, NotFound, Shown, Silent, VolumeSilent};
        let phase = if self.detach_in_flight { Phase::Leaving } else { Phase::Attached };
        let hibernation = if shown.hibernated { Fact::Present(()) } else { Fact::Absent };
        Facts {
            mode: rules.mode,
            attachment: match (ec2_answer, shown.held) {
                (Silent | VolumeSilent, _) => Fact::Unknown,
                (_, Some(On::A)) => Fact::Present(AttachmentFact { phase, since: Some(ATTACHED) }),
                (_, Some(On::B) | None) => Fact::Absent,
            },
            instance: match ec2_answer {
                Shown | VolumeSilent => {
                    Fact::Present(InstanceFact { power: shown.power, hibernation })
                }
                NotFound => Fact::Absent,
                InstanceSilent | Silent => Fact::Unknown,
            },
            node: Fact::Unknown,
            fence: Fact::Absent,
            override_order: self.override_order(),
        }
    }

    fn override_order(&self) -> Fact<OverrideOrder> {
        let seconds = match self.order {
            Order::None | Order::Sent => return Fact::Absent,
            Order::This => ATTACHED.seconds,
            Order::Former => ATTACHED.seconds - 1,
        };
        let (instance, since) =
            (InstanceId::parse(INSTANCE).expect("an id"), AttachTime { seconds, ..ATTACHED });
        Fact::Present(OverrideOrder { instance: instance.clone(), since, subject: instance })
    }

    /// Returns the answers to `Query` and `QueryInstances`.
    pub(super) fn answers(
        &self,
        rules: Rules,
        ec2_answer: Ec2Answer,
    ) -> (VolumeEvidence, InstanceEvidence) {
        let facts = self.facts(rules, ec2_answer, self.shown);
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
            steps.add_if(self.is_leaving(), "a call begins", |w| {
                w.calls[slot] = Some(Call { stage: Stage::Began, gone: false, stale: false });
            });
            return;
        };
        steps.add_fault_if(true, "a controller dies", |w| {
            w.calls[slot] = None;
            w.cache = None;
        });
        let is_superseded = call.gone && self.attachment.is_some_and(|va| !va.deleting);
        if is_superseded && call.stage != Stage::Sent {
            steps.add_if(true, "a publish supersedes the call", |w| w.calls[slot] = None);
            return;
        }
        if call.stale && rules.fault != Fault::StaleFacts {
            steps.add_if(true, "the facts are stale", |w| {
                w.calls[slot] = Some(Call { stage: Stage::Began, stale: false, ..call });
            });
            return;
        }
        match call.stage {
            Stage::Began => {
                steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
                let shown = self.cache.unwrap_or(self.shown);
                for (ec2_answer, how) in Ec2Answer::ALL {
                    let facts = self.facts(rules, ec2_answer, shown);
                    let (name, mut after) = self.decide_call(slot, call, rules, &facts, how);
                    if rules.fault == Fault::ReadBeforeTheCall {
                        let is_cached = self.cache.is_some() && permits_detach(decide(&facts));
                        after = after.map(|w| Self { cache: Some(shown), ..w });
                        if is_cached {
                            after = Err("S7: decided on what was read before the call began");
                        }
                    }
                    steps.add(name, after, ec2_answer != Ec2Answer::Shown);
                }
            }
            Stage::Asking => self.add_list_steps(slot, call, rules, steps),
            Stage::Listed { lists, same_boot } => {
                self.add_answer_steps_of_node(slot, call, rules, (lists, same_boot), steps);
            }
            Stage::Decided { evidence, by_promise } => {
                let name = ("DetachVolume is sent", evidence.label());
                steps.add(name, self.send_detach(slot, call, evidence, by_promise), false);
            }
            Stage::Sent => {
                let is_gone = self.shown.held != Some(On::A);
                steps.add_if(is_gone, "a call ends: OK", |w| w.end_call(slot, call));
                steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
            }
        }
    }

    /// Returns EC2's part of the facts of a call that asks the node: the volume was attached, and
    /// the instance ran.
    fn facts_of_running(&self, rules: Rules, node: Fact<NodeEvidence>) -> Facts {
        let shown = Ec2 { held: Some(On::A), power: Power::Running, hibernated: false };
        let then = Self { detach_in_flight: false, ..*self };
        Facts { node, ..then.facts(rules, Ec2Answer::Shown, shown) }
    }

    /// The call reads the Node object.
    fn add_list_steps(&self, slot: usize, call: Call, rules: Rules, steps: &mut Steps<Self>) {
        let decided = |node: Option<NodeView>, how| {
            let facts = self.facts_of_running(rules, NodeView::evidence(node, rules.old_agents));
            self.decide_call(slot, call, rules, &facts, how)
        };
        steps.add_fault_if(true, "the Node object is not read", |w| w.calls[slot] = None);
        let asks_first = rules.fault == Fault::AgentBeforeLists;
        let agent = self.agent(rules);
        let node = self.node.map(|node| node_view(rules, node, agent.clone()));
        match (self.node, agent) {
            (None, _) => {
                let (name, after) = decided(None, "no Node object");
                steps.add(name, after, false);
            }
            // Kubelet's report is all that there is.
            (Some(_), Agent::WithoutPage) => {
                let (name, after) = decided(node, "by kubelet's report");
                steps.add(name, after, false);
            }
            // With the fault, only a free disk is worth a look at the lists.
            (Some(_), Agent::Answered(_)) if asks_first && self.is_used() => {
                steps.add_if(true, "the agent's answer: in use", |w| w.calls[slot] = None);
            }
            (Some(object), _) => {
                let view = node.expect("a Node object");
                let lists = lists(view.attached, view.in_use || view.young);
                let stage = Stage::Listed { lists, same_boot: object.boot == self.guest.boot };
                steps.add_if(true, "the Node object is read", |w| {
                    w.calls[slot] = Some(Call { stage, ..call });
                });
            }
        }
    }

    /// The call has the answer of the node-agent, which was asked after the Node object was read.
    fn add_answer_steps_of_node(
        &self,
        slot: usize,
        call: Call,
        rules: Rules,
        (listed, same_boot): (Lists, bool),
        steps: &mut Steps<Self>,
    ) {
        steps.add_fault_if(true, "the agent's page is not read", |w| w.calls[slot] = None);
        steps.add_if(true, "a call times out", |w| w.calls[slot] = None);
        let asked_first = rules.fault == Fault::AgentBeforeLists;
        let is_compared = rules.fault != Fault::BootNotCompared;
        let (agent, listed) = match (self.agent(rules), self.node) {
            (Agent::Answered(_), _) if !same_boot && is_compared => (Agent::Silent, listed),
            // With the fault the answer is older than the lists, which are read now.
            (Agent::Answered(answer), Some(node)) if asked_first => {
                let listed = lists(node.attached, node.in_use || node.young);
                (answered(KernelState::Free, answer.promised), listed)
            }
            // A pod without the label of the page is not asked.
            (Agent::WithoutPage, _) => (Agent::Silent, listed),
            (agent, _) => (agent, listed),
        };
        let is_missing =
            matches!(&agent, Agent::Answered(answer) if answer.state == KernelState::NoDisk);
        let view = NodeView {
            ready: true,
            lease_age: Duration::ZERO,
            in_use: listed == Lists::Doubt,
            attached: listed == Lists::Attached,
            young: false,
            agent,
        };
        let facts = self.facts_of_running(rules, NodeView::evidence(Some(view), rules.old_agents));
        let verdict = decide(&facts);
        let by_answer = verdict == Verdict::Safe(Evidence::NodeAnswer);
        if by_answer && !same_boot {
            let broken = Err("S13: the answer is not of the boot that wrote the Node object");
            steps.add(("decided: safe", "by the node's answer"), broken, false);
            return;
        }
        let (name, after) = match verdict {
            Verdict::Wait(Waiting::Promise) if rules.fault == Fault::NoPromise => {
                (("decided: refuse", "wanted"), Ok(changed(self, |w| w.calls[slot] = None)))
            }
            Verdict::Wait(Waiting::Promise) => {
                let after = changed(self, |w| w.promise_requested = true);
                (("a promise is requested", ""), Ok(after))
            }
            Verdict::Safe(evidence) if by_answer => {
                let by_promise = listed != Lists::Clear || is_missing;
                let stage = Stage::Decided { evidence, by_promise };
                let name = ("decided: safe", if by_promise { "by promise" } else { "free" });
                (name, Ok(changed(self, |w| w.calls[slot] = Some(Call { stage, ..call }))))
            }
            _ => self.decide_call(slot, call, rules, &facts, "by the node's answer"),
        };
        steps.add(name, after, false);
    }

    fn decide_call(
        &self,
        slot: usize,
        call: Call,
        rules: Rules,
        facts: &Facts,
        how: &'static str,
    ) -> (Name, Result<Self, &'static str>) {
        let mut verdict = decide(facts);
        if rules.fault == Fault::DetachOnNotFound
            && verdict == Verdict::Refuse(Refusal::InstanceMissing)
        {
            verdict = Verdict::Safe(Evidence::Terminated);
        }
        let stage = |stage| Ok(changed(self, |w| w.calls[slot] = Some(Call { stage, ..call })));
        let name = match verdict {
            Verdict::Done => ("decided: done", how),
            Verdict::Safe(evidence) => ("decided: safe", evidence.label()),
            Verdict::Wait(waiting) => ("decided: wait", waiting.label()),
            Verdict::Refuse(why) => ("decided: refuse", why.token()),
        };
        let after = match verdict {
            // S6, S17: losing a fact never makes a detach safe that was not safe before, and
            // without any fact no detach is safe.
            _ if rules.fault == Fault::None && lost_fact_permits_detach(facts, verdict) => {
                Err("S17: losing a fact made it safe")
            }
            _ if permits_detach(verdict) && facts.attachment == Fact::Unknown => {
                Err("S6: detached without knowing the attachment")
            }
            Verdict::Done if facts.attachment != Fact::Absent => {
                Err("S11: OK though EC2 showed an attachment")
            }
            Verdict::Done => Ok(changed(self, |w| w.end_call(slot, call))),
            Verdict::Safe(evidence) => stage(Stage::Decided { evidence, by_promise: false }),
            Verdict::Wait(Waiting::Leaving) => stage(Stage::Sent),
            Verdict::Wait(Waiting::Transition | Waiting::Promise) => stage(Stage::Began),
            Verdict::Refuse(Refusal::NoReport) if call.stage == Stage::Began => {
                stage(Stage::Asking)
            }
            Verdict::Refuse(_) => Ok(changed(self, |w| w.calls[slot] = None)),
        };
        (name, after)
    }

    fn send_detach(
        &self,
        slot: usize,
        call: Call,
        evidence: Evidence,
        by_promise: bool,
    ) -> Result<Self, &'static str> {
        let is_ordered = evidence == Evidence::OverrideOrder;
        if self.is_used() && !is_ordered {
            return Err("S1: DetachVolume for a volume that the node uses");
        }
        let is_held = self.ec2.held == Some(On::A);
        if is_held && by_promise && self.guest.up && !self.guest.promised {
            return Err("S5: DetachVolume without the promise that it needs");
        }
        if is_held && self.attachment.is_some_and(|va| !va.deleting) {
            return Err("S16: DetachVolume though the VolumeAttachment is not being deleted");
        }
        if is_held && is_ordered && matches!(self.order, Order::None | Order::Former) {
            return Err("S12: DetachVolume for another attachment than was decided on");
        }
        Ok(changed(self, |w| {
            w.detach_in_flight = is_held;
            if is_ordered {
                w.order = if is_held { Order::Sent } else { Order::None };
            }
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

fn lists(attached: bool, doubt: bool) -> Lists {
    match (attached, doubt) {
        (true, _) => Lists::Attached,
        (false, true) => Lists::Doubt,
        (false, false) => Lists::Clear,
    }
}

/// Returns what the API server has of the node, as the shipped function takes it.
fn node_view(rules: Rules, node: NodeObject, agent: Agent) -> NodeView {
    NodeView {
        ready: node.ready,
        lease_age: Duration::ZERO,
        in_use: node.in_use && rules.fault != Fault::VolumesInUseUnread,
        attached: node.attached && rules.fault != Fault::VolumesAttachedUnread,
        young: node.young && rules.fault != Fault::YoungNodeTrusted,
        agent,
    }
}

/// Returns whether the loss of one fact would turn a verdict that keeps the attachment into one
/// that gives it up.
fn lost_fact_permits_detach(facts: &Facts, verdict: Verdict) -> bool {
    if permits_detach(verdict) {
        return false;
    }
    let less = [
        Facts { attachment: Fact::Unknown, ..facts.clone() },
        Facts { instance: Fact::Unknown, ..facts.clone() },
        Facts { node: Fact::Unknown, ..facts.clone() },
        Facts { fence: Fact::Unknown, ..facts.clone() },
        Facts { override_order: Fact::Unknown, ..facts.clone() },
    ];
    less.iter().any(|facts| permits_detach(decide(facts)))
}
