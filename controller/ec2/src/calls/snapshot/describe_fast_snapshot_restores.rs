//! DescribeFastSnapshotRestores.

use aws_sdk_ec2::types::FastSnapshotRestoreStateCode as State;
use ebs_csi_wire::SnapshotId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::filter;
use crate::error::Ec2Error;
use crate::sdk::call::send;

impl Ec2 {
    /// Returns the zones in which fast restores of the snapshot are enabled or being enabled.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn fast_restore_zones(
        &self,
        call: &Call,
        id: &SnapshotId,
    ) -> Result<Vec<String>, Ec2Error> {
        let action = Action::DescribeFastSnapshotRestores;
        self.core
            .read(call, action, || async {
                let filter = filter("snapshot-id", [id.to_string()]);
                let request = self.core.client.describe_fast_snapshot_restores().filters(filter);
                let output = send!(action, request);
                let is_on = |state: Option<&State>| {
                    matches!(state, Some(State::Enabling | State::Optimizing | State::Enabled))
                };
                let restores = output.fast_snapshot_restores().iter();
                Ok(restores
                    .filter(|restore| is_on(restore.state()))
                    .filter_map(|restore| restore.availability_zone().map(str::to_owned))
                    .collect())
            })
            .await
    }
}
