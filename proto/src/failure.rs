//! The closed list of ways a CSI call can fail.

use std::fmt;

use ebs_csi_wire::listed_enum;

listed_enum! {
    /// A condition of the spec's error tables, or one of this driver's where the tables are silent.
    ///
    /// A gRPC code is a statement about state: sidecars and kubelet read some codes as "may still
    /// be in progress". Callers therefore choose a condition that is true of the volume, and
    /// [`Condition::code`](crate::Condition::code) alone decides the code.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Condition {
        /// A required field is empty.
        MissingField,
        /// A field has a value that can never be valid.
        InvalidField,
        /// The request is well formed, but this driver does not support it.
        Unsupported,
        /// The volume, snapshot, node or source does not exist.
        NotFound,
        /// The object exists with properties that differ from the request.
        Incompatible,
        /// The object is in use: delete, detach or growth is not possible now.
        InUse,
        /// The volume is published at another node.
        PublishedElsewhere,
        /// A step that must come first has not happened (for example publish before stage).
        NotPrepared,
        /// The content of the disk forbids the operation: such content is never formatted and never
        /// mounted over.
        ContentRefused,
        /// The process cannot serve yet.
        NotReady,
        /// The requested capacity cannot be provided.
        CapacityOutOfRange,
        /// Another operation on the same volume is running, or the outcome of an earlier one is not
        /// known yet.
        OperationPending,
        /// A listing token that is not valid, or no longer valid.
        BadStartingToken,
        /// The node has no attachment slot left.
        AttachLimit,
        /// An account quota is used up.
        QuotaExhausted,
        /// The zone has no capacity for the volume.
        NoCapacityInTopology,
        /// EC2 asks to slow down.
        Throttled,
        /// EC2 or STS does not answer, or answers with a server error.
        BackendDown,
        /// The mount-helper does not answer.
        HelperDown,
        /// A fact about the node that the answer needs is not known yet.
        FactsUnknown,
        /// The caller's deadline has passed; the work continues.
        DeadlinePassed,
        /// This process does not offer the call.
        Unimplemented,
        /// AWS refused the driver's own role or credential.
        NotPermitted,
        /// The operation was tried and a local step failed; no partial result remains.
        Local,
        /// A defect of the driver itself.
        Bug,
    }
}

/// Why a CSI call failed: the condition, and a text for the reader.
///
/// The text says what failed, why, and what to do next. It appears in events and object statuses,
/// so it holds no secret and no timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    condition: Condition,
    text: String,
}

impl Failure {
    /// Creates a failure with its own text.
    pub fn new(condition: Condition, text: impl Into<String>) -> Self {
        Self { condition, text: text.into() }
    }

    /// Creates a failure of [`Condition::OperationPending`].
    pub fn pending(text: impl Into<String>) -> Self {
        Self::new(Condition::OperationPending, text)
    }

    /// Creates a failure for a required field that is empty.
    pub fn missing(field: &str) -> Self {
        Self::new(Condition::MissingField, format!("{field} is required and was empty"))
    }

    /// Creates a failure for a field with a value that can never be valid; `reason` names the limit
    /// and the next step.
    pub fn invalid(field: &str, reason: impl fmt::Display) -> Self {
        Self::new(Condition::InvalidField, format!("{field}: {reason}"))
    }

    /// Creates a failure for a `kind` ("volume", "snapshot", "node") whose id does not exist.
    pub fn not_found(kind: &str, id: impl fmt::Display) -> Self {
        Self::new(Condition::NotFound, format!("{kind} {id} does not exist"))
    }

    /// Creates a failure for an RPC that this process does not offer.
    pub fn unimplemented(rpc: &str) -> Self {
        Self::new(Condition::Unimplemented, format!("{rpc} is not offered by this process"))
    }

    /// Returns the condition.
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the same condition with `before` in front of the text.
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
