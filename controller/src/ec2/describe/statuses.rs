//! Status checks of volumes and instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;

use super::by_id::ById;
use super::describe_by_ids;
use super::page::read_all;
use super::poller::Source;
use crate::ec2::action::Action;
use crate::ec2::error::Ec2Error;
use crate::ec2::model::instance_status::InstanceStatus;
use crate::ec2::model::look_result::LookResult;
use crate::ec2::model::volume_status::VolumeStatus;
use crate::ec2::sdk::call::Core;

/// Volume status by volume.
#[derive(Clone)]
pub(in crate::ec2) struct Statuses(pub(in crate::ec2) Arc<Core>, pub(in crate::ec2) ById);

impl Source for Statuses {
    type Key = VolumeId;
    type Value = VolumeStatus;
    const ACTION: Action = Action::DescribeVolumeStatus;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, LookResult<VolumeStatus>>, Ec2Error> {
        let Self(core, by_id) = self;
        let action = Self::ACTION;
        let ask = |ids| async move {
            let request = core.client.describe_volume_status();
            let output = request.set_volume_ids(Some(ids)).send().await;
            let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            read_all(action, output.volume_statuses(), VolumeStatus::read)
        };
        Ok(describe_by_ids((core, by_id), action, keys, deadline, ask).await)
    }
}

/// The most instances that EC2 takes in one DescribeInstanceStatus (EC2 API reference,
/// `DescribeInstanceStatus`, `InstanceId.N`).
const MAX_STATUSES_PER_CALL: usize = 100;

/// Status checks of running instances.
#[derive(Clone)]
pub(in crate::ec2) struct InstanceStatuses(pub(in crate::ec2) Arc<Core>, pub(in crate::ec2) ById);

impl Source for InstanceStatuses {
    type Key = InstanceId;
    type Value = InstanceStatus;
    const ACTION: Action = Action::DescribeInstanceStatus;

    async fn fetch(
        &self,
        keys: &[InstanceId],
        deadline: Instant,
    ) -> Result<BTreeMap<InstanceId, LookResult<InstanceStatus>>, Ec2Error> {
        let Self(core, by_id) = self;
        let action = Self::ACTION;
        let ask = |ids| async move {
            let request = core.client.describe_instance_status();
            let output = request.set_instance_ids(Some(ids)).send().await;
            let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            read_all(action, output.instance_statuses(), InstanceStatus::read)
        };
        let mut answers = BTreeMap::new();
        for some in keys.chunks(MAX_STATUSES_PER_CALL) {
            let answered = describe_by_ids((core, by_id), action, some, deadline, ask).await;
            answers.extend(answered);
        }
        Ok(answers)
    }
}
