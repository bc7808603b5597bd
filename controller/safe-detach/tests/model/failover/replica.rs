//! The replicas of node-lifecycle: they read, ask and act as in
//! `controller/node-lifecycle/src/failover.rs`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ebs_csi_safe_detach::lifecycle::{
    Attachment as SeenAttachment, Claim, Evidence, FailoverMode, FenceWhen, InstanceEvidence,
    Intent, Node, NodeFacts, OutOfService, Pod as SeenPod, Readiness, TaintedBoot, Toleration,
    instance_to_fence, step,
};
use ebs_csi_safe_detach::{Fact, Power};

use super::unpublish::{Ec2Answer, INSTANCE, VOLUME};
use super::{
    Attachment, Changed, Ec2, Fault, Kind, Look, NodeObject, On, Plan, Pod, Replica, Rules, Taint,
    World,
};
use crate::explore::{Mix, Steps};

impl World {
    pub(super) fn add_replica_steps(&self, slot: usize, rules: Rules, steps: &mut Steps<Self>) {
        let is = |replica| {
            let mut after = *self;
            after.replicas[slot] = replica;
            after
        };
        let replica = self.replicas[slot];
        steps.add_fault_if(replica != Replica::Idle, "a replica dies", || is(Replica::Idle));
        match replica {
            Replica::Idle => {
                let look = Look {
                    // Only the controllers use `volumesInUse` and `volumesAttached`.
                    node: self.node.map(|node| NodeObject {
                        in_use: false,
                        attached: false,
                        ..node
                    }),
                    pod: self.pod.filter(|pod| pod.on == On::A),
                    attachment: self.attachment.filter(|va| va.on == On::A),
                    changed: Changed::default(),
                };
                let suspect = match look.node {
                    Some(node) => !node.ready || matches!(node.taint, Taint::Ours(_)),
                    None => look.attachment.is_some(),
                };
                if !rules.late_answers {
                    self.add_answer_steps(slot, look, rules, steps, suspect);
                    return;
                }
                steps.add_if(suspect, "a replica looks", || is(Replica::Looked(look)));
                let before = Attachment { on: On::A, deleting: false, retry_requested: false };
                let late = look.attachment != Some(before);
                steps.add_fault_if(
                    suspect && late,
                    "a replica looks, with a watch that is late",
                    || {
                        is(Replica::Looked(Look {
                            attachment: Some(before),
                            changed: Changed {
                                attachment: true,
                                gone: look.attachment.is_none(),
                                ..Changed::default()
                            },
                            ..look
                        }))
                    },
                );
            }
            Replica::Looked(look) => self.add_answer_steps(slot, look, rules, steps, true),
            Replica::Acting(plan) => self.add_act_steps(slot, plan, rules, steps),
        }
    }

