//! DescribeVolumeStatus.

use crate::actions::Call;
use crate::actions::describe_query::{Field, Query};
use crate::state::ids::well_formed;
use crate::state::resources::volume::{Life, Volume};
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::xml::Xml;

const FIELDS: &[Field<Volume>] = &[("volume-status.status", |v| vec![status(v).to_owned()])];

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let ids = p.list("VolumeId");
    let query = Query::parse(call, FIELDS, ("volumeIdsSet", &ids), (5, 1000))?;
    for id in &ids {
        if !well_formed(id, "vol") {
            return Err(ApiError::client(
                "InvalidVolumeID.Malformed",
                format!("Invalid id: \"{id}\" (expecting \"vol-...\")"),
            ));
        }
    }
    let all = call.realm.volumes();
    // Volumes cannot be filtered by id here.
    let candidates = query.named(call, all, &ids, "", ApiError::no_volumes)?;
    let set = "volumeStatusSet";
    Ok(query.answer(call, set, all, candidates, |x, v| member(call, x, v)))
}

fn status(v: &Volume) -> &'static str {
    match v.life {
        Life::Ready | Life::Deleting { .. } => v.checks.status(),
        Life::Creating { .. } => "insufficient-data",
        Life::Failed => "impaired",
    }
}

fn details(call: &Call<'_>, v: &Volume) -> Vec<(&'static str, &'static str)> {
    let mut out = vec![
        (
            "io-enabled",
            if v.life == Life::Failed || v.checks.io_disabled { "failed" } else { "passed" },
        ),
        (
            "io-performance",
            if v.attachments.is_empty() || v.shape.iops.is_none() {
                "not-applicable"
            } else {
                v.checks.performance.as_str()
            },
        ),
    ];
    if v.initialization.is_some() {
        let done = v.initialized_percent(call.now) == 100;
        out.push(("initialization-state", if done { "completed" } else { "initializing" }));
    }
    out
}

fn member(call: &Call<'_>, x: &mut Xml, v: &Volume) {
    x.text("volumeId", &v.id).nest("volumeStatus", |x| {
        x.text("status", status(v)).list("details", details(call, v), |x, (name, status)| {
            x.text("name", name).text("status", status);
        });
    });
    if let Some(i) = &v.initialization {
        x.nest("initializationStatusDetails", |x| {
            x.text("initializationType", &i.kind)
                .value("progress", v.initialized_percent(call.now));
            // Only a provisioned rate yields an estimate.
            if i.kind == "provisioned-rate" {
                x.value("estimatedTimeToCompleteInSeconds", i.until.since(call.now).div_ceil(1000));
            }
        });
    }
}
