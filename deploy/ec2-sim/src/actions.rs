//! EC2's actions, one file each or a few that belong together.

mod attach_volume;
mod copy_volumes;
mod create_snapshot;
mod create_volume;
mod delete_snapshot;
mod delete_volume;
mod describe_instance_status;
mod describe_instance_types;
mod describe_instances;
mod describe_snapshots;
mod describe_volume_status;
mod describe_volumes;
mod describe_zones;
mod detach_volume;
mod fast_restores;
mod instance_power;
mod lock_snapshot;
mod modifications;
mod modify_volume;
mod permission;
mod quota;
mod select;
mod tagging;
mod volume_attribute;

pub use instance_power::{Power, power};

use crate::devices::Devices;
use crate::error::{ApiError, ApiResult};
use crate::fault::Fault;
use crate::iam::{Caller, Iam};
use crate::ids::{Ids, well_formed};
use crate::latency::Latency;
use crate::quotas::Quotas;
use crate::realm::Realm;
use crate::time::Millis;
use crate::wire::query::Params;

/// What stays the same for all calls.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The account's limits.
    pub quotas: Quotas,
    /// Least distance between snapshots of a volume, milliseconds.
    pub snapshot_interval_ms: u64,
    /// How long client tokens are remembered, milliseconds.
    pub token_retention_ms: u64,
    /// Whether ids that were never issued are malformed.
    pub strict_ids: bool,
}

/// One call under way.
pub struct Call<'a> {
    /// When it arrived.
    pub now: Millis,
    /// When its effect begins: about when its reply leaves.
    pub begin: Millis,
    /// The action.
    pub action: &'a str,
    /// Its parameters.
    pub params: &'a Params,
    /// Whose resources.
    pub realm: &'a mut Realm,
    /// Issues ids.
    pub ids: &'a mut Ids,
    /// How long things take.
    pub latency: &'a mut Latency,
    /// What appears on instances.
    pub devices: &'a mut dyn Devices,
    /// The faults that struck this call.
    pub faults: &'a [Fault],
    /// Who calls.
    pub caller: &'a Caller,
    /// Judges what they may do.
    pub iam: &'a Iam,
    /// Limits.
    pub rules: &'a Rules,
    /// Ids of what was made or changed, for the journal.
    pub effects: Vec<String>,
}

/// The actions that are known, with what answers them.
type Handler = fn(&mut Call<'_>) -> ApiResult<String>;

const ACTIONS: &[(&str, Handler)] = &[
    ("AttachVolume", attach_volume::attach_volume),
    ("CopyVolumes", copy_volumes::copy_volumes),
    ("CreateSnapshot", create_snapshot::create_snapshot),
    ("CreateTags", tagging::create_tags),
    ("CreateVolume", create_volume::create_volume),
    ("DeleteSnapshot", delete_snapshot::delete_snapshot),
    ("DeleteTags", tagging::delete_tags),
    ("DeleteVolume", delete_volume::delete_volume),
    (
        "DescribeAvailabilityZones",
        describe_zones::describe_availability_zones,
    ),
    ("DescribeFastSnapshotRestores", fast_restores::describe),
    (
        "DescribeInstanceStatus",
        describe_instance_status::describe_instance_status,
    ),
    (
        "DescribeInstanceTypes",
        describe_instance_types::describe_instance_types,
    ),
    ("DescribeInstances", describe_instances::describe_instances),
    (
        "DescribeLockedSnapshots",
        lock_snapshot::describe_locked_snapshots,
    ),
    ("DescribeSnapshots", describe_snapshots::describe_snapshots),
    ("DescribeTags", tagging::describe_tags),
    (
        "DescribeVolumeStatus",
        describe_volume_status::describe_volume_status,
    ),
    ("DescribeVolumes", describe_volumes::describe_volumes),
    (
        "DescribeVolumesModifications",
        modifications::describe_volumes_modifications,
    ),
    ("DetachVolume", detach_volume::detach_volume),
    ("DisableFastSnapshotRestores", fast_restores::disable),
    ("EnableFastSnapshotRestores", fast_restores::enable),
    ("LockSnapshot", lock_snapshot::lock_snapshot),
    ("ModifyVolume", modify_volume::modify_volume),
    (
        "ModifyVolumeAttribute",
        volume_attribute::modify_volume_attribute,
    ),
    ("StartInstances", instance_power::start_instances),
    ("StopInstances", instance_power::stop_instances),
    ("TerminateInstances", instance_power::terminate_instances),
];

/// The names of all actions.
pub fn names() -> impl Iterator<Item = &'static str> {
    ACTIONS.iter().map(|(name, _)| *name)
}

/// Whether EC2 has the action here.
pub fn known(action: &str) -> bool {
    ACTIONS.binary_search_by(|(n, _)| (*n).cmp(action)).is_ok()
}

