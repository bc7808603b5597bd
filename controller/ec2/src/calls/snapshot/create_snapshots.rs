//! CreateSnapshots.

use aws_sdk_ec2::types::{InstanceSpecification, ResourceType};
use ebs_csi_wire::{InstanceId, VolumeId};

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::read_all;
use crate::error::Ec2Error;
use crate::model::Tags;
use crate::model::sdk_field::tag_specifications;
use crate::model::snapshot::Snapshot;
use crate::sdk::call::send;

/// Snapshots to take of an instance's volumes at one moment. EC2 takes one of each volume that is
/// attached and not excluded, and has no client token: a request that is sent twice makes two sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshots {
    /// The instance, running or stopped.
    pub instance: InstanceId,
    /// Whether the root volume is left out.
    pub exclude_root: bool,
    /// The other volumes that are left out, at most [`CreateSnapshots::MAX_EXCLUDED`].
    pub excluded: Vec<VolumeId>,
    /// A description in ASCII.
    pub description: String,
    /// The tags of each snapshot.
    pub tags: Tags,
}

impl CreateSnapshots {
    /// The most volumes that one request can exclude (EC2 API reference, `InstanceSpecification`).
    pub const MAX_EXCLUDED: usize = 40;
}

impl Ec2 {
    /// Takes the snapshots. Not idempotent.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshots by name.
    pub async fn create_snapshots(
        &self,
        call: &Call,
        snapshots: &CreateSnapshots,
    ) -> Result<Vec<Snapshot>, Ec2Error> {
        let action = Action::CreateSnapshots;
        let excluded: Vec<_> = snapshots.excluded.iter().map(ToString::to_string).collect();
        let instance = InstanceSpecification::builder()
            .instance_id(snapshots.instance.as_str())
            .exclude_boot_volume(snapshots.exclude_root)
            .set_exclude_data_volume_ids((!excluded.is_empty()).then_some(excluded))
            .build();
        self.core
            .send_change(call, action, || async {
                let tags = tag_specifications(ResourceType::Snapshot, &snapshots.tags);
                let request = self.core.client.create_snapshots();
                let request = request.instance_specification(instance.clone());
                let request = request.description(&snapshots.description);
                let output = send!(action, request.set_tag_specifications(tags));
                read_all(action, output.snapshots(), Snapshot::read_created_together)
            })
            .await
    }
}
