//! The decision. It is total and pure: no clock, no I/O, no default branch.

use std::fmt;

use super::facts::{
    AttachmentFact, Fact, Facts, InstanceFact, KubeletReport, Mode, OverrideOrder, Phase, Power,
};

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// EC2 shows no attachment: nothing to do.
    Done,
    /// The volume may be detached.
    Safe(Rung),
    /// The state becomes clear without further action.
    Wait(Waiting),
    /// The volume may not be detached until somebody acts.
    Refuse(Refusal),
}

impl Verdict {
    /// Returns all verdicts, for tables.
    pub fn all() -> impl Iterator<Item = Self> {
        let waits = [Waiting::Leaving, Waiting::Transition].map(Self::Wait);
        [Self::Done]
            .into_iter()
            .chain(Rung::ALL.map(Self::Safe))
            .chain(waits)
            .chain(Refusal::ALL.map(Self::Refuse))
    }

    /// Returns the labels of metrics: the outcome and the reason.
    pub const fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "no-attachment"),
            Self::Safe(rung) => ("safe", rung.label()),
            Self::Wait(Waiting::Leaving) => ("wait", "leaving"),
            Self::Wait(Waiting::Transition) => ("wait", "transition"),
            Self::Refuse(why) => ("refuse", why.token()),
        }
    }
}

/// The evidence that makes a detach safe, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// The instance is terminated.
    Terminated,
    /// The instance is stopped, and its memory was not saved.
    Stopped,
    /// As `Stopped` or `Terminated`, and this driver powered the instance off.
    Fenced,
    /// Kubelet reports that it has released the volume.
    KubeletReport,
    /// The instance runs, and the controller trusts the orchestrator.
    Trusted,
    /// A person gave an override order.
    OverrideOrder,
}

impl Rung {
    /// All kinds of evidence, strongest first.
    pub const ALL: [Self; 6] = [
        Self::Terminated,
        Self::Stopped,
        Self::Fenced,
        Self::KubeletReport,
        Self::Trusted,
        Self::OverrideOrder,
    ];

    /// Returns the label of metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::Stopped => "stopped",
            Self::Fenced => "fenced",
            Self::KubeletReport => "kubelet-report",
            Self::Trusted => "trusted",
            Self::OverrideOrder => "break-glass",
        }
    }
}

/// The event that the detach waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// A detach that was requested before; under this verdict, no second one is sent.
    Leaving,
    /// The instance is being launched, stopped or terminated.
    Transition,
}

/// The reason of a refused detach. `Display` writes the stable token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The state of the attachment in EC2 is unknown.
    AttachmentUnknown,
    /// The state of the instance in EC2 is unknown.
    InstanceUnknown,
    /// The attachment, or the instance, is in a state that this version does not know.
    StrangeState,
    /// EC2 does not know the instance, and still shows the attachment.
    InstanceMissing,
    /// The instance is hibernated: its guest continues with its mounts when the instance is
    /// started.
    Hibernated,
    /// The instance is stopped, and it is unknown whether its memory was saved.
    HibernationUnknown,
    /// Kubelet reports that it uses the volume.
    InUse,
    /// The instance runs, and its node is not ready.
    NodeNotReady,
    /// The instance runs, and there is no fresh report of its kubelet.
    NoReport,
    /// The instance runs; given only for an instance as a whole.
    Running,
}

impl Refusal {
    /// All reasons, for tables.
    pub const ALL: [Self; 10] = [
        Self::AttachmentUnknown,
        Self::InstanceUnknown,
        Self::StrangeState,
        Self::InstanceMissing,
        Self::Hibernated,
        Self::HibernationUnknown,
        Self::InUse,
        Self::NodeNotReady,
        Self::NoReport,
        Self::Running,
    ];

    /// Returns the stable token of messages, metrics and log lines.
    pub const fn token(self) -> &'static str {
        match self {
            Self::AttachmentUnknown => "attachment-unknown",
            Self::InstanceUnknown => "instance-unknown",
            Self::StrangeState => "strange-state",
            Self::InstanceMissing => "instance-missing",
            Self::Hibernated => "hibernated",
            Self::HibernationUnknown => "hibernation-unknown",
            Self::InUse => "in-use",
            Self::NodeNotReady => "node-not-ready",
            Self::NoReport => "no-report",
            Self::Running => "running",
        }
    }

    /// Returns whether the reason is missing data from EC2, which the next call may have, and not a
    /// fact that somebody must change.
    pub const fn is_missing_data(self) -> bool {
        matches!(self, Self::AttachmentUnknown | Self::InstanceUnknown)
    }

    /// Returns what a person can do.
    pub const fn next_step(self) -> &'static str {
        match self {
            Self::AttachmentUnknown | Self::InstanceUnknown => {
                "nothing was changed; the next call asks EC2 again"
            }
            Self::StrangeState => {
                "look at the volume and the instance in EC2, and update the driver"
            }
            Self::InstanceMissing => {
                "EC2 shows a volume at an instance that it does not know; when that does not end by itself, detach the volume in EC2"
            }
            Self::Hibernated | Self::HibernationUnknown => {
                "start the instance and stop it without hibernation, or terminate it"
            }
            Self::InUse => {
                "end what uses the volume on the node; a node that is down must be stopped or terminated in EC2"
            }
            Self::NodeNotReady => "stop or terminate the instance in EC2, or bring the node back",
            Self::NoReport => {
                "stop or terminate the instance in EC2, or see that node-lifecycle runs beside the controller and reports this node"
            }
            Self::Running => "stop or terminate the instance in EC2",
        }
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
        Phase::Off => Verdict::Done,
        _ if is_overridden(&facts.override_order, attachment) => Verdict::Safe(Rung::OverrideOrder),
        Phase::Leaving => Verdict::Wait(Waiting::Leaving),
        Phase::Strange => Verdict::Refuse(Refusal::StrangeState),
        Phase::Held if facts.mode == Mode::Off => Verdict::Safe(Rung::Trusted),
        Phase::Held => of_instance(&facts.instance, facts.fence, || of_running(facts)),
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
    let off = |rung| match fence {
        Fact::Present(()) => Verdict::Safe(Rung::Fenced),
        Fact::Absent | Fact::Unknown => Verdict::Safe(rung),
    };
    match instance.power {
        Power::Running => of_running(),
        Power::Terminated => off(Rung::Terminated),
        Power::Stopped => match instance.hibernation {
            Fact::Absent => off(Rung::Stopped),
            Fact::Present(()) => Verdict::Refuse(Refusal::Hibernated),
            Fact::Unknown => Verdict::Refuse(Refusal::HibernationUnknown),
        },
        Power::Pending | Power::Stopping | Power::ShuttingDown => {
            Verdict::Wait(Waiting::Transition)
        }
        Power::Strange => Verdict::Refuse(Refusal::StrangeState),
    }
}

fn of_running(facts: &Facts) -> Verdict {
    match (facts.mode, &facts.kubelet_report) {
        (Mode::Off | Mode::Ec2Only, _) => Verdict::Safe(Rung::Trusted),
        (Mode::Enforce, Fact::Present(report)) => match report {
            KubeletReport::Released => Verdict::Safe(Rung::KubeletReport),
            KubeletReport::InUse => Verdict::Refuse(Refusal::InUse),
            KubeletReport::NotReady => Verdict::Refuse(Refusal::NodeNotReady),
        },
        (Mode::Enforce, Fact::Absent | Fact::Unknown) => Verdict::Refuse(Refusal::NoReport),
    }
}

#[cfg(test)]
mod tests;