    fn add_answer_steps(
        &self,
        slot: usize,
        look: Look,
        rules: Rules,
        steps: &mut Steps<Self>,
        may: bool,
    ) {
        for (ec2_answer, how) in Ec2Answer::ALL.into_iter().filter(|_| may) {
            let plan = self.plan(rules, look, ec2_answer);
            let mut after = *self;
            after.replicas[slot] = match plan == Plan::nothing() {
                true => Replica::Idle,
                false => Replica::Acting(plan),
            };
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
            mounted: self.guest.mounted,
            impaired: self.impaired,
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
            evidence = Evidence::Proven;
        }
        let facts = facts(rules, look, evidence, instance);
        let step = step(&facts, rules.failover);
        let mut plan = Plan {
            was_free: !self.guest.mounted,
            had_no_users: look.attachment.is_none() && look.pod.is_none_or(|pod| !pod.deleting),
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
                Intent::DeletePod { .. } => plan.pod = true,
                Intent::DeleteAttachment { .. } => plan.attachment = true,
                Intent::RetryDetach { .. } => plan.retry = true,
            }
        }
        // An act with proof comes before a fence.
        let nothing_proved = !step.intents.iter().any(Intent::is_braked);
        if let Some(when) = rules.fences.filter(|_| nothing_proved) {
            plan.fence = instance_to_fence(&facts, when).is_some();
        }
        if let Some(node) = look.node {
            let is_taintable = !node.ready && node.taint == Taint::None;
            if rules.fault == Fault::TaintByTimeout && is_taintable {
                plan.taint = Some(node.boot);
            }
            plan.remove_taint |=
                rules.fault == Fault::TaintLiftedByTime && matches!(node.taint, Taint::Ours(_));
        }
        plan.drop_irrelevant_changes();
        plan
    }

    /// Does the first act of the plan. Each act names exactly the object version that was read and
    /// does nothing when that has changed.
    fn add_act_steps(&self, slot: usize, plan: Plan, rules: Rules, steps: &mut Steps<Self>) {
        let rest = |after: Self, plan: Plan| {
            let mut after = after;
            // What this act itself has changed does not invalidate the rest, which is about other
            // objects.
            let mut plan = plan;
            if let Replica::Acting(now) = after.replicas[slot] {
                plan.changed = now.changed;
            }
            plan.drop_irrelevant_changes();
            after.replicas[slot] = match plan == Plan::nothing() {
                true => Replica::Idle,
                false => Replica::Acting(plan),
            };
            after
        };
        let changed = plan.changed;
        if plan.fence {
            let left = Plan { fence: false, ..plan };
            let runs = self.ec2.power == Power::Running;
            // The controller asks EC2 again; the answer that the replica has may be out of date.
            let only_impaired = rules.fences == Some(FenceWhen::Impaired);
            let asks = only_impaired && rules.fault != Fault::FenceOnFormerChecks;
            let refused = runs && asks && !self.impaired;
            let name = match refused {
                false => "the instance is fenced",
                true => "the fence is refused: its checks pass",
            };
            let after = match (runs, refused) {
                (true, false) if only_impaired && !self.impaired => {
                    Err("S18: an instance is fenced whose checks pass")
                }
                (true, false) => {
                    let mut after = *self;
                    after.ec2.power = Power::Stopping;
                    Ok(after)
                }
                _ => Ok(*self),
            };
            steps.add((name, ""), after.map(|after| rest(after, left)), false);
            steps.add_fault_if(true, "the fence fails", || rest(*self, left));
        } else if let Some(boot) = plan.taint {
            let left = Plan { taint: None, ..plan };
            let late = changed.node && rules.fault != Fault::TaintWithoutVersion;
            let after = match self.node.filter(|_| !late) {
                None => Ok(*self),
                Some(node) => self.with_own_taint(node, boot),
            };
            steps.add(
                ("our taint is set", conflict_name(late)),
                after.map(|after| rest(after, left)),
                false,
            );
        } else if plan.remove_taint {
            let left = Plan { remove_taint: false, ..plan };
            let after = match self.node.filter(|_| !changed.node) {
                None => Ok(*self),
                Some(node) => self.without_own_taint(node, plan.had_no_users),
            };
            steps.add(
                ("our taint is lifted", conflict_name(changed.node)),
                after.map(|after| rest(after, left)),
                false,
            );
        } else if plan.pod {
            let left = Plan { pod: false, ..plan };
            let after = match changed.pod {
                true => Ok(*self),
                false if rules.kind != Kind::Eligible => {
                    Err("S10: a pod that is not eligible is deleted")
                }
                false if !plan.was_free && rules.failover == FailoverMode::ProveFirst => {
                    Err("S8: a pod is deleted whose volume was in use")
                }
                false => Ok(self.with_pod(None)),
            };
            steps.add(
                ("the pod is deleted by force", conflict_name(changed.pod)),
                after.map(|after| rest(after, left)),
                false,
            );
        } else if plan.attachment || plan.retry {
            let left = Plan { attachment: false, retry: false, ..plan };
            let name = match plan.attachment {
                true => "the VolumeAttachment is deleted",
                false => "the detach is asked for again",
            };
            let late = match plan.attachment {
                true => changed.attachment,
                false => changed.gone,
            };
            let late = late && rules.fault != Fault::AttachmentWithoutVersion;
            let here = self.attachment.is_some_and(|va| va.on == On::A);
            let after = match late || !here {
                true => *self,
                false => self.with_attachment(|va| {
                    va.deleting |= plan.attachment;
                    va.retry_requested |= plan.retry;
                }),
            };
            steps.add((name, conflict_name(late)), Ok(rest(after, left)), false);
        }
    }

    fn with_own_taint(&self, node: NodeObject, about: u8) -> Result<Self, &'static str> {
        if node.boot != about || self.guest.boot == about && self.guest.up {
            return Err("S9: our taint though the instance was not off since the node registered");
        }
        Ok(self.with_node(Some(NodeObject { taint: Taint::Ours(about), ..node })))
    }

    fn without_own_taint(
        &self,
        node: NodeObject,
        had_no_users: bool,
    ) -> Result<Self, &'static str> {
        let Taint::Ours(about) = node.taint else {
            return Err("a taint that is not ours is lifted");
        };
        if node.boot == about || !had_no_users {
            return Err("L5: our taint is lifted without proof of return");
        }
        Ok(self.with_node(Some(NodeObject { taint: Taint::None, ..node })))
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
    mounted: bool,
    impaired: bool,
}

