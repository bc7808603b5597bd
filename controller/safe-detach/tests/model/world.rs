//! Models a volume from one attach to the next: a node A whose instance may die, be cut off,
//! reboot and come back, with its kernel, its node-agent and its kubelet; a node B that lives; a
//! pod of a StatefulSet with one volume; Kubernetes' own controllers; persons; EC2 with two views
//! that lag behind; controllers; and replicas of node-lifecycle that all believe that they lead.
//!
//! The shipped functions decide: `decide`, `decide_instance` and `node_evidence` in the
//! controllers, `step` and `fence` in the replicas. The Lease that lets only one replica act is
//! left out here: it could only remove behaviour. The brake, which needs the Lease, has a model of
//! its own.
//!
//! Time is not modelled: whatever waits for a time (a lease, the six minutes, an eviction) may
//! happen at once or never. The model assumes:
//!
//! * **A view catches up before a boot ends**, and a boot, or an agent that was replaced, does not
//!   answer between the oldest fact of a call and the arrival of its DetachVolume: a call decides
//!   anew after two seconds.
//! * **A promise is lifted** only a minute after its request ended, which is as long as no
//!   DetachVolume that rests on it is on its way; a call that rests on it decides anew.
//! * **A call ends** before the next attach of the volume completes: a call whose answer nobody
//!   waits for sends nothing.
//! * **Kubelet's bookkeeping**: kubelet lists a volume in `volumesInUse` before it looks at
//!   `volumesAttached`, keeps the leave that it found there until no pod wants the volume, and
//!   unlists the volume after it has unmounted it and forgotten the leave. A kubelet that starts
//!   anew has no leave; one whose Node object is created anew still has it, and fills the lists of
//!   the new object within a minute.
//! * **In `ec2-only`** a node that is back is not cut off again while it still carries our taint,
//!   and kubelet does not start anew: Kubernetes would detach by force, and the order of CSI calls,
//!   which that mode trusts, would not hold.
//! * **Watches** lag by one change: an attachment that is gone, or being deleted, may still be seen
//!   as it was before.

mod ec2;
mod goals;
mod kubernetes;
mod node;
mod node_agent;
mod replica;
mod unpublish;

use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};
use ebs_csi_safe_detach::{Evidence, Mode, OldAgents, Power};

pub(crate) use goals::goals;

use crate::explore::{Steps, hash_of};

/// A planted fault, which shows that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    None,
    /// The replica sets the taint because the node has not been Ready for long.
    TaintByTimeout,
    /// The replica removes the taint because the taint has been there for long.
    TaintRemovedByTimeout,
    /// The replica sets the taint without a check of the Node's resourceVersion.
    TaintWithoutVersion,
    /// The replica deletes a VolumeAttachment without a check of its resourceVersion.
    AttachmentWithoutVersion,
    /// The replica deletes pods without an answer of the controller.
    PodsWithoutProof,
    /// The replica never sets the taint.
    NoTaint,
    /// The controller fences on its earlier answer about the status checks.
    FenceOnFormerChecks,
    /// The controller takes `InvalidInstanceID.NotFound` for the end of the instance.
    DetachOnNotFound,
    /// The controller reuses EC2's answer to the previous call.
    ReadBeforeTheCall,
    /// The controller sends DetachVolume on facts of any age.
    StaleFacts,
    /// `volumesAttached` is not read.
    VolumesAttachedUnread,
    /// `volumesInUse` is not read: a free volume that kubelet wants needs no promise.
    VolumesInUseUnread,
    /// A Node object that was created after the attach needs no promise.
    YoungNodeTrusted,
    /// The node-agent is asked before the Node object is read.
    AgentBeforeLists,
    /// The kernel is not asked what holds the disk, only for mounts.
    HolderUnseen,
    /// The volume's lock is not taken: a stage in flight is not seen.
    LookWithoutLock,
    /// The boot of the answer is not compared with the Node object's.
    BootNotCompared,
    /// The request for a promise counts as the promise.
    RequestCountsAsPromise,
    /// The promise is recorded for a volume in use.
    PromiseWhileHeld,
    /// A stage does not read the promise.
    StageIgnoresPromise,
    /// The promise ends with the process that made it.
    PromiseInMemory,
    /// The promise is lifted when its request ends, without a minute's wait.
    PromiseLiftedAtOnce,
    /// The promise is never lifted.
    PromiseNeverLifted,
    /// A free volume that kubelet wants is refused, with no way to a promise.
    NoPromise,
}

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    pub(crate) failover: FailoverMode,
    pub(crate) fault: Fault,
    pub(crate) pod: PodKind,
    pub(crate) controllers: usize,
    pub(crate) replicas: usize,
    /// Whether persons delete Nodes, pods, by force too, and VolumeAttachments, and set the taint.
    /// With [`Mode::Ec2Only`] they do not, and Kubernetes forces nothing: that mode trusts the
    /// order of CSI calls.
    pub(crate) persons: bool,
    /// Whether persons take the finalizer off a VolumeAttachment.
    pub(crate) finalizers: bool,
    /// Whether persons hibernate the instance and order overrides.
    pub(crate) orders: bool,
    pub(crate) fences: Option<FenceWhen>,
    /// Whether something may happen between a replica's reads and the controller's answers;
    /// otherwise something may happen only between the answers and the replica's acts.
    pub(crate) late_answers: bool,
    pub(crate) boots: u8,
    /// Whether the instance is stopped and terminated; otherwise only its guest reboots.
    pub(crate) power_fails: bool,
    pub(crate) kubelet: Kubelet,
    pub(crate) agents: Agents,
    pub(crate) old_agents: OldAgents,
}

