//! The facts that a decision rests on.

use std::fmt;
use std::str::FromStr;

use ebs_csi_wire::{InstanceId, listed_enum};

/// What is known about one thing. A read that failed, or that is too old, gives [`Fact::Unknown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fact<T> {
    /// The thing exists.
    Present(T),
    /// There is evidence that the thing does not exist.
    Absent,
    /// Nothing is known.
    #[default]
    Unknown,
}

listed_enum! {
    /// How much evidence a detach needs, the most last. The labels are those of flags, metrics and
    /// log lines.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Mode with pub fn label -> &'static str {
        /// None: the controller trusts the container orchestrator, as the Go driver does.
        Off = "off",
        /// EC2's state decides; for a running instance, the controller trusts the orchestrator
        /// (CSI: unstage comes before unpublish).
        Ec2Only = "ec2-only",
        /// As `Ec2Only`, but for a running instance only a fresh answer of its own node counts.
        Enforce = "enforce",
    }
}

#[expect(clippy::derivable_impls, reason = "a value of listed_enum takes no attribute")]
impl Default for Mode {
    fn default() -> Self {
        Self::Off
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.label() == text);
        found.ok_or_else(|| "give off, ec2-only or enforce".to_owned())
    }
}

/// All facts of a decision about one volume and one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// How much evidence the detach needs.
    pub mode: Mode,
    /// The attachment of the volume to the instance. Absent also when the volume does not exist.
    pub attachment: Fact<AttachmentFact>,
    /// The instance. Absent when EC2 knows no such instance: that answer can be a late read, so it
    /// proves nothing.
    pub instance: Fact<InstanceFact>,
    /// What the instance's own node says of the volume. Absent when there is evidence that no node
    /// speaks for the instance.
    pub node: Fact<NodeEvidence>,
    /// Present when this driver itself has stopped or terminated the instance, and EC2 has
    /// acknowledged that.
    pub fence: Fact<()>,
    /// A person's override order: detach, whatever the other facts are.
    pub override_order: Fact<OverrideOrder>,
}

/// When EC2 accepted an attach, since 1970-01-01T00:00:00Z. Times are only compared, never
/// calculated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachTime {
    /// Whole seconds.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// An attachment in EC2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentFact {
    /// The state of the attachment.
    pub phase: Phase,
    /// When EC2 accepted the attach. The time distinguishes one attachment of a volume to an
    /// instance from the next.
    pub since: Option<AttachTime>,
}

/// The state of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Attaching or attached.
    Attached,
    /// Detaching, including `busy`.
    Leaving,
    /// Detached; EC2 shows such an attachment for a moment.
    NotAttached,
    /// A state that this version does not know.
    Unrecognised,
}

/// An instance in EC2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceFact {
    /// The state of the instance.
    pub power: Power,
    /// Present when the instance's memory was saved at the stop: the guest continues with its
    /// mounts when the instance is started.
    pub hibernation: Fact<()>,
}

listed_enum! {
    /// The states of an instance (EC2 API reference, `InstanceState`), with EC2's names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Power with pub fn label -> &'static str {
        /// Being launched.
        Pending = "pending",
        /// Running.
        Running = "running",
        /// Being terminated.
        ShuttingDown = "shutting-down",
        /// Terminated.
        Terminated = "terminated",
        /// Being stopped.
        Stopping = "stopping",
        /// Stopped.
        Stopped = "stopped",
        /// A state that this version does not know.
        Unrecognised = "in a state that this driver does not know",
    }
}

/// What is known of a volume on a running instance from its own node. Only an answer to a question
/// of this detach counts; the collector sees to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeEvidence {
    /// The node's kernel does not hold the volume, and the node will not begin to use it: no list
    /// of kubelet leaves doubt, or the node has promised it.
    Released,
    /// Only kubelet's report is known, because the node-agent is older than its page. Kubelet says
    /// that it does not use the volume.
    ReleasedByKubelet,
    /// The node uses the volume, or its orchestrator still permits kubelet to begin to use it.
    InUse,
    /// The node's kernel does not hold the volume, but kubelet may begin to use it: the node must
    /// promise not to.
    PromiseNeeded,
    /// Only kubelet's report is known, and the node is not ready: an earlier report proves nothing.
    NotReady,
}

/// A person's override order for exactly one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OverrideOrder {
    /// The instance that the order names.
    pub instance: InstanceId,
    /// The attachment that the order names, by the time when EC2 accepted it.
    pub since: AttachTime,
    /// The instance that the decision is about.
    pub subject: InstanceId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_has_the_name_of_ec2() {
        for (power, name) in [
            (Power::Pending, "pending"),
            (Power::Running, "running"),
            (Power::ShuttingDown, "shutting-down"),
            (Power::Terminated, "terminated"),
            (Power::Stopping, "stopping"),
            (Power::Stopped, "stopped"),
            (Power::Unrecognised, "in a state that this driver does not know"),
        ] {
            assert_eq!(power.label(), name);
        }
    }
}
