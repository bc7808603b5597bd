//! DescribeVolumeStatus.

use crate::actions::Call;
use crate::actions::describe_query::Describe;
use crate::state::resources::{VolumeState, name_of};
use crate::state::{Realm, Volume, well_formed};
use crate::wire::{ApiError, ApiResult, Xml, refuse};

static DESCRIBE: Describe<Volume> = Describe {
    ids: ("VolumeId", "volumeIdsSet"),
    check_id,
    all: Realm::volumes,
    missing: ApiError::no_volumes,
    fields: &[("volume-status.status", |v| vec![status(v).to_owned()])],
    // Volumes cannot be filtered by id here.
    id_filter: "",
    page_sizes: (5, 1000),
    set: "volumeStatusSet",
};

fn check_id(id: &str) -> ApiResult<()> {
    if !well_formed(id, "vol") {
        refuse!("InvalidVolumeID.Malformed", "Invalid id: \"{id}\" (expecting \"vol-...\")");
    }
    Ok(())
}

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    DESCRIBE.answer(call, |x, v| member(call, x, v))
}

fn status(v: &Volume) -> &'static str {
    match v.life {
        VolumeState::Ready | VolumeState::Deleting { .. } => v.checks.status(),
        VolumeState::Creating { .. } => "insufficient-data",
        VolumeState::Failed => "impaired",
    }
}

/// Returns the name and the status of each check.
fn details(call: &Call<'_>, v: &Volume) -> Vec<(&'static str, String)> {
    let is_failed = v.life == VolumeState::Failed || v.checks.io_disabled;
    let performance = match v.attachments.is_empty() || v.shape.iops.is_none() {
        true => "not-applicable".to_owned(),
        false => name_of(v.checks.performance),
    };
    let enabled = if is_failed { "failed" } else { "passed" };
    let mut out = vec![("io-enabled", enabled.to_owned()), ("io-performance", performance)];
    if v.initialization.is_some() {
        let done = v.initialized_percent(call.now) == 100;
        let state = if done { "completed" } else { "initializing" };
        out.push(("initialization-state", state.to_owned()));
    }
    out
}

fn member(call: &Call<'_>, x: &mut Xml, v: &Volume) {
    x.text("volumeId", &v.id).nest("volumeStatus", |x| {
        x.text("status", status(v)).list("details", details(call, v), |x, (name, status)| {
            x.text("name", name).text("status", &status);
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
