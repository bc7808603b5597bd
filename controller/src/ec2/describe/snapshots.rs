//! Snapshots by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::page::{escape_wildcards, filter, read_all};
use super::poller::Source;
use super::{SNAPSHOT_NAME_TAG, describe_every_page, group_by_tag};
use crate::ec2::action::Action;
use crate::ec2::error::Ec2Error;
use crate::ec2::model::look_result::LookResult;
use crate::ec2::model::snapshot::Snapshot;
use crate::ec2::sdk::call::{Core, Tries, send};

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
        let (core, action) = (&self.0, Self::ACTION);
        let values = keys.iter().map(|name| escape_wildcards(name));
        let filters = &vec![filter(&format!("tag:{SNAPSHOT_NAME_TAG}"), values)];
        let found = describe_every_page(core, action, deadline, Tries::One, |token| async move {
            // Without an owner EC2 would search every public snapshot of the Region.
            let request = core.client.describe_snapshots().owner_ids("self").max_results(1000);
            let request = request.set_filters(Some(filters.clone())).set_next_token(token);
            let output = send!(action, request);
            let entries = read_all(action, output.snapshots(), Snapshot::read)?;
            Ok((entries, output.next_token().map(str::to_owned)))
        });
        Ok(group_by_tag(found.await?, |snapshot| snapshot.tags.get(SNAPSHOT_NAME_TAG)))
    }
}
