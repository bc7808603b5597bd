//! EC2's actions.

mod attachments;
mod describe_query;
mod describe_volumes;
mod instances;
mod modify_volume;
mod permission;
mod quota_check;
mod render;
mod snapshot_storage;
mod snapshots;
mod tagging;
mod volumes;

pub use instances::Power;
pub(crate) use instances::change;

use crate::devices::LoopDevices;
use crate::faults::Fault;
use crate::iam::{Caller, Iam};
use crate::limits::Quotas;
use crate::state::{Ids, Realm, well_formed};
use crate::time::{Latency, Millis};
use crate::wire::{ApiError, ApiResult, Params, refuse, refuse_combination, refuse_value};

pub(crate) struct Call<'a> {
    pub now: Millis,
    /// The time at which the effect of the call begins, which is about when the reply is sent.
    pub(crate) begin: Millis,
    pub action: &'a str,
    pub(crate) params: &'a Params,
    /// The state of the account and Region that the call addresses.
    pub realm: &'a mut Realm,
    pub ids: &'a mut Ids,
    pub latency: &'a mut Latency,
    pub devices: Option<&'a LoopDevices>,
    pub faults: &'a [Fault],
    pub(crate) caller: &'a Caller,
    pub iam: &'a Iam,
    pub quotas: &'a Quotas,
    /// The ids of created or changed resources, for the journal.
    pub effects: Vec<String>,
}

pub(crate) type Handler = fn(&mut Call<'_>) -> ApiResult<String>;

/// Each action's name, what answers it, and a call that EC2 accepts, as a query that has
/// `{volume}`, `{snapshot}` and `{instance}` in the place of ids.
const ACTIONS: &[(&str, Handler, &str)] = &[
    (
        "AttachVolume",
        attachments::attach,
        "VolumeId={volume}&InstanceId={instance}&Device=/dev/xvdba",
    ),
    ("CopyVolumes", volumes::copy, "SourceVolumeId={volume}&VolumeType=gp3"),
    ("CreateSnapshot", snapshots::create, "VolumeId={volume}"),
    (
        "CreateSnapshots",
        snapshots::create_set,
        "InstanceSpecification.InstanceId={instance}&InstanceSpecification.ExcludeBootVolume=false",
    ),
    ("CreateTags", tagging::create_tags, "ResourceId.1={volume}&Tag.1.Key=a&Tag.1.Value=b"),
    ("CreateVolume", volumes::create, "AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3"),
    ("DeleteSnapshot", snapshots::delete, "SnapshotId={snapshot}"),
    ("DeleteTags", tagging::delete_tags, "ResourceId.1={volume}&Tag.1.Key=a"),
    ("DeleteVolume", volumes::delete, "VolumeId={volume}"),
    ("DescribeAvailabilityZones", instances::zones, ""),
    ("DescribeFastSnapshotRestores", snapshot_storage::describe_fast, ""),
    ("DescribeInstanceStatus", instances::status, ""),
    ("DescribeInstanceTypes", instances::types, ""),
    ("DescribeInstances", instances::instances, ""),
    ("DescribeLockedSnapshots", snapshot_storage::describe_locked, ""),
    ("DescribeSnapshots", snapshots::describe, ""),
    ("DescribeVolumeStatus", describe_volumes::status, ""),
    ("DescribeVolumes", describe_volumes::volumes, ""),
    ("DescribeVolumesModifications", describe_volumes::modifications, ""),
    ("DetachVolume", attachments::detach, "VolumeId={volume}&InstanceId={instance}"),
    (
        "EnableFastSnapshotRestores",
        snapshot_storage::enable,
        "SourceSnapshotId.1={snapshot}&AvailabilityZone.1=us-east-1a",
    ),
    (
        "LockSnapshot",
        snapshot_storage::lock,
        "SnapshotId={snapshot}&LockMode=governance&LockDuration=2",
    ),
    ("ModifySnapshotTier", snapshot_storage::archive, "SnapshotId={snapshot}&StorageTier=archive"),
    ("ModifyVolume", modify_volume::answer, "VolumeId={volume}"),
    (
        "RestoreSnapshotTier",
        snapshot_storage::restore,
        "SnapshotId={snapshot}&PermanentRestore=true",
    ),
    ("StopInstances", instances::stop_instances, "InstanceId.1={instance}"),
    ("TerminateInstances", instances::terminate_instances, "InstanceId.1={instance}"),
    ("UnlockSnapshot", snapshot_storage::unlock, "SnapshotId={snapshot}"),
];

/// Returns the name of each action with a call that EC2 accepts, as a query that has `{volume}`,
/// `{snapshot}` and `{instance}` in the place of ids.
pub fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    ACTIONS.iter().map(|(name, _, example)| (*name, *example))
}

