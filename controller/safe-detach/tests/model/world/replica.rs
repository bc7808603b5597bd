//! The replicas of node-lifecycle: they read, ask and act as in
//! `controller/node-lifecycle/src/failover.rs`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ebs_csi_safe_detach::lifecycle::{
    Claim, FailoverMode, FenceWhen, InstanceEvidence, Intent, Node, NodeFacts, NodePhase,
    OutOfService, Pod as PodFacts, TaintedBoot, Toleration, VolumeEvidence, decide_fence, step,
};
use ebs_csi_safe_detach::{Fact, Power};

use super::unpublish::Ec2Answer;
use super::{
    Attachment, Changed, Ec2, Fault, Look, NodeObject, On, Order, Plan, Pod, PodKind, Replica,
    Rules, Taint, World,
};
use crate::explore::{Mix, Steps, changed};
use crate::kubernetes_objects::{INSTANCE, VOLUME, attachment};

impl World {
    pub(super) fn add_replica_steps(&self, slot: usize, rules: Rules, steps: &mut Steps<Self>) {
        let replica = self.replicas[slot];
        steps.add_fault_if(replica != Replica::Idle, "a replica dies", |w| {
            w.replicas[slot] = Replica::Idle;
        });
        match replica {
            Replica::Idle => {
                let look = self.look();
                let suspect = match look.node {
                    Some(node) => !node.ready || matches!(node.taint, Taint::Ours(_)),
                    None => look.attachment.is_some(),
                };
                if !suspect {
                    return;
                }
                if !rules.late_answers {
                    self.add_answer_steps(slot, look, rules, steps);
                    return;
                }
                steps.add_if(true, "a replica reads the node", |w| {
                    w.replicas[slot] = Replica::Looked(look);
                });
                let before =
                    Some(Attachment { on: On::A, deleting: false, retry_requested: false });
                let late = look.attachment != before;
                steps.add_fault_if(late, "a replica reads a stale VolumeAttachment", |w| {
                    let gone = look.attachment.is_none();
                    let changed = Changed { attachment: true, gone, ..Changed::default() };
                    w.replicas[slot] =
                        Replica::Looked(Look { attachment: before, changed, ..look });
                });
            }
            Replica::Looked(look) => self.add_answer_steps(slot, look, rules, steps),
            Replica::Acting(plan) => self.add_act_steps(slot, plan, rules, steps),
        }
    }

    fn look(&self) -> Look {
        // Only the controllers use `volumesInUse` and `volumesAttached`.
        let unused = |node| NodeObject { in_use: false, attached: false, young: false, ..node };
        Look {
            node: self.node.map(unused),
            pod: self.pod.filter(|pod| pod.on == On::A),
            attachment: self.attachment.filter(|va| va.on == On::A),
            changed: Changed::default(),
        }
    }

    /// Returns the phase of node A, as a replica sees it that reads and asks now.
    pub(crate) fn phase(&self, rules: Rules) -> NodePhase {
        let look = self.look();
        let (evidence, instance) = self.answers(rules, Ec2Answer::Shown);
        step(&facts(rules, look, evidence, instance), rules.failover).phase
    }

    fn add_answer_steps(&self, slot: usize, look: Look, rules: Rules, steps: &mut Steps<Self>) {
        for (ec2_answer, how) in Ec2Answer::OF_INSTANCE {
            let plan = self.plan(rules, look, ec2_answer);
            let after = changed(self, |w| w.replicas[slot] = plan.into());
            let name = ("a replica has the controller's answers", how);
            steps.add(name, Ok(after), ec2_answer != Ec2Answer::Shown);
        }
    }

    /// Returns the plan that follows from what was read and from the controller's answers now.
    /// Caches the plan of each question.
    fn plan(&self, rules: Rules, look: Look, ec2_answer: Ec2Answer) -> Plan {
        thread_local! {
            static PLANS: RefCell<HashMap<PlanInput, Plan, BuildHasherDefault<Mix>>> = RefCell::default();
        }
        let input = PlanInput {
            rules,
            look,
            ec2_answer,
            shown: self.shown,
            detach_in_flight: self.detach_in_flight,
            used: self.is_used(),
            impaired: self.impaired,
            order: self.order,
        };
        let known = PLANS.with_borrow(|plans| plans.get(&input).copied());
        known.unwrap_or_else(|| {
            let plan = self.compute_plan(rules, look, ec2_answer);
            PLANS.with_borrow_mut(|plans| plans.insert(input, plan));
            plan
        })
    }

