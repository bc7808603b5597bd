//! Models one detach in detail: one volume, a node A that may fail in every way, a node B that may
//! get the volume, EC2 with two views that lag behind, an orchestrator, and one or two controllers.
//!
//! The model assumes the following, because nothing here could enforce it:
//!
//! * **A view catches up before a boot ends.** The kubelet of a new boot is up only when EC2 shows
//!   the instance running, and not while a DetachVolume is on its way. The first takes minutes, the
//!   second milliseconds; only a record kept by the node would prove it.
//! * **A boot takes longer than facts are valid.** Facts that were read before a boot ended are too
//!   old for a DetachVolume after it.
//! * **A request arrives or is lost, and a call ends,** before the next attach of the volume
//!   completes: a call whose answer nobody waits for sends nothing.
//! * **Kubelet's bookkeeping**: kubelet lists a volume in `volumesInUse` before it looks at
//!   `volumesAttached` and mounts, and unlists the volume after it has unmounted it.

mod call;
mod ec2;
mod kubelet;
mod orchestrator;

use ebs_csi_safe_detach::{AttachmentFact, Fact, InstanceFact, KubeletReport, Mode, Power, Rung};

use crate::explore::{Steps, hash_of};

/// A planted fault, which shows that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The controller takes `InvalidInstanceID.NotFound` for the end of the instance.
    DetachOnNotFound,
    /// The controller reuses facts of the previous call.
    ReadBeforeTheCall,
    /// Kubelet's report considers `volumesInUse` alone.
    ReportWithoutVolumesAttached,
    /// Kubelet unlists a volume while the volume is mounted.
    KubeletForgets,
    /// The controller sends DetachVolume on facts of any age.
    StaleFacts,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    pub(crate) fault: Fault,
    pub(crate) scope: Scope,
}

/// The limits of the exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The number of controllers that may answer at the same time: two while external-attacher's
    /// leader changes.
    pub(crate) controllers: usize,
    pub(crate) starts: u8,
    pub(crate) attaches: u8,
    pub(crate) hibernates: bool,
    pub(crate) override_order: bool,
}

impl Scope {
    /// One controller, with starts, hibernation and an override order.
    pub(crate) const ALONE: Self =
        Self { controllers: 1, starts: 1, attaches: 2, hibernates: true, override_order: true };
    /// Two controllers, and a node that dies once.
    pub(crate) const BOTH: Self =
        Self { controllers: 2, starts: 0, attaches: 2, hibernates: false, override_order: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    A,
    B,
}

/// What EC2 has, or shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ec2 {
    /// The node, and the number of the attach.
    pub(crate) held: Option<(Node, u8)>,
    pub(crate) power: Power,
    pub(crate) hibernated: bool,
}

/// The kubelet of node A, and what the API server has of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kubelet {
    pub(crate) up: bool,
    pub(crate) reaches_api: bool,
    pub(crate) verified: bool,
    pub(crate) mounted: bool,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
    pub(crate) ready: bool,
    pub(crate) fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Began,
    Read,
    Asking,
    Decided(Rung),
    Sent,
}

/// One ControllerUnpublishVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) stage: Stage,
    pub(crate) node: Node,
    pub(crate) attachment: Fact<AttachmentFact>,
    pub(crate) instance: Fact<InstanceFact>,
    pub(crate) kubelet_report: Fact<KubeletReport>,
    pub(crate) asked: bool,
    /// Whether the facts were read after the call began.
    pub(crate) fresh: bool,
    /// Whether the facts are too old for a DetachVolume.
    pub(crate) stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) ec2: Ec2,
    pub(crate) shown: Ec2,
    pub(crate) kubelet: Kubelet,
    /// The VolumeAttachment: its node, and whether it is being deleted.
    pub(crate) attachment_for: Option<(Node, bool)>,
    pub(crate) calls: [Option<Call>; 2],
    pub(crate) detach_in_flight: Option<Node>,
    pub(crate) fenced: bool,
    pub(crate) override_order: Option<u8>,
    /// Whether the DetachVolume on its way follows an override order.
    pub(crate) by_override_order: bool,
    pub(crate) attaches: u8,
    pub(crate) starts: u8,
    /// The facts that a faulty controller keeps from an earlier call.
    pub(crate) cache: Option<(Fact<AttachmentFact>, Fact<InstanceFact>)>,
}

impl World {
    /// Returns the start: nothing is attached, node A runs.
    pub(crate) fn start() -> Self {
        let ec2 = Ec2 { held: None, power: Power::Running, hibernated: false };
        Self {
            ec2,
            shown: ec2,
            kubelet: Kubelet {
                up: true,
                reaches_api: true,
                ready: true,
                fresh: true,
                ..Kubelet::default()
            },
            attachment_for: None,
            calls: [None; 2],
            detach_in_flight: None,
            fenced: false,
            override_order: None,
            by_override_order: false,
            attaches: 0,
            starts: 0,
            cache: None,
        }
    }

    pub(crate) fn next(&self, rules: Rules) -> Steps<Self> {
        let mut steps = Steps::new(*self);
        self.add_ec2_steps(rules, &mut steps);
        self.add_kubelet_steps(rules, &mut steps);
        self.add_orchestrator_steps(rules, &mut steps);
        for slot in 0..rules.scope.controllers {
            self.add_controller_steps(slot, rules, &mut steps);
        }
        steps.finish(Self::normalize, Self::broken_property)
    }

    /// S2: a node that runs and has the volume mounted keeps it.
    fn broken_property(&self) -> Option<&'static str> {
        let is_taken = self.kubelet.mounted
            && self.ec2.power == Power::Running
            && !self.by_override_order
            && self.holder() != Some(Node::A);
        is_taken.then_some("S2: the volume was taken from a node that has it mounted")
    }

    fn holder(&self) -> Option<Node> {
        self.ec2.held.map(|held| held.0)
    }

    /// Makes the facts stale of each call that has not sent yet.
    fn age_facts(&mut self) {
        for call in self.calls.iter_mut().flatten() {
            call.stale = !matches!(call.stage, Stage::Began | Stage::Sent);
        }
    }

    /// Resets values that cannot matter any more, which reduces the number of states.
    fn normalize(&mut self) {
        for call in self.calls.iter_mut().flatten() {
            let (known, is_sent) = (*call, call.stage == Stage::Sent);
            if matches!(call.stage, Stage::Began | Stage::Decided(_) | Stage::Sent) {
                *call = Call {
                    attachment: if is_sent { Fact::Unknown } else { known.attachment },
                    instance: Fact::Unknown,
                    kubelet_report: Fact::Unknown,
                    asked: false,
                    stale: known.stale && matches!(known.stage, Stage::Decided(_)),
                    ..known
                };
            }
        }
        // The two controllers are interchangeable.
        self.calls.sort_by_key(|call| (call.is_none(), hash_of(call)));
        if !self.kubelet.up {
            self.kubelet.reaches_api = true;
        }
        if self.ec2.power == Power::Terminated {
            let attached = self.kubelet.attached;
            self.kubelet = Kubelet { reaches_api: true, attached, ..Kubelet::default() };
        }
    }
}
