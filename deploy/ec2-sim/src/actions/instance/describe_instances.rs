//! DescribeInstances.

use crate::actions::describe_query::Describe;
use crate::actions::{Call, render};
use crate::state::Realm;
use crate::state::resources::Instance;
use crate::wire::{ApiError, ApiResult};

static DESCRIBE: Describe<Instance> = Describe {
    ids: ("InstanceId", "instancesSet"),
    check_id: Call::check_instance_id,
    all: Realm::instances,
    missing: ApiError::no_instances,
    fields: &[
        ("instance-id", |i| vec![i.id.clone()]),
        ("outpost-arn", |i| i.outpost.iter().cloned().collect()),
    ],
    id_filter: "instance-id",
    page_sizes: (5, 1000),
    set: "reservationSet",
};

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    let realm = &*call.realm;
    DESCRIBE.answer(call, |x, i| {
        x.text("reservationId", &i.id.replacen("i-", "r-", 1))
            .text("ownerId", &realm.account)
            .list("instancesSet", [i], |x, i| {
                render::instance(x, realm, i, call.now);
            });
    })
}