/// What kubelet and the kernel do beyond the order of CSI calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kubelet {
    pub(crate) restarts: bool,
    /// Whether something still holds the disk after an unstage that kubelet takes for done.
    pub(crate) holders: bool,
    /// Whether the steps of a stage, and the disk's arrival, take time.
    pub(crate) slow: bool,
}

impl Kubelet {
    /// Kubelet's state survives, and nothing but mounts holds a disk.
    pub(crate) const ORDERLY: Self = Self { restarts: false, holders: false, slow: false };
    pub(crate) const RESTARTS: Self = Self { restarts: true, ..Self::ORDERLY };
    pub(crate) const FULL: Self = Self { restarts: true, holders: true, slow: true };
}

/// Which node-agents there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Agents {
    /// With the page; the pod stays.
    Stay,
    /// With the page; the pod may be replaced.
    Replaced,
    /// Older than the page.
    Old,
    /// Upgraded and downgraded at any time.
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodKind {
    Eligible,
    Shared,
    Foreign,
    DaemonSet,
    Tolerates,
    OptedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    A,
    B,
}

/// What EC2 has, or shows: the volume's node, and the state of node A's instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ec2 {
    pub(crate) held: Option<On>,
    pub(crate) power: Power,
    pub(crate) hibernated: bool,
}

/// How node A's kernel has the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    Nothing,
    /// A stage is in flight.
    Stage,
    Mount,
    /// Something that kubelet does not know of: a raw holder, a copied mount.
    Unlisted,
}

/// The guest of node A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guest {
    pub(crate) boot: u8,
    pub(crate) up: bool,
    /// Whether the kubelet of this boot has written the Node object.
    pub(crate) registered: bool,
    pub(crate) is_cut_off: bool,
    /// Whether the disk of the attachment is there.
    pub(crate) disk: bool,
    pub(crate) hold: Hold,
    /// Whether kubelet has found the volume in `volumesAttached`: it may stage from then on.
    pub(crate) has_leave: bool,
    /// Whether the mount-helper has a promise for this attachment on record.
    pub(crate) promised: bool,
    /// Whether the node-agent and the mount-helper are older than the page.
    pub(crate) old_agent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Taint {
    None,
    /// Our taint, about that boot.
    Ours(u8),
    Foreign,
}

/// The Node object of node A in the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeObject {
    pub(crate) ready: bool,
    pub(crate) boot: u8,
    pub(crate) taint: Taint,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
    /// Whether it was not yet a minute old at the attach.
    pub(crate) young: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) on: On,
    pub(crate) deleting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attachment {
    pub(crate) on: On,
    pub(crate) deleting: bool,
    pub(crate) retry_requested: bool,
}

/// A ControllerUnpublishVolume of the volume from node A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) stage: Stage,
    /// Whether the call's VolumeAttachment is gone; a later one of the same name is another object.
    pub(crate) gone: bool,
    /// Whether the facts are too old for a DetachVolume.
    pub(crate) stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Began,
    Asking,
    /// The Node object was read: what it says, and whether it is of the boot that runs.
    Listed {
        lists: Lists,
        same_boot: bool,
    },
    /// The evidence, and whether it needs the node's promise.
    Decided {
        evidence: Evidence,
        by_promise: bool,
    },
    Sent,
}

