//! DescribeInstances.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::actions::render;
use crate::state::resources::instance::Instance;
use crate::wire::api_error::{ApiError, ApiResult};

const FIELDS: &[Field<Instance>] = &[
    ("instance-id", |i| vec![i.id.clone()]),
    ("outpost-arn", |i| i.outpost.iter().cloned().collect()),
];

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("InstanceId");
    let query = Query::parse(call, FIELDS, ("instancesSet", &ids), (5, 1000))?;
    let realm = &*call.realm;
    let all = realm.instances();
    for id in &ids {
        Call::check_instance_id(id)?;
    }
    let candidates = query.named(call, all, &ids, "instance-id", ApiError::no_instances)?;
    let set = "reservationSet";
    Ok(query.answer(call, set, all, candidates, |x, i| {
        x.text("reservationId", &i.id.replacen("i-", "r-", 1))
            .text("ownerId", &realm.account)
            .list("instancesSet", [i], |x, i| {
                render::instance(x, realm, i, call.now);
            });
    }))
}
