//! The EC2 actions that the controller calls, a closed list, each with the rate that EC2 grants.

use std::fmt;

/// An EC2 action. `policy/iam` must allow exactly these actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Action {
    CreateVolume,
    CopyVolumes,
    DeleteVolume,
    AttachVolume,
    DetachVolume,
    ModifyVolume,
    CreateSnapshot,
    DeleteSnapshot,
    EnableFastSnapshotRestores,
    LockSnapshot,
    StopInstances,
    TerminateInstances,
    CreateTags,
    DeleteTags,
    DescribeVolumes,
    DescribeVolumesModifications,
    DescribeVolumeStatus,
    DescribeSnapshots,
    DescribeFastSnapshotRestores,
    DescribeLockedSnapshots,
    DescribeInstances,
    DescribeInstanceStatus,
    DescribeInstanceTypes,
    DescribeAvailabilityZones,
}

/// The numbers of a request token bucket: the size of a burst, and the sustained calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls that a full bucket allows at once.
    pub capacity: f64,
    /// Calls per second by which the bucket refills.
    pub refill: f64,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 24] = [
        Self::CreateVolume,
        Self::CopyVolumes,
        Self::DeleteVolume,
        Self::AttachVolume,
        Self::DetachVolume,
        Self::ModifyVolume,
        Self::CreateSnapshot,
        Self::DeleteSnapshot,
        Self::EnableFastSnapshotRestores,
        Self::LockSnapshot,
        Self::StopInstances,
        Self::TerminateInstances,
        Self::CreateTags,
        Self::DeleteTags,
        Self::DescribeVolumes,
        Self::DescribeVolumesModifications,
        Self::DescribeVolumeStatus,
        Self::DescribeSnapshots,
        Self::DescribeFastSnapshotRestores,
        Self::DescribeLockedSnapshots,
        Self::DescribeInstances,
        Self::DescribeInstanceStatus,
        Self::DescribeInstanceTypes,
        Self::DescribeAvailabilityZones,
    ];

    /// Returns the action's name, as in the API and in IAM.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateVolume => "CreateVolume",
            Self::CopyVolumes => "CopyVolumes",
            Self::DeleteVolume => "DeleteVolume",
            Self::AttachVolume => "AttachVolume",
            Self::DetachVolume => "DetachVolume",
            Self::ModifyVolume => "ModifyVolume",
            Self::CreateSnapshot => "CreateSnapshot",
            Self::DeleteSnapshot => "DeleteSnapshot",
            Self::EnableFastSnapshotRestores => "EnableFastSnapshotRestores",
            Self::LockSnapshot => "LockSnapshot",
            Self::StopInstances => "StopInstances",
            Self::TerminateInstances => "TerminateInstances",
            Self::CreateTags => "CreateTags",
            Self::DeleteTags => "DeleteTags",
            Self::DescribeVolumes => "DescribeVolumes",
            Self::DescribeVolumesModifications => "DescribeVolumesModifications",
            Self::DescribeVolumeStatus => "DescribeVolumeStatus",
            Self::DescribeSnapshots => "DescribeSnapshots",
            Self::DescribeFastSnapshotRestores => "DescribeFastSnapshotRestores",
            Self::DescribeLockedSnapshots => "DescribeLockedSnapshots",
            Self::DescribeInstances => "DescribeInstances",
            Self::DescribeInstanceStatus => "DescribeInstanceStatus",
            Self::DescribeInstanceTypes => "DescribeInstanceTypes",
            Self::DescribeAvailabilityZones => "DescribeAvailabilityZones",
        }
    }

    /// Returns whether the action changes nothing.
    pub fn is_read(self) -> bool {
        self.name().starts_with("Describe")
    }

    /// Returns whether sending the same request twice has the effect of sending it once.
    ///
    /// CreateVolume and CopyVolumes are idempotent by their client token (EC2 API reference,
    /// "Ensuring idempotency"), tag changes because they state the wanted result, and deletions
    /// because EC2 never issues an id twice (the second answer is "not found"). A second
    /// DetachVolume could end a newer attachment, and a second AttachVolume is answered with an
    /// error.
    pub fn is_idempotent(self) -> bool {
        self.is_read()
            || matches!(
                self,
                Self::CreateVolume
                    | Self::CopyVolumes
                    | Self::DeleteVolume
                    | Self::DeleteSnapshot
                    | Self::CreateTags
                    | Self::DeleteTags
            )
    }

    /// Returns the documented request bucket per account and Region (EC2 API reference, "Request
    /// throttling": capacity and refill rate).
    pub fn documented_rate(self) -> Rate {
        let (capacity, refill) = match self {
            Self::CreateVolume
            | Self::DeleteVolume
            | Self::CreateSnapshot
            | Self::DeleteSnapshot
            | Self::TerminateInstances => (100.0, 5.0),
            Self::CreateTags | Self::DeleteTags => (100.0, 10.0),
            Self::CopyVolumes
            | Self::AttachVolume
            | Self::DetachVolume
            | Self::ModifyVolume
            | Self::EnableFastSnapshotRestores
            | Self::LockSnapshot
            | Self::StopInstances => (50.0, 5.0),
            // The rate of non-mutating actions that are filtered or paginated, as all reads of this
            // crate are.
            Self::DescribeVolumes
            | Self::DescribeVolumesModifications
            | Self::DescribeVolumeStatus
            | Self::DescribeSnapshots
            | Self::DescribeFastSnapshotRestores
            | Self::DescribeLockedSnapshots
            | Self::DescribeInstances
            | Self::DescribeInstanceStatus
            | Self::DescribeInstanceTypes
            | Self::DescribeAvailabilityZones => (100.0, 20.0),
        };
        Rate { capacity, refill }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_describe_actions_read_and_names_are_unique() {
        let names: std::collections::BTreeSet<_> = Action::ALL.iter().map(|a| a.name()).collect();
        assert_eq!(names.len(), Action::ALL.len());
        for action in Action::ALL {
            assert_eq!(
                action.is_read(),
                format!("{action:?}").starts_with("Describe"),
                "{action}"
            );
            assert_eq!(action.name(), format!("{action:?}"));
        }
    }
}