/// Returns what answers a call of this action with the members of the reply, or with an error.
pub(crate) fn handler(action: &str) -> ApiResult<Handler> {
    match ACTIONS.iter().find(|(name, ..)| *name == action) {
        Some((_, answer, _)) => Ok(*answer),
        None => refuse!("InvalidAction", "The action {action} is not valid for this web service."),
    }
}

impl Call<'_> {
    /// Returns whether the reply may show an existing resource; [`Fault::Unseen`] hides a resource.
    fn shows(&self, id: &str) -> bool {
        !self.faults.iter().any(|f| matches!(f, Fault::Unseen { id: unseen } if unseen == id))
    }

    /// Returns what `pick` finds in the last fault for which it finds something.
    fn fault<T>(&self, pick: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        self.faults.iter().rev().find_map(pick)
    }

    /// Ends a dry run. Each action calls this function at the point where EC2 itself checks
    /// `DryRun`.
    fn dry_run(&self) -> ApiResult<()> {
        match self.params.boolean("DryRun")? {
            Some(true) => Err(ApiError::dry_run()),
            _ => Ok(()),
        }
    }

    /// Checks a volume id in a single-id call other than DeleteVolume and ModifyVolume.
    fn check_volume_id(id: &str) -> ApiResult<()> {
        if !well_formed(id, "vol") {
            // unverified: the wording of DescribeVolumes, with this parameter's name.
            refuse_value!("Value ({id}) for parameter volumeId is invalid. Expected: 'vol-...'.");
        }
        Ok(())
    }

    /// Checks a snapshot id. Wording unverified.
    fn check_snapshot_id(id: &str) -> ApiResult<()> {
        if !well_formed(id, "snap") {
            let message = format!("Invalid id: \"{id}\" (expecting \"snap-...\")");
            return Err(ApiError::client("InvalidSnapshotID.Malformed", message));
        }
        Ok(())
    }

    /// Checks an instance id. Wording unverified.
    fn check_instance_id(id: &str) -> ApiResult<()> {
        if !well_formed(id, "i") {
            refuse!("InvalidInstanceID.Malformed", "Invalid id: \"{id}\"");
        }
        Ok(())
    }

    fn zone(&self, by_name: Option<&str>, by_id: Option<&str>) -> ApiResult<String> {
        let zones = &self.realm.zones;
        let (given, found) = match (by_name, by_id) {
            // unverified wording.
            (Some(_), Some(_)) => refuse_combination!(
                "The parameters AvailabilityZone and AvailabilityZoneId cannot be specified together"
            ),
            (None, None) => return Err(ApiError::missing("zone")),
            (Some(name), None) => (name, zones.iter().find(|z| z.name == name)),
            (None, Some(id)) => (id, zones.iter().find(|z| z.id == id)),
        };
        match found {
            Some(zone) => Ok(zone.name.clone()),
            None => refuse!("InvalidZone.NotFound", "The zone '{given}' does not exist."),
        }
    }

    /// Does something with the data of volumes, if they have any. Logs an I/O error and returns
    /// EC2's `InternalError`, whose message says that the simulator failed.
    fn on_devices(&self, f: impl FnOnce(&LoopDevices) -> std::io::Result<()>) -> ApiResult<()> {
        self.devices.map_or(Ok(()), f).map_err(|error| {
            tracing::error!(%error, "the simulated devices failed");
            let message =
                format!("An internal error has occurred: the simulated devices failed: {error}");
            ApiError::new(500, "InternalError", message)
        })
    }
}
