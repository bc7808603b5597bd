//! Models a whole failover: a node A whose instance may die, be cut off, reboot and come back; a
//! node B that lives; a pod of a StatefulSet with one volume; Kubernetes' own controllers; persons;
//! EC2 with two views that lag behind; controllers; and replicas of node-lifecycle that all believe
//! that they lead.
//!
//! The shipped functions decide: `decide`, `decide_instance` and `kubelet_report` in the
//! controllers, `step` and `fence` in the replicas. The Lease that lets only one replica act is
//! left out here: it could only remove behaviour. The brake, which needs the Lease, has a model of
//! its own.
//!
//! Time is not modelled: whatever waits for a time (a lease, the six minutes, an eviction) may
//! happen at once or never. The model assumes:
//!
//! * **A view catches up before a boot ends**, and a boot does not end between a call's reads and
//!   the arrival of the call's DetachVolume.
//! * **A call ends** before the next attach of the volume completes.
//! * **In `ec2-only`** a node that is back is not cut off again while it still carries our taint:
//!   Kubernetes would detach by force, and the order of CSI calls, which that mode trusts, would
//!   not hold.
//! * **Watches** lag by one change: an attachment that is gone, or being deleted, may still be seen
//!   as it was before.

mod ec2;
mod kubernetes;
mod node;
mod replica;
mod unpublish;

use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};
use ebs_csi_safe_detach::{Mode, Power, Rung};

use crate::explore::{Goal, Steps, hash_of};

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
    /// Whether persons delete Nodes, pods and VolumeAttachments and set the taint. With
    /// [`Mode::Ec2Only`] they do not, and Kubernetes forces nothing: that mode trusts the order of
    /// CSI calls.
    pub(crate) persons: bool,
    pub(crate) fences: Option<FenceWhen>,
    /// Whether something may happen between a replica's reads and the controller's answers;
    /// otherwise something may happen only between the answers and the replica's acts.
    pub(crate) late_answers: bool,
    pub(crate) boots: u8,
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
}

/// The guest of node A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guest {
    pub(crate) boot: u8,
    pub(crate) up: bool,
    /// Whether the kubelet of this boot has written the Node object.
    pub(crate) registered: bool,
    pub(crate) is_cut_off: bool,
    pub(crate) mounted: bool,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) on: On,
    pub(crate) deleting: bool,
}

/// The VolumeAttachment.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Began,
    Asking,
    Decided(Rung),
    Sent,
}

/// A replica of node-lifecycle.
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
    pub(crate) calls: [Option<Call>; 2],
    pub(crate) detach_in_flight: bool,
    pub(crate) replicas: [Replica; 2],
}

/// The states that are reached from everywhere when faults end.
pub(crate) const GOALS: [Goal<World>; 4] = [
    Goal {
        name: "L1, L3: on a node that runs, a volume that no pod needs there is detached, whatever was refused before",
        from: |w| {
            let going = w.attachment.is_some_and(|va| va.on == On::A && va.deleting);
            w.ec2.power == Power::Running && going && w.pod.is_none_or(|pod| pod.on == On::B)
        },
        reached: |w| w.attachment.is_none_or(|va| va.on == On::B),
    },
    Goal {
        name: "L2: the pod of an instance that is off, or on its way there, runs elsewhere with its volume",
        from: |w| !matches!(w.ec2.power, Power::Running | Power::Pending),
        reached: |w| {
            let (pod, va) = (w.pod.map(|pod| pod.on), w.attachment.map(|va| va.on));
            (pod, va, w.ec2.held) == (Some(On::B), Some(On::B), Some(On::B))
        },
    },
    Goal {
        name: "L4: every call and every DetachVolume ends",
        from: |w| w.detach_in_flight || w.calls != [None; 2],
        reached: |w| !w.detach_in_flight && w.calls == [None; 2],
    },
    Goal {
        name: "L5: our taint is removed when the node is back",
        from: |w| w.has_own_taint() && w.ec2.power == Power::Running,
        reached: |w| !w.has_own_taint(),
    },
];

/// What is reached when the pod tolerates our taint. A pod that was created while its
/// VolumeAttachment is being deleted waits for ever (F53), and the taint stays with it.
pub(crate) const GOALS_OF_TOLERANT_POD: [Goal<World>; 1] = [Goal {
    name: "L5: our taint is removed when the node is back, with the pod on it",
    from: |w| {
        let waits = w.attachment.is_some_and(|va| va.deleting) && w.is_pod_on_a();
        w.has_own_taint() && w.ec2.power == Power::Running && !waits
    },
    reached: |w| !w.has_own_taint(),
}];

impl World {
    /// Returns the start: the pod runs on node A, which is healthy.
    pub(crate) fn start() -> Self {
        let ec2 = Ec2 { held: Some(On::A), power: Power::Running };
        Self {
            ec2,
            shown: ec2,
            impaired: false,
            guest: Guest { boot: 0, up: true, registered: true, is_cut_off: false, mounted: true },
            node: Some(NodeObject {
                ready: true,
                boot: 0,
                taint: Taint::None,
                in_use: true,
                attached: true,
            }),
            pod: Some(Pod { on: On::A, deleting: false }),
            attachment: Some(Attachment { on: On::A, deleting: false, retry_requested: false }),
            calls: [None; 2],
            detach_in_flight: false,
            replicas: [Replica::Idle; 2],
        }
    }

    pub(crate) fn next(&self, rules: Rules) -> Steps<Self> {
        let mut steps = Steps::new(*self);
        self.add_ec2_steps(rules, &mut steps);
        self.add_node_steps(rules, &mut steps);
        self.add_kubernetes_steps(rules, &mut steps);
        self.add_person_steps(rules, &mut steps);
        for slot in 0..rules.controllers {
            self.add_controller_steps(slot, rules, &mut steps);
        }
        for slot in 0..rules.replicas {
            self.add_replica_steps(slot, rules, &mut steps);
        }
        steps.finish(Self::normalize, |world| {
            let runs = world.ec2.power == Power::Running;
            (runs && world.guest.mounted && world.ec2.held != Some(On::A))
                .then_some("S2: the volume was taken from a node that has it mounted")
        })
    }

    /// Gives states that do not differ in anything that matters the same form.
    fn normalize(&mut self) {
        self.guest.is_cut_off &= self.guest.up;
        self.impaired &= self.ec2.power == Power::Running;
        // Two calls, or two replicas, are interchangeable; the active one comes first.
        self.calls.sort_by_key(|call| (call.is_none(), hash_of(call)));
        self.replicas.sort_by_key(|replica| (*replica == Replica::Idle, hash_of(replica)));
    }

    fn has_own_taint(&self) -> bool {
        matches!(self.node, Some(NodeObject { taint: Taint::Ours(_), .. }))
    }

    fn is_pod_on_a(&self) -> bool {
        self.pod.is_some_and(|pod| pod.on == On::A)
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
