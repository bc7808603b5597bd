//! The decision. It is total and pure: no clock, no I/O, no default branch.

use std::fmt;

use ebs_csi_wire::listed_enum;

use super::facts::{
    AttachmentFact, Fact, Facts, InstanceFact, Mode, NodeEvidence, OverrideOrder, Phase, Power,
};

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// EC2 shows no attachment: nothing to do.
    Done,
    /// The volume may be detached.
    Safe(Evidence),
    /// The state becomes clear without further action.
    Wait(Waiting),
    /// The volume may not be detached until somebody acts.
    Refuse(Refusal),
}

impl Verdict {
    /// Returns all verdicts, for tables.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = [Self::Done].into_iter().chain(Evidence::ALL.map(Self::Safe));
        all.chain(Waiting::ALL.map(Self::Wait)).chain(Refusal::ALL.map(Self::Refuse))
    }

    /// Returns the labels of metrics: the outcome and the reason.
    pub const fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "no-attachment"),
            Self::Safe(evidence) => ("safe", evidence.label()),
            Self::Wait(waiting) => ("wait", waiting.label()),
            Self::Refuse(why) => ("refuse", why.token()),
        }
    }
}

listed_enum! {
    /// The evidence that makes a detach safe, strongest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Evidence with pub fn label -> &'static str {
        /// The instance is terminated.
        Terminated = "terminated",
        /// The instance is stopped, and its memory was not saved.
        Stopped = "stopped",
        /// As `Stopped` or `Terminated`, and this driver powered the instance off.
        Fenced = "fenced",
        /// The node's kernel does not hold the volume, and the node will not begin to use it.
        NodeAnswer = "node-answer",
        /// Kubelet reports that it has released the volume; the node-agent cannot ask the kernel.
        KubeletReport = "kubelet-report",
        /// The instance runs, and the controller trusts the orchestrator.
        Trusted = "trusted",
        /// A person gave an override order.
        OverrideOrder = "break-glass",
    }
}

listed_enum! {
    /// The event that the detach waits for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Waiting with pub fn label -> &'static str {
        /// A detach that was requested before; under this verdict, no second one is sent.
        Leaving = "leaving",
        /// The instance is being launched, stopped or terminated.
        Transition = "transition",
        /// The node's promise not to use the volume.
        Promise = "promise",
    }
}

listed_enum! {
    /// The reason of a refused detach: its stable token, and what a person can do. `Display` writes
    /// the token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Refusal with fn token_and_next_step -> (&'static str, &'static str) {
        /// The state of the attachment in EC2 is unknown.
        AttachmentUnknown = ("attachment-unknown", ASK_AGAIN),
        /// The state of the instance in EC2 is unknown.
        InstanceUnknown = ("instance-unknown", ASK_AGAIN),
        /// The attachment, or the instance, is in a state that this version does not know.
        UnrecognisedState = (
            "strange-state",
            "look at the volume and the instance in EC2, and update the driver",
        ),
        /// EC2 does not know the instance, and still shows the attachment.
        InstanceMissing = (
            "instance-missing",
            "EC2 shows a volume at an instance that it does not know; when that does not end by itself, detach the volume in EC2",
        ),
        /// The instance is hibernated: its guest continues with its mounts when the instance is
        /// started.
        Hibernated = ("hibernated", STOP_WITHOUT_HIBERNATION),
        /// The instance is stopped, and it is unknown whether its memory was saved.
        HibernationUnknown = ("hibernation-unknown", STOP_WITHOUT_HIBERNATION),
        /// The node uses the volume, or kubelet may begin to use it.
        InUse = (
            "in-use",
            "end what uses the volume on the node; a node that is down must be stopped or terminated in EC2",
        ),
        /// The instance runs, and its node is not ready.
        NodeNotReady = (
            "node-not-ready",
            "stop or terminate the instance in EC2, or bring the node back",
        ),
        /// The instance runs, and there is no fresh answer of its node.
        NoReport = (
            "no-report",
            "stop or terminate the instance in EC2, or see that node-lifecycle runs beside the controller and reports this node",
        ),
        /// The instance runs; given only for an instance as a whole.
        Running = ("running", "stop or terminate the instance in EC2"),
    }
}

const ASK_AGAIN: &str = "nothing was changed; the next call asks EC2 again";
const STOP_WITHOUT_HIBERNATION: &str =
    "start the instance and stop it without hibernation, or terminate it";

