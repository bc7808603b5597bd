//! CreateSnapshot.

use aws_sdk_ec2::types::ResourceType;
use ebs_csi_wire::VolumeId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::Tags;
use crate::model::sdk_field::tag_specifications;
use crate::model::snapshot::Snapshot;
use crate::sdk::call::{send, unreadable};

/// A snapshot to take. EC2 has no client token for it: a request that is sent twice makes two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateSnapshot {
    /// The volume to take the snapshot of.
    pub volume: VolumeId,
    /// A description in ASCII.
    pub description: String,
    /// The Outpost to keep the snapshot on.
    pub outpost_arn: Option<String>,
    /// The snapshot's tags.
    pub tags: Tags,
}

impl Ec2 {
    /// Takes a snapshot of the volume's content at the time when EC2 answers. Not idempotent: a
    /// request that is sent twice makes two snapshots.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look for the snapshot by name.
    pub async fn create_snapshot(
        &self,
        call: &Call,
        snapshot: &CreateSnapshot,
    ) -> Result<Snapshot, Ec2Error> {
        let action = Action::CreateSnapshot;
        self.core
            .send_change(call, action, || async {
                let tags = tag_specifications(ResourceType::Snapshot, &snapshot.tags);
                let request =
                    self.core.client.create_snapshot().volume_id(snapshot.volume.as_str());
                let request =
                    request.description(&snapshot.description).set_tag_specifications(tags);
                let output = send!(action, request.set_outpost_arn(snapshot.outpost_arn.clone()));
                Snapshot::read_created(&output).map_err(unreadable(action))
            })
            .await
    }
}
