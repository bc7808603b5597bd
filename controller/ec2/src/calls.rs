//! The EC2 actions that the controller calls, a closed list with one row for each. `policy/iam`
//! allows exactly these actions. The calls are in the files of this folder, those of Describe
//! actions that are polled in `describe.rs`.

mod create_volume;
mod describe_availability_zones;
mod instance;
mod snapshot;
mod tags;
mod volume;

pub use create_volume::{CreateVolume, IopsQuestion, MaxIops};
pub use describe_availability_zones::{Zone, ZoneKind};
pub use instance::PowerOff;
pub use snapshot::{CreateSnapshot, CreateSnapshots, LockSnapshot, Locked};
pub use volume::{Force, ModifyVolume};

// The rates of reads are those of non-mutating actions that are filtered or paginated, as all reads
// of this crate are.
//
// CreateVolume and CopyVolumes are idempotent by their client token (EC2 API reference, "Ensuring
// idempotency"), tag changes because they state the wanted result, and deletions because EC2 never
// issues an id twice (the second answer is "not found"). A second DetachVolume could end a newer
// attachment, and a second AttachVolume is answered with an error.
crate::action::actions! {
    /// Create and restore a volume; as a dry run, learn the maximum IOPS of a type in a zone.
    CreateVolume: Idempotent, 100.0, 5.0;
    /// Clone a volume.
    CopyVolumes: Idempotent, 50.0, 5.0;
    /// Delete a volume.
    DeleteVolume: Idempotent, 100.0, 5.0;
    /// Publish, on `volume/*` and `instance/*`.
    AttachVolume: Once, 50.0, 5.0;
    /// Unpublish, on `volume/*` and `instance/*`.
    DetachVolume: Once, 50.0, 5.0;
    /// Expand, change type or performance.
    ModifyVolume: Once, 50.0, 5.0;
    /// Take a snapshot.
    CreateSnapshot: Once, 100.0, 5.0;
    /// Take snapshots of several volumes of one instance at one moment, with
    /// `--enable-group-snapshots`.
    CreateSnapshots: Once, 100.0, 5.0;
    /// Delete a snapshot.
    DeleteSnapshot: Idempotent, 100.0, 5.0;
    /// Only when a VolumeSnapshotClass asks for fast restores.
    EnableFastSnapshotRestores: Once, 50.0, 5.0;
    /// Only when a VolumeSnapshotClass asks for a lock.
    LockSnapshot: Once, 50.0, 5.0;
    /// A fence, with `--safe-detach-fence`; as a dry run before each.
    StopInstances: Once, 50.0, 5.0;
    /// A fence, with `--safe-detach-fence`; as a dry run before each.
    TerminateInstances: Once, 100.0, 5.0;
    /// Tags of new resources (condition `ec2:CreateAction`); with a VolumeAttributesClass also on
    /// existing volumes.
    CreateTags: Idempotent, 100.0, 10.0;
    /// A VolumeAttributesClass that deletes tags.
    DeleteTags: Idempotent, 100.0, 10.0;
    /// Wait for a state; find by tag what a request with a lost reply created; list.
    DescribeVolumes: Read, 100.0, 20.0;
    /// Wait for a modification.
    DescribeVolumesModifications: Read, 100.0, 20.0;
    /// Wait until a restored volume is initialized, where a StorageClass asks for it; volume
    /// health.
    DescribeVolumeStatus: Read, 100.0, 20.0;
    /// Find by name, list, readiness; the encryption and size of a snapshot that is restored; the
    /// owner of an attached volume's snapshot.
    DescribeSnapshots: Read, 100.0, 20.0;
    /// Whether a snapshot lacks its fast restores, once after a restart; without this permission
    /// they are set again.
    DescribeFastSnapshotRestores: Read, 100.0, 20.0;
    /// Whether a snapshot lacks its lock, once after a restart; without this permission it is set
    /// again.
    DescribeLockedSnapshots: Read, 100.0, 20.0;
    /// Which device names are taken; the volume behind a device of the node; the zone of an Outpost
    /// that is named alone.
    DescribeInstances: Read, 100.0, 20.0;
    /// Whether EC2's status checks of a running instance fail: when node-lifecycle asks for them,
    /// and before a fence that is limited to impaired instances.
    DescribeInstanceStatus: Read, 100.0, 20.0;
    /// How many EBS cards a type has.
    DescribeInstanceTypes: Read, 100.0, 20.0;
    /// A zone where the request names none; as a dry run, the check behind Probe.
    DescribeAvailabilityZones: Read, 100.0, 20.0;
}
