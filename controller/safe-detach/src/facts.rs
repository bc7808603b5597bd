//! What a decision rests on.

use std::fmt;
use std::str::FromStr;

use ebs_csi_wire::InstanceId;

/// What is known about one thing. A look that failed, or that is too old, is [`Fact::Unknown`]: it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact<T> {
    /// It is there.
    Present(T),
    /// There is evidence that it is not there.
    Absent,
    /// Nothing is known.
    Unknown,
}

/// How much must be proved before a detach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing: the container orchestrator's word is enough, as for the Go driver.
    #[default]
    Off,
    /// What EC2 shows decides; of a running instance the orchestrator's word is taken (CSI: unstage comes before unpublish).
    Ec2Only,
    /// Of a running instance, only the node's own fresh word counts.
    Enforce,
}

impl Mode {
    /// All, the strictest last.
    pub const ALL: [Self; 3] = [Self::Off, Self::Ec2Only, Self::Enforce];

    /// The word of flags, metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Ec2Only => "ec2-only",
            Self::Enforce => "enforce",
        }
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

/// Everything that a decision may rest on, for one volume and one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// How much must be proved.
    pub mode: Mode,
    /// The attachment of the volume to the instance. Absent also when the volume does not exist.
    pub attachment: Fact<AttachmentFact>,
    /// The instance. Absent when EC2 knows no such instance: an answer that can be a late read, so it proves nothing.
    pub instance: Fact<InstanceFact>,
    /// What the node says of the volume. Absent when there is evidence that no node speaks for the instance.
    pub word: Fact<NodeWord>,
    /// Present when this driver has itself stopped or terminated the instance, and EC2 has acknowledged it.
    pub fence: Fact<()>,
    /// A person's order to detach whatever the rest says.
    pub broken_glass: Fact<BrokenGlass>,
}

/// When EC2 accepted an attach: since 1970-01-01T00:00:00Z. It is compared, never counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachTime {
    /// Whole seconds.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// An attachment, as EC2 shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentFact {
    /// Where it is.
    pub phase: Phase,
    /// When the attach was accepted. It tells one attachment of a volume to an instance from the next.
    pub since: Option<AttachTime>,
}

/// Where an attachment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// On its way to the instance, or there.
    Held,
    /// On its way off; `busy` included.
    Leaving,
    /// Off; EC2 shows the rest of it for moments.
    Off,
    /// A state that this version does not know.
    Strange,
}

/// An instance, as EC2 shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceFact {
    /// Whether it runs.
    pub power: Power,
    /// Present when its memory was saved at the stop: the guest goes on with its mounts when it is started.
    pub hibernation: Fact<()>,
}

/// The states of an instance (EC2 API reference, `InstanceState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    /// Being launched.
    Pending,
    /// Running.
    Running,
    /// Being terminated.
    ShuttingDown,
    /// Terminated.
    Terminated,
    /// Being stopped.
    Stopping,
    /// Stopped.
    Stopped,
    /// A state that this version does not know.
    Strange,
}

impl Power {
    /// EC2's name of it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Strange => "in a state that this driver does not know",
        }
    }

    /// Whether it is between two states, and comes to rest by itself.
    pub const fn is_transition(self) -> bool {
        matches!(self, Self::Pending | Self::Stopping | Self::ShuttingDown)
    }
}

/// What a node says of a volume. Only a word that is fresh is one; how fresh is judged by whoever gathers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeWord {
    /// The node is ready and does not use the volume.
    Released,
    /// The node uses the volume, or its orchestrator still lets it begin to.
    InUse,
    /// The node is not ready: what it said before proves nothing.
    NotReady,
}

/// A person's order, for exactly one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BrokenGlass {
    /// The instance that it names.
    pub instance: InstanceId,
    /// The attachment that it names, by the time when it was accepted.
    pub since: AttachTime,
    /// The instance that the decision is about.
    pub asked: InstanceId,
}
