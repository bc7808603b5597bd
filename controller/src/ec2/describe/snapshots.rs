//! Snapshots by id and by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_ec2::operation::describe_snapshots::builders::DescribeSnapshotsFluentBuilder;
use aws_sdk_ec2::types::Filter;
use ebs_csi_wire::SnapshotId;
use tokio::time::Instant;

use super::by_id::ById;
use super::page::{SdkPage, escape_wildcards, filter, read_all, read_pages};
use super::poller::Source;
use super::{SNAPSHOT_NAME_TAG, describe_by_ids, group_by_tag};
use crate::ec2::action::Action;
use crate::ec2::error::Ec2Error;
use crate::ec2::model::look_result::LookResult;
use crate::ec2::model::snapshot::Snapshot;
use crate::ec2::sdk::call::{Core, Tries};

/// Reads one page of snapshots.
pub(in crate::ec2) async fn snapshot_page(
    core: &Core,
    request: DescribeSnapshotsFluentBuilder,
    deadline: Instant,
    tries: Tries,
) -> Result<SdkPage<Snapshot>, Ec2Error> {
    let action = Action::DescribeSnapshots;
    core.call(action, deadline, tries, || {
        let request = request.clone();
        async move {
            let output = request.send().await.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            let entries = read_all(action, output.snapshots(), Snapshot::read)?;
            Ok((entries, output.next_token().map(str::to_owned)))
        }
    })
    .await
}

async fn own_snapshots(
    core: &Core,
    filters: Vec<Filter>,
    deadline: Instant,
) -> Result<Vec<Snapshot>, Ec2Error> {
    read_pages(Action::DescribeSnapshots, |token| {
        // Without an owner EC2 would search every public snapshot of the Region.
        let request = core
            .client
            .describe_snapshots()
            .owner_ids("self")
            .set_filters(Some(filters.clone()))
            .max_results(1000)
            .set_next_token(token);
        snapshot_page(core, request, deadline, Tries::One)
    })
    .await
}

/// Snapshots by id: those of this account, and those that another account shares with it.
pub(in crate::ec2) struct Snapshots(pub(in crate::ec2) Arc<Core>, pub(in crate::ec2) ById);

impl Source for Snapshots {
    type Key = SnapshotId;
    type Value = Snapshot;
    const ACTION: Action = Action::DescribeSnapshots;

    async fn fetch(
        &self,
        keys: &[SnapshotId],
        deadline: Instant,
    ) -> Result<BTreeMap<SnapshotId, LookResult<Snapshot>>, Ec2Error> {
        let Self(core, by_id) = self;
        let action = Self::ACTION;
        let ask = |ids| async move {
            let request = core.client.describe_snapshots().set_snapshot_ids(Some(ids));
            let output = request.send().await;
            let output = output.map_err(|e| Ec2Error::from_sdk(action, &e))?;
            read_all(action, output.snapshots(), Snapshot::read)
        };
        Ok(describe_by_ids((core, by_id), action, keys, deadline, ask).await)
    }
}

/// This account's snapshots by the name that the CO gave them. Several snapshots may have the same
/// name.
pub(in crate::ec2) struct SnapshotsByName(pub(in crate::ec2) Arc<Core>);

impl Source for SnapshotsByName {
    type Key = String;
    type Value = Vec<Snapshot>;
    const ACTION: Action = Action::DescribeSnapshots;

    async fn fetch(
        &self,
        keys: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, LookResult<Vec<Snapshot>>>, Ec2Error> {
        let values = keys.iter().map(|name| escape_wildcards(name));
        let filters = vec![filter(&format!("tag:{SNAPSHOT_NAME_TAG}"), values)];
        let found = own_snapshots(&self.0, filters, deadline).await?;
        Ok(group_by_tag(found, |snapshot| snapshot.tags.get(SNAPSHOT_NAME_TAG)))
    }
}
