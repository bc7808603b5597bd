//! DescribeSnapshots.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::actions::render;
use crate::state::resources::snapshot::Snapshot;
use crate::wire::api_error::{ApiError, ApiResult};

const FIELDS: &[Field<Snapshot>] = &[
    ("snapshot-id", |s| vec![s.id.clone()]),
    ("tag-key", |_| Vec::new()),
    ("volume-id", |s| vec![s.volume.clone()]),
];

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("SnapshotId");
    let owners = p.list("Owner");
    let query = Query::parse(call, FIELDS, ("snapshotIdsSet", &ids), (5, 1000))?;
    for id in &ids {
        Call::check_snapshot_id(id)?;
    }
    let realm = &*call.realm;
    // All simulated snapshots belong to this account, so a query for another owner finds none.
    let mine = owners.is_empty() || owners.iter().any(|o| *o == "self" || *o == realm.account);
    let all = realm.snapshots();
    let mut candidates = Some(Vec::new());
    if mine {
        let named = query.named(call, all, &ids, "snapshot-id", ApiError::no_snapshots)?;
        candidates = named.or_else(|| query.tagged(realm, all));
    }
    Ok(query.answer(call, "snapshotSet", all, candidates, |x, s| {
        render::snapshot(x, realm, s, call.now);
    }))
}
