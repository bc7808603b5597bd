//! DescribeSnapshots.

use crate::actions::describe_query::Describe;
use crate::actions::{ActionRow, Call, render};
use crate::state::{Realm, Snapshot};
use crate::wire::{ApiError, ApiResult};

pub(crate) const ROWS: &[ActionRow] = &[("DescribeSnapshots", answer, "")];

static DESCRIBE: Describe<Snapshot> = Describe {
    ids: ("SnapshotId", "snapshotIdsSet"),
    check_id: Call::check_snapshot_id,
    all: Realm::snapshots,
    missing: ApiError::no_snapshots,
    fields: &[
        ("snapshot-id", |s| vec![s.id.clone()]),
        ("tag-key", |_| Vec::new()),
        ("volume-id", |s| vec![s.volume.clone()]),
    ],
    id_filter: "snapshot-id",
    page_sizes: (5, 1000),
    set: "snapshotSet",
};

fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let (owners, realm) = (call.params.list("Owner"), &*call.realm);
    let query = DESCRIBE.parse(call)?;
    // All simulated snapshots belong to this account, so a query for another owner finds none.
    let mine = owners.is_empty() || owners.iter().any(|o| *o == "self" || *o == realm.account);
    let candidates = if mine { query.candidates(call)? } else { Some(Vec::new()) };
    Ok(query.answer(call, candidates, |x, s| render::snapshot(x, realm, s, call.now)))
}