/// What the Node object says of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lists {
    /// No list has it.
    Clear,
    /// Kubelet may want it: `volumesInUse` lists it, or the Node object is young.
    Doubt,
    /// `volumesAttached` lists it.
    Attached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Replica {
    Idle,
    /// The replica has read the node again.
    Looked(Look),
    /// The replica has the controller's answers and carries out its plan.
    Acting(Plan),
}

/// What a replica read, and which of it has changed since (another resourceVersion or uid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Look {
    pub(crate) node: Option<NodeObject>,
    pub(crate) pod: Option<Pod>,
    pub(crate) attachment: Option<Attachment>,
    pub(crate) changed: Changed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Changed {
    pub(crate) node: bool,
    pub(crate) pod: bool,
    pub(crate) attachment: bool,
    /// Whether the attachment is gone now, or already was when a late watch showed it.
    pub(crate) gone: bool,
}

/// The acts that a replica has still to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub(crate) fence: bool,
    /// To set our taint, about that boot.
    pub(crate) taint: Option<u8>,
    pub(crate) remove_taint: bool,
    pub(crate) pod: bool,
    pub(crate) attachment: bool,
    pub(crate) retry: bool,
    pub(crate) changed: Changed,
    /// Whether nothing used the volume at node A when the answers came.
    pub(crate) was_free: bool,
    /// Whether, when the node was read, it had no terminating pod, and no attachment but that of a
    /// pod that tolerates the taint.
    pub(crate) had_no_leftovers: bool,
}

/// A person's override order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    None,
    /// For the attachment that is there.
    This,
    /// For an attachment before.
    Former,
    /// Its DetachVolume is on its way.
    Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) ec2: Ec2,
    pub(crate) shown: Ec2,
    /// Whether EC2's status checks of node A's instance fail, independently of its guest. Varies
    /// only where it makes a difference.
    pub(crate) impaired: bool,
    pub(crate) guest: Guest,
    pub(crate) node: Option<NodeObject>,
    pub(crate) pod: Option<Pod>,
    pub(crate) attachment: Option<Attachment>,
    /// Whether the node-agent's pod has the annotation that requests a promise for this attachment.
    pub(crate) promise_requested: bool,
    pub(crate) calls: [Option<Call>; 2],
    pub(crate) detach_in_flight: bool,
    pub(crate) order: Order,
    /// What a faulty controller keeps of EC2's last answer.
    pub(crate) cache: Option<Ec2>,
    pub(crate) replicas: [Replica; 2],
}

impl World {
    /// Returns the start: the pod runs on node A, which is healthy.
    pub(crate) fn start(rules: Rules) -> Self {
        let ec2 = Ec2 { held: Some(On::A), power: Power::Running, hibernated: false };
        Self {
            ec2,
            shown: ec2,
            impaired: false,
            guest: Guest {
                boot: 0,
                up: true,
                registered: true,
                is_cut_off: false,
                disk: true,
                hold: Hold::Mount,
                has_leave: true,
                promised: false,
                old_agent: matches!(rules.agents, Agents::Old | Agents::Mixed),
            },
            node: Some(NodeObject {
                ready: true,
                boot: 0,
                taint: Taint::None,
                in_use: true,
                attached: true,
                young: false,
            }),
            pod: Some(Pod { on: On::A, deleting: false }),
            attachment: Some(Attachment { on: On::A, deleting: false, retry_requested: false }),
            promise_requested: false,
            calls: [None; 2],
            detach_in_flight: false,
            order: Order::None,
            cache: None,
            replicas: [Replica::Idle; 2],
        }
    }

    pub(crate) fn next(&self, rules: Rules) -> Steps<Self> {
        let mut steps = Steps::new(*self);
        self.add_ec2_steps(rules, &mut steps);
        self.add_node_steps(rules, &mut steps);
        self.add_agent_steps(rules, &mut steps);
        self.add_kubernetes_steps(rules, &mut steps);
        self.add_person_steps(rules, &mut steps);
        for slot in 0..rules.controllers {
            self.add_controller_steps(slot, rules, &mut steps);
        }
        for slot in 0..rules.replicas {
            self.add_replica_steps(slot, rules, &mut steps);
        }
        steps.finish(Self::normalize, |world| world.broken_property(rules))
    }

