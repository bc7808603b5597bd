//! The closed list of ways a CSI call can fail.

use std::fmt;

/// A condition of the spec's error tables, or one of ours where the tables are silent.
///
/// A gRPC code is a statement about state: sidecars and kubelet read some codes as "may still be in progress". So a condition is
/// chosen for what is true of the volume, and [`Condition::code`](crate::Condition::code) alone decides the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A required field is empty.
    MissingField,
    /// A field has a value that can never be right.
    InvalidField,
    /// Well formed, but not something this driver offers.
    Unsupported,
    /// The volume, snapshot, node or source does not exist.
    NotFound,
    /// It exists with other properties than asked for.
    Incompatible,
    /// In use by something: delete or detach is not possible now.
    InUse,
    /// Published at another node.
    PublishedElsewhere,
    /// A step that must come first has not happened (for example publish before stage).
    NotPrepared,
    /// What is on the disk forbids it: never formatted, never mounted over.
    ContentRefused,
    /// The process cannot serve yet.
    NotReady,
    /// The capacity asked for cannot be given.
    CapacityOutOfRange,
    /// The same volume has another operation running, or the outcome of an earlier one is not known yet.
    OperationPending,
    /// A listing token that is not valid (any more).
    BadStartingToken,
    /// The node has no attachment slot left.
    AttachLimit,
    /// An account quota is used up.
    QuotaExhausted,
    /// The zone has no capacity for it.
    NoCapacityInTopology,
    /// EC2 asks to slow down.
    Throttled,
    /// EC2 or STS does not answer, or answers with a server error.
    BackendDown,
    /// The mount-helper does not answer.
    HelperDown,
    /// The time that the caller gave has passed; the work goes on.
    DeadlinePassed,
    /// Not offered by this process.
    Unimplemented,
    /// AWS refused the driver's own role or credential.
    NotPermitted,
    /// The operation was tried and a local step failed; nothing of it is left behind.
    Local,
    /// A fault of the driver itself.
    Bug,
}

impl Condition {
    /// Every condition, for tests that must cover all.
    pub const ALL: [Self; 24] = [
        Self::MissingField,
        Self::InvalidField,
        Self::Unsupported,
        Self::NotFound,
        Self::Incompatible,
        Self::InUse,
        Self::PublishedElsewhere,
        Self::NotPrepared,
        Self::ContentRefused,
        Self::NotReady,
        Self::CapacityOutOfRange,
        Self::OperationPending,
        Self::BadStartingToken,
        Self::AttachLimit,
        Self::QuotaExhausted,
        Self::NoCapacityInTopology,
        Self::Throttled,
        Self::BackendDown,
        Self::HelperDown,
        Self::DeadlinePassed,
        Self::Unimplemented,
        Self::NotPermitted,
        Self::Local,
        Self::Bug,
    ];
}

/// Why a CSI call failed: the condition, and a text for the person who reads it.
///
/// The text says what, why, and the next step. It lands in events and object statuses, so it holds no secret and no timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    condition: Condition,
    text: String,
}

impl Failure {
    /// A failure with a text of its own.
    pub fn new(condition: Condition, text: impl Into<String>) -> Self {
        Self {
            condition,
            text: text.into(),
        }
    }

    /// A required field is empty.
    pub fn missing(field: &str) -> Self {
        Self::new(
            Condition::MissingField,
            format!("{field} is required and was empty"),
        )
    }

    /// A field has a value that can never be right; `reason` names the limit and the next step.
    pub fn invalid(field: &str, reason: impl fmt::Display) -> Self {
        Self::new(Condition::InvalidField, format!("{field}: {reason}"))
    }

    /// `kind` ("volume", "snapshot", "node") with this id does not exist.
    pub fn not_found(kind: &str, id: impl fmt::Display) -> Self {
        Self::new(Condition::NotFound, format!("{kind} {id} does not exist"))
    }

    /// An RPC that this process does not offer.
    pub fn unimplemented(rpc: &str) -> Self {
        Self::new(
            Condition::Unimplemented,
            format!("{rpc} is not offered by this process"),
        )
    }

    /// The condition.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same condition, with words put before the text.
    #[must_use]
    pub fn context(mut self, before: impl fmt::Display) -> Self {
        self.text = format!("{before}: {}", self.text);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}
