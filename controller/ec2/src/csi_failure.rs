//! Maps a failed call to EC2 to the failure of a CSI RPC, where the RPC has no more precise
//! mapping.

use ebs_csi_proto::{Condition, Failure};

use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind as Kind;

impl Ec2Error {
    /// Returns the condition of the failure.
    ///
    /// An error after which the effect may exist never maps to a final condition: a sidecar that
    /// reads "certainly not done" forgets the volume.
    pub fn condition(&self) -> Condition {
        match self.kind {
            Kind::Throttled
            | Kind::ModificationRunning
            | Kind::SnapshotRate
            | Kind::CopyQuota
            | Kind::TagConflict => Condition::Throttled,
            Kind::Unauthorized | Kind::Credential | Kind::AccountBlocked => Condition::NotPermitted,
            Kind::VolumeNotFound
            | Kind::SnapshotNotFound
            | Kind::InstanceNotFound
            | Kind::AttachmentNotFound
            | Kind::ModificationNotFound
            | Kind::MalformedId => Condition::NotFound,
            Kind::ZoneNotFound
            | Kind::InvalidParameter
            | Kind::InvalidCombination
            | Kind::UnknownVolumeType
            | Kind::Unsupported
            | Kind::ZoneMismatch
            | Kind::TagRefused
            | Kind::Key => Condition::InvalidField,
            Kind::SizeOutOfRange => Condition::CapacityOutOfRange,
            Kind::BadPageToken => Condition::BadStartingToken,
            Kind::VolumeInUse
            | Kind::SnapshotInUse
            | Kind::SnapshotLocked
            | Kind::ManagedByBackup
            | Kind::NotPermitted => Condition::InUse,
            Kind::IncorrectState
            | Kind::DeviceInUse
            | Kind::TokenMismatch
            | Kind::TokenSpent
            | Kind::Unwanted
            | Kind::Stale => Condition::OperationPending,
            Kind::AttachmentLimit => Condition::AttachLimit,
            Kind::VolumeQuota
            | Kind::IopsQuota
            | Kind::SnapshotQuota
            | Kind::SnapshotsPending
            | Kind::ModificationQuota
            | Kind::ModificationRate => Condition::QuotaExhausted,
            Kind::NoCapacity | Kind::TypeNotInZone => Condition::NoCapacityInTopology,
            Kind::ServerError | Kind::Unreachable | Kind::NoAnswer | Kind::Unreadable => {
                Condition::BackendDown
            }
            Kind::Deadline => Condition::DeadlinePassed,
            Kind::DryRun => Condition::Bug,
            Kind::Other if self.may_have_happened() => Condition::BackendDown,
            Kind::Other => Condition::Local,
        }
    }

    /// Returns the failure with another condition, where the RPC knows a better one.
    pub fn failure_as(&self, condition: Condition) -> Failure {
        Failure::new(condition, self.to_string())
    }

    /// Returns the failure of work that is not known to be done, or not done yet.
    pub fn pending(&self) -> Failure {
        self.failure_as(Condition::OperationPending)
    }
}

impl From<&Ec2Error> for Failure {
    fn from(error: &Ec2Error) -> Self {
        error.failure_as(error.condition())
    }
}

impl From<Ec2Error> for Failure {
    fn from(error: Ec2Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Action;
    use crate::error::Sent;

    fn error(kind: Kind, sent: Sent) -> Ec2Error {
        Ec2Error::new(kind, Action::AttachVolume, sent, "message")
    }

    /// A sidecar must never take such a failure for a call that certainly had no effect.
    #[test]
    fn failure_with_possible_effect_may_be_in_progress() {
        for kind in [Kind::ServerError, Kind::NoAnswer, Kind::Unreadable, Kind::Other] {
            let condition = error(kind, Sent::Maybe).condition();
            assert!(condition.may_be_in_progress(), "{kind:?}");
        }
    }

    #[test]
    fn failure_keeps_ec2_message_and_request_id() {
        let in_use = error(Kind::VolumeInUse, Sent::Answered);
        let failure = Failure::from(Ec2Error { request_id: Some("r-1".to_owned()), ..in_use });
        assert_eq!(failure.condition(), Condition::InUse);
        assert!(failure.text().contains("message") && failure.text().contains("r-1"));
    }
}