impl Plan {
    fn nothing() -> Self {
        Self { was_free: true, had_no_users: true, ..Self::default() }
    }
}

fn conflict_name(late: bool) -> &'static str {
    match late {
        true => "overtaken",
        false => "",
    }
}

fn boot(number: u8) -> String {
    format!("boot-{number}")
}

/// Returns what was read and answered in the form that the shipped functions take.
fn facts(rules: Rules, look: Look, evidence: Evidence, instance: InstanceEvidence) -> NodeFacts {
    NodeFacts {
        object: match look.node {
            None => Fact::Absent,
            Some(node) => Fact::Present(Node {
                ready: match node.ready {
                    true => Readiness::Ready,
                    false => Readiness::NotReady,
                },
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
            }),
        },
        attachments: look.attachment.map(seen_attachment).into_iter().collect(),
        pods: look.pod.map(|pod| seen_pod(pod, rules.kind)).into_iter().collect(),
        volumes: [((INSTANCE.to_owned(), VOLUME.to_owned()), evidence)].into(),
        instances: [(INSTANCE.to_owned(), instance)].into(),
    }
}

fn seen_attachment(va: Attachment) -> SeenAttachment {
    SeenAttachment {
        name: "csi-1".to_owned(),
        uid: "uid-1".to_owned(),
        version: "1".to_owned(),
        volume: VOLUME.to_owned(),
        instance: Some(INSTANCE.to_owned()),
        deleting: va.deleting,
        retry_requested: va.retry_requested,
    }
}

fn seen_pod(pod: Pod, kind: Kind) -> SeenPod {
    let volume = Claim::Ours { volume: VOLUME.to_owned(), shared: kind == Kind::Shared };
    let mut claims = vec![volume];
    if kind == Kind::Foreign {
        claims.push(Claim::Foreign);
    }
    SeenPod {
        namespace: "default".to_owned(),
        name: "db-0".to_owned(),
        uid: "uid-db-0".to_owned(),
        version: "1".to_owned(),
        deleting: pod.deleting,
        ended: false,
        claims,
        tolerations: match kind {
            Kind::Tolerates => vec![Toleration::default()],
            _ => Vec::new(),
        },
        of_daemon_set: kind == Kind::DaemonSet,
        mirror: false,
        opted_out: kind == Kind::OptedOut,
    }
}