    fn broken_property(&self, rules: Rules) -> Option<&'static str> {
        if self.instance_runs() && self.is_used() && self.ec2.held != Some(On::A) {
            return Some("S2: the volume was taken from a node that has it mounted");
        }
        // An agent that is older than the promise may have staged meanwhile; the kernel's answer
        // comes before the promise.
        let is_binding = rules.agents != Agents::Mixed && self.guest.up;
        (is_binding && self.guest.promised && self.is_used())
            .then_some("S3: a promise is on record for a volume that the node uses")
    }

    /// Gives states that do not differ in anything that matters the same form.
    fn normalize(&mut self) {
        self.guest.is_cut_off &= self.guest.up;
        self.impaired &= self.instance_runs();
        let is_held = self.ec2.held == Some(On::A);
        // Both are about this attachment, and void without it.
        self.promise_requested &= is_held;
        self.guest.promised &= is_held;
        self.guest.disk |= !is_held;
        for call in self.calls.iter_mut().flatten() {
            let has_facts = matches!(call.stage, Stage::Listed { .. } | Stage::Decided { .. });
            call.stale &= has_facts;
        }
        // Two calls, or two replicas, are interchangeable; the active one comes first.
        self.calls.sort_by_key(|call| (call.is_none(), hash_of(call)));
        self.replicas.sort_by_key(|replica| (*replica == Replica::Idle, hash_of(replica)));
    }

    /// Returns whether node A uses the volume.
    fn is_used(&self) -> bool {
        self.guest.hold != Hold::Nothing
    }

    /// Returns whether no call, and no DetachVolume, is in progress.
    fn is_idle(&self) -> bool {
        self.calls == [None; 2] && !self.detach_in_flight
    }

    fn instance_runs(&self) -> bool {
        self.ec2.power == Power::Running
    }

    /// Returns whether the VolumeAttachment at node A is being deleted.
    fn is_leaving(&self) -> bool {
        self.attachment.is_some_and(|va| va.on == On::A && va.deleting)
    }

    /// Returns whether there is a VolumeAttachment at node A that is not being deleted.
    fn stays(&self) -> bool {
        self.attachment.is_some_and(|va| va.on == On::A && !va.deleting)
    }

    fn has_own_taint(&self) -> bool {
        matches!(self.node, Some(NodeObject { taint: Taint::Ours(_), .. }))
    }

    fn is_pod_on_a(&self) -> bool {
        self.pod.is_some_and(|pod| pod.on == On::A)
    }

    /// Returns whether a pod that stays wants the volume on node A.
    fn is_wanted_on_a(&self) -> bool {
        self.pod.is_some_and(|pod| pod.on == On::A && !pod.deleting)
    }

    /// Makes the facts stale of each call that has not sent yet.
    fn age_facts(&mut self) {
        for call in self.calls.iter_mut().flatten() {
            call.stale = true;
        }
    }

    /// Replaces the Node object, whose resourceVersion changes too.
    fn set_node(&mut self, node: Option<NodeObject>) {
        self.node = node;
        self.mark_changed(|changed| changed.node = true);
    }

    fn set_pod(&mut self, pod: Option<Pod>) {
        self.pod = pod;
        self.mark_changed(|changed| changed.pod = true);
    }

    fn write_attachment(&mut self, change: impl FnOnce(&mut Attachment)) {
        self.attachment.as_mut().map(change);
        self.mark_changed(|changed| changed.attachment = true);
    }

    /// Removes the VolumeAttachment: replicas that read it and calls for it note that it is gone.
    fn remove_attachment(&mut self) {
        self.attachment = None;
        self.mark_changed(|changed| {
            changed.attachment = true;
            changed.gone = true;
        });
        for call in self.calls.iter_mut().flatten() {
            call.gone = true;
        }
    }

    fn mark_changed(&mut self, change: impl Fn(&mut Changed)) {
        for replica in &mut self.replicas {
            match replica {
                Replica::Idle => {}
                Replica::Looked(look) => change(&mut look.changed),
                Replica::Acting(plan) => {
                    change(&mut plan.changed);
                    plan.drop_irrelevant_changes();
                }
            }
        }
    }
}

impl Plan {
    /// Forgets changes of the objects that the plan will not touch.
    fn drop_irrelevant_changes(&mut self) {
        self.changed.node &= self.taint.is_some() || self.remove_taint;
        self.changed.pod &= self.pod;
        self.changed.attachment &= self.attachment;
        self.changed.gone &= self.retry;
        self.was_free |= !self.pod;
        self.had_no_leftovers |= !self.remove_taint;
    }
}