    fn compute_plan(&self, rules: Rules, look: Look, ec2_answer: Ec2Answer) -> Plan {
        let (mut evidence, instance) = self.answers(rules, ec2_answer);
        if rules.fault == Fault::PodsWithoutProof {
            evidence = VolumeEvidence::Proven;
        }
        let facts = facts(rules, look, evidence, instance);
        let step = step(&facts, rules.failover);
        let pod_stays =
            rules.pod == PodKind::Tolerates && look.pod.is_some_and(|pod| !pod.deleting);
        let mut plan = Plan {
            was_free: !self.is_used(),
            had_no_leftovers: look.attachment.is_none_or(|va| pod_stays && !va.deleting)
                && look.pod.is_none_or(|pod| !pod.deleting),
            changed: look.changed,
            ..Plan::default()
        };
        for intent in &step.intents {
            match intent {
                Intent::AddTaint(about) => {
                    let node = look.node.expect("a taint is for a node");
                    assert_eq!(about.boot, boot(node.boot), "another boot than was read");
                    plan.taint = Some(node.boot).filter(|_| rules.fault != Fault::NoTaint);
                }
                Intent::RemoveTaint => plan.remove_taint = true,
                Intent::DeletePod(_) => plan.pod = true,
                Intent::DeleteAttachment(_) => plan.attachment = true,
                Intent::RetryDetach(_) => plan.retry = true,
            }
        }
        // An act with proof comes before a fence.
        let nothing_proved = !step.intents.iter().any(Intent::is_braked);
        if let Some(when) = rules.fences.filter(|_| nothing_proved) {
            plan.fence = matches!(decide_fence(&facts, when), Some(Ok(_)));
        }
        if let Some(node) = look.node {
            let is_taintable = !node.ready && node.taint == Taint::None;
            if rules.fault == Fault::TaintByTimeout && is_taintable {
                plan.taint = Some(node.boot);
            }
            plan.remove_taint |=
                rules.fault == Fault::TaintRemovedByTimeout && matches!(node.taint, Taint::Ours(_));
        }
        plan.drop_irrelevant_changes();
        plan
    }

    /// Does the first act of the plan. Each act names exactly the object version that was read and
    /// does nothing when that has changed.
    fn add_act_steps(&self, slot: usize, plan: Plan, rules: Rules, steps: &mut Steps<Self>) {
        let was_changed = plan.changed;
        let (name, after, rest) = if plan.fence {
            let rest = Plan { fence: false, ..plan };
            steps.add_fault_if(true, "the fence fails", |w| w.set_plan(slot, rest));
            let (name, after) = self.fence(rules);
            ((name, ""), after, rest)
        } else if let Some(boot) = plan.taint {
            let late = was_changed.node && rules.fault != Fault::TaintWithoutVersion;
            let node = self.node.filter(|_| !late);
            let after = node.map_or(Ok(*self), |node| self.with_own_taint(rules, node, boot));
            (("our taint is set", conflict_name(late)), after, Plan { taint: None, ..plan })
        } else if plan.remove_taint {
            let late = was_changed.node;
            let node = self.node.filter(|_| !late);
            let after =
                node.map_or(Ok(*self), |node| self.without_own_taint(node, plan.had_no_leftovers));
            let rest = Plan { remove_taint: false, ..plan };
            (("our taint is removed", conflict_name(late)), after, rest)
        } else if plan.pod {
            let late = was_changed.pod;
            let after = match late {
                true => Ok(*self),
                false if rules.pod != PodKind::Eligible => {
                    Err("S10: a pod that is not eligible is deleted")
                }
                false if !plan.was_free && rules.failover == FailoverMode::ProveFirst => {
                    Err("S8: a pod is deleted whose volume was in use")
                }
                false => Ok(changed(self, |w| w.set_pod(None))),
            };
            let name = ("the pod is deleted by force", conflict_name(late));
            (name, after, Plan { pod: false, ..plan })
        } else if plan.attachment || plan.retry {
            let (name, late) = match plan.attachment {
                true => ("the VolumeAttachment is deleted", was_changed.attachment),
                false => ("a retry of the detach is requested", was_changed.gone),
            };
            let late = late && rules.fault != Fault::AttachmentWithoutVersion;
            let mut after = *self;
            if !late && self.attachment.is_some_and(|va| va.on == On::A) {
                after.write_attachment(|va| {
                    va.deleting |= plan.attachment;
                    va.retry_requested |= plan.retry;
                });
            }
            let rest = Plan { attachment: false, retry: false, ..plan };
            ((name, conflict_name(late)), Ok(after), rest)
        } else {
            return;
        };
        let after = after.map(|after| changed(&after, |w| w.set_plan(slot, rest)));
        steps.add(name, after, false);
    }

    /// Sets what is left of a replica's plan after an act. What the act itself has changed does not
    /// invalidate the rest, which is about other objects.
    fn set_plan(&mut self, slot: usize, mut plan: Plan) {
        if let Replica::Acting(now) = self.replicas[slot] {
            plan.changed = now.changed;
        }
        plan.drop_irrelevant_changes();
        self.replicas[slot] = plan.into();
    }