impl Refusal {
    /// Returns the stable token of messages, metrics and log lines.
    pub const fn token(self) -> &'static str {
        self.token_and_next_step().0
    }

    /// Returns what a person can do.
    pub const fn next_step(self) -> &'static str {
        self.token_and_next_step().1
    }

    /// Returns whether the reason is missing data from EC2, which the next call may have, and not a
    /// fact that somebody must change.
    pub const fn is_missing_data(self) -> bool {
        matches!(self, Self::AttachmentUnknown | Self::InstanceUnknown)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// Decides whether the volume may leave the instance.
///
/// The following is no evidence, and therefore not part of [`Facts`]: time that passed, a node that
/// is not ready, a taint, a missing Node object, an error of EC2.
pub fn decide(facts: &Facts) -> Verdict {
    let attachment = match facts.attachment {
        Fact::Absent => return Verdict::Done,
        Fact::Unknown => return Verdict::Refuse(Refusal::AttachmentUnknown),
        Fact::Present(attachment) => attachment,
    };
    match attachment.phase {
        Phase::NotAttached => Verdict::Done,
        _ if is_overridden(&facts.override_order, attachment) => {
            Verdict::Safe(Evidence::OverrideOrder)
        }
        Phase::Leaving => Verdict::Wait(Waiting::Leaving),
        Phase::Unrecognised => Verdict::Refuse(Refusal::UnrecognisedState),
        Phase::Attached if facts.mode == Mode::Off => Verdict::Safe(Evidence::Trusted),
        Phase::Attached => of_instance(&facts.instance, facts.fence, || decide_running(facts)),
    }
}

fn is_overridden(override_order: &Fact<OverrideOrder>, attachment: AttachmentFact) -> bool {
    matches!(override_order, Fact::Present(order)
        if order.instance == order.subject && attachment.since == Some(order.since))
}

/// Decides whether all volumes at an instance may leave it, by EC2's evidence about the instance
/// alone, whatever the mode.
///
/// `fence` is as in [`Facts`]. A running instance is refused: only a report about each volume could
/// free that volume.
pub fn decide_instance(instance: &Fact<InstanceFact>, fence: Fact<()>) -> Verdict {
    of_instance(instance, fence, || Verdict::Refuse(Refusal::Running))
}

fn of_instance(
    instance: &Fact<InstanceFact>,
    fence: Fact<()>,
    of_running: impl FnOnce() -> Verdict,
) -> Verdict {
    let instance = match instance {
        Fact::Unknown => return Verdict::Refuse(Refusal::InstanceUnknown),
        Fact::Absent => return Verdict::Refuse(Refusal::InstanceMissing),
        Fact::Present(instance) => instance,
    };
    let off = |evidence| match fence {
        Fact::Present(()) => Verdict::Safe(Evidence::Fenced),
        Fact::Absent | Fact::Unknown => Verdict::Safe(evidence),
    };
    match instance.power {
        Power::Running => of_running(),
        Power::Terminated => off(Evidence::Terminated),
        Power::Stopped => match instance.hibernation {
            Fact::Absent => off(Evidence::Stopped),
            Fact::Present(()) => Verdict::Refuse(Refusal::Hibernated),
            Fact::Unknown => Verdict::Refuse(Refusal::HibernationUnknown),
        },
        Power::Pending | Power::Stopping | Power::ShuttingDown => {
            Verdict::Wait(Waiting::Transition)
        }
        Power::Unrecognised => Verdict::Refuse(Refusal::UnrecognisedState),
    }
}

fn decide_running(facts: &Facts) -> Verdict {
    match (facts.mode, &facts.node) {
        (Mode::Off | Mode::Ec2Only, _) => Verdict::Safe(Evidence::Trusted),
        (Mode::Enforce, Fact::Present(node)) => match node {
            NodeEvidence::Released => Verdict::Safe(Evidence::NodeAnswer),
            NodeEvidence::ReleasedByKubelet => Verdict::Safe(Evidence::KubeletReport),
            NodeEvidence::InUse => Verdict::Refuse(Refusal::InUse),
            NodeEvidence::PromiseNeeded => Verdict::Wait(Waiting::Promise),
            NodeEvidence::NotReady => Verdict::Refuse(Refusal::NodeNotReady),
        },
        (Mode::Enforce, Fact::Absent | Fact::Unknown) => Verdict::Refuse(Refusal::NoReport),
    }
}

#[cfg(test)]
mod tests;