/// Answers a call with its members, or an error.
///
/// # Errors
/// Whatever the action answers.
pub fn dispatch(call: &mut Call<'_>) -> ApiResult<String> {
    match ACTIONS.binary_search_by(|(n, _)| (*n).cmp(call.action)) {
        Ok(i) => ACTIONS[i].1(call),
        Err(_) => Err(invalid_action(call.action)),
    }
}

/// The answer to an action that EC2 does not have.
pub fn invalid_action(action: &str) -> ApiError {
    ApiError::client(
        "InvalidAction",
        format!("The action {action} is not valid for this web service."),
    )
}

/// Whether a Describe call names nothing, filters nothing and asks for no page: it draws on the smaller bucket.
pub fn unfiltered(params: &Params) -> bool {
    params.pairs().all(|(k, _)| {
        !k.starts_with("Filter.") && !k.contains("Id.") && !matches!(k, "MaxResults" | "NextToken")
    })
}

impl Call<'_> {
    /// Whether the reply may show a resource that is there.
    fn shows(&self, id: &str) -> bool {
        !self
            .faults
            .iter()
            .any(|f| matches!(f, Fault::Unseen { id: unseen } if unseen == id))
    }

    /// Answers a dry run. Where it stands in an action is the place that EC2 gives it in its order of tests.
    ///
    /// # Errors
    /// `DryRunOperation` when it is one.
    fn dry_run(&self) -> ApiResult<()> {
        match self.params.boolean("DryRun")? {
            Some(true) => Err(ApiError::dry_run()),
            _ => Ok(()),
        }
    }

    /// Notes that a dry run was asked for, to be answered later.
    fn wants_dry_run(&self) -> ApiResult<bool> {
        Ok(self.params.boolean("DryRun")?.unwrap_or(false))
    }

    /// Whether an id can have been issued.
    fn id_ok(&self, id: &str, prefix: &str) -> bool {
        well_formed(id, prefix)
            && (!self.rules.strict_ids
                || prefix == "i"
                || self.ids.can_have_issued(id)
                || self.realm.volumes().contains_key(id))
    }

    /// A volume id in a single-id call other than DeleteVolume and ModifyVolume.
    fn check_volume_id(&self, id: &str) -> ApiResult<()> {
        if self.id_ok(id, "vol") {
            return Ok(());
        }
        // unverified: the wording of DescribeVolumes, with this parameter's name.
        Err(ApiError::value(format!(
            "Value ({id}) for parameter volumeId is invalid. Expected: 'vol-...'."
        )))
    }

    /// A snapshot id. Wording unverified.
    fn check_snapshot_id(&self, id: &str) -> ApiResult<()> {
        if self.id_ok(id, "snap") {
            return Ok(());
        }
        Err(ApiError::client(
            "InvalidSnapshotID.Malformed",
            format!("Invalid id: \"{id}\" (expecting \"snap-...\")"),
        ))
    }

    /// An instance id. Wording unverified.
    fn check_instance_id(&self, id: &str) -> ApiResult<()> {
        if self.id_ok(id, "i") {
            return Ok(());
        }
        Err(ApiError::client(
            "InvalidInstanceID.Malformed",
            format!("Invalid id: \"{id}\""),
        ))
    }

    /// A zone's name, from its name or its id.
    ///
    /// # Errors
    /// `InvalidZone.NotFound`, `InvalidParameterCombination` for both, `MissingParameter` for neither.
    fn zone(&self, by_name: Option<&str>, by_id: Option<&str>) -> ApiResult<String> {
        let found = match (by_name, by_id) {
            (Some(_), Some(_)) => {
                // unverified wording.
                return Err(ApiError::combination(
                    "The parameters AvailabilityZone and AvailabilityZoneId cannot be specified together",
                ));
            }
            (None, None) => return Err(ApiError::missing("zone")),
            (Some(name), None) => (name, self.realm.zones.iter().find(|z| z.name == name)),
            (None, Some(id)) => (id, self.realm.zones.iter().find(|z| z.id == id)),
        };
        match found {
            (_, Some(zone)) => Ok(zone.name.clone()),
            (asked, None) => Err(ApiError::client(
                "InvalidZone.NotFound",
                format!("The zone '{asked}' does not exist."),
            )),
        }
    }

    /// Turns an input or output error of the devices into EC2's answer for what should not happen.
    fn internal(error: &std::io::Error) -> ApiError {
        tracing::error!(%error, "the simulated devices failed");
        ApiError::new(500, "InternalError", "An internal error has occurred")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_table_is_sorted_for_binary_search() {
        assert!(ACTIONS.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn call_without_ids_filters_or_page_is_unfiltered() {
        for (query, yes) in [
            ("Action=DescribeVolumes&Version=1", true),
            ("VolumeId.1=vol-1", false),
            ("MaxResults=5", false),
            ("Filter.1.Name=status&Filter.1.Value.1=x", false),
            ("Owner.1=self", true),
        ] {
            assert_eq!(unfiltered(&Params::parse(query.as_bytes())), yes, "{query}");
        }
    }
}
