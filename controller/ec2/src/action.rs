//! The EC2 actions that the controller calls, a closed list, each with the rate that EC2 grants.

use std::fmt;

/// The numbers of a request token bucket: the size of a burst, and the sustained calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls that a full bucket allows at once.
    pub capacity: f64,
    /// Calls per second by which the bucket refills.
    pub refill: f64,
}

/// Makes the closed list of actions from one row for each: its name, and the documented capacity
/// and refill rate of its bucket.
macro_rules! actions {
    ($($name:ident: $capacity:literal, $refill:literal;)*) => {
        /// An EC2 action. `policy/iam` must allow exactly these actions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Action { $($name),* }

        impl Action {
            /// Every action.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// Returns the action's name, as in the API and in IAM.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// Returns the documented request bucket per account and Region (EC2 API reference,
            /// "Request throttling").
            pub fn documented_rate(self) -> Rate {
                match self {
                    $(Self::$name => Rate { capacity: $capacity, refill: $refill }),*
                }
            }
        }
    };
}

// The rates of reads are those of non-mutating actions that are filtered or paginated, as all reads
// of this crate are.
actions! {
    CreateVolume: 100.0, 5.0;
    CopyVolumes: 50.0, 5.0;
    DeleteVolume: 100.0, 5.0;
    AttachVolume: 50.0, 5.0;
    DetachVolume: 50.0, 5.0;
    ModifyVolume: 50.0, 5.0;
    CreateSnapshot: 100.0, 5.0;
    DeleteSnapshot: 100.0, 5.0;
    EnableFastSnapshotRestores: 50.0, 5.0;
    LockSnapshot: 50.0, 5.0;
    StopInstances: 50.0, 5.0;
    TerminateInstances: 100.0, 5.0;
    CreateTags: 100.0, 10.0;
    DeleteTags: 100.0, 10.0;
    DescribeVolumes: 100.0, 20.0;
    DescribeVolumesModifications: 100.0, 20.0;
    DescribeVolumeStatus: 100.0, 20.0;
    DescribeSnapshots: 100.0, 20.0;
    DescribeFastSnapshotRestores: 100.0, 20.0;
    DescribeLockedSnapshots: 100.0, 20.0;
    DescribeInstances: 100.0, 20.0;
    DescribeInstanceStatus: 100.0, 20.0;
    DescribeInstanceTypes: 100.0, 20.0;
    DescribeAvailabilityZones: 100.0, 20.0;
}

impl Action {
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
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