    fn fence(&self, rules: Rules) -> (&'static str, Result<Self, &'static str>) {
        let runs = self.instance_runs();
        // The controller asks EC2 again; the answer that the replica has may be out of date.
        let needs_impaired = rules.fences == Some(FenceWhen::Impaired);
        let asks = needs_impaired && rules.fault != Fault::FenceOnFormerChecks;
        if runs && asks && !self.impaired {
            return ("the fence is refused: checks pass", Ok(*self));
        }
        let after = match runs {
            true if needs_impaired && !self.impaired => {
                Err("S18: an instance is fenced whose checks pass")
            }
            true => Ok(changed(self, |w| w.ec2.power = Power::Stopping)),
            false => Ok(*self),
        };
        ("the instance is fenced", after)
    }

    fn with_own_taint(
        &self,
        rules: Rules,
        node: NodeObject,
        about: u8,
    ) -> Result<Self, &'static str> {
        if node.boot != about || self.guest.boot == about && self.guest.up {
            return Err("S9: our taint though the instance was not off since the node registered");
        }
        if rules.pod == PodKind::OptedOut && self.is_pod_on_a() {
            return Err("S10: our taint evicts a pod that is opted out");
        }
        let taint = Taint::Ours(about);
        Ok(changed(self, |w| w.set_node(Some(NodeObject { taint, ..node }))))
    }

    fn without_own_taint(
        &self,
        node: NodeObject,
        had_no_leftovers: bool,
    ) -> Result<Self, &'static str> {
        let Taint::Ours(about) = node.taint else {
            return Err("a taint that is not ours is removed");
        };
        if node.boot == about || !had_no_leftovers {
            return Err("L5: our taint is removed without proof of return");
        }
        let taint = Taint::None;
        Ok(changed(self, |w| w.set_node(Some(NodeObject { taint, ..node }))))
    }
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanInput {
    rules: Rules,
    look: Look,
    ec2_answer: Ec2Answer,
    shown: Ec2,
    detach_in_flight: bool,
    used: bool,
    impaired: bool,
    order: Order,
}

impl From<Plan> for Replica {
    fn from(plan: Plan) -> Self {
        let nothing = Plan { was_free: true, had_no_leftovers: true, ..Plan::default() };
        if plan == nothing { Self::Idle } else { Self::Acting(plan) }
    }
}

fn conflict_name(late: bool) -> &'static str {
    if late { "conflict" } else { "" }
}

fn boot(number: u8) -> String {
    format!("boot-{number}")
}

/// Returns what was read and answered in the form that the shipped functions take.
fn facts(
    rules: Rules,
    look: Look,
    evidence: VolumeEvidence,
    instance: InstanceEvidence,
) -> NodeFacts {
    let node_facts = |node: NodeObject| Node {
        ready: node.ready,
        instance: Some(INSTANCE.to_owned()),
        boot: boot(node.boot),
        out_of_service: match node.taint {
            Taint::None => OutOfService::None,
            Taint::Foreign => OutOfService::Foreign,
            Taint::Ours(about) => OutOfService::Ours(TaintedBoot {
                instance: INSTANCE.to_owned(),
                launched: String::new(),
                boot: boot(about),
            }),
        },
        opted_out: false,
        may_fence: rules.fences.is_some(),
        // Time is not modelled, so the node may have been lost for long.
        lost_for_long: true,
    };
    let attachments = look.attachment.map(|va| attachment((va.deleting, va.retry_requested)));
    NodeFacts {
        object: look.node.map_or(Fact::Absent, |node| Fact::Present(node_facts(node))),
        attachments: attachments.into_iter().collect(),
        pods: look.pod.map(|pod| pod_facts(pod, rules.pod)).into_iter().collect(),
        volumes: [((INSTANCE.to_owned(), VOLUME.to_owned()), evidence)].into(),
        instances: [(INSTANCE.to_owned(), instance)].into(),
    }
}

fn pod_facts(pod: Pod, kind: PodKind) -> PodFacts {
    let volume = Claim::Ours { volume: VOLUME.to_owned(), shared: kind == PodKind::Shared };
    let foreign = (kind == PodKind::Foreign).then_some(Claim::Foreign);
    let toleration = (kind == PodKind::Tolerates).then(Toleration::default);
    PodFacts {
        deleting: pod.deleting,
        claims: [volume].into_iter().chain(foreign).collect(),
        tolerations: toleration.into_iter().collect(),
        of_daemon_set: kind == PodKind::DaemonSet,
        opted_out: kind == PodKind::OptedOut,
        ..PodFacts::default()
    }
}
