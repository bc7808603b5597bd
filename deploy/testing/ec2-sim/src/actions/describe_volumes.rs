//! DescribeVolumes, DescribeVolumeStatus and DescribeVolumesModifications.

use super::describe_query::Describe;
use super::modify_volume::check_id;
use super::render::View;
use super::{Call, Row};
use crate::state::resources::{VolumeState, name_of};
use crate::state::{Realm, Volume, well_formed};
use crate::wire::{ApiError, ApiResult, Xml, refuse, refuse_value};

pub(super) const ACTIONS: &[Row] = &[
    ("DescribeVolumeStatus", status, "", &[]),
    ("DescribeVolumes", volumes, "", &[]),
    ("DescribeVolumesModifications", modifications, "", &[]),
];

const VOLUMES: Describe<Volume> = Describe {
    ids: ("VolumeId", "volumeIdsSet"),
    check_id: check_volumes_id,
    all: Realm::volumes,
    missing: ApiError::no_volumes,
    tags: |v| &v.tags,
    fields: &[("tag-key", |_| Vec::new()), ("volume-id", |v| vec![v.id.clone()])],
    id_filter: "volume-id",
    page_sizes: (5, 500),
    set: "volumeSet",
};

fn check_volumes_id(id: &str) -> ApiResult<()> {
    if !well_formed(id, "vol") {
        refuse_value!("Value ({id}) for parameter volumes is invalid. Expected: 'vol-...'.");
    }
    Ok(())
}

/// Answers DescribeVolumes. A dry run is answered first, even with malformed ids.
fn volumes(call: &mut Call<'_>) -> ApiResult<String> {
    VOLUMES.answer(call, |x, v| x.volume(call.realm, v, View::Full))
}

static STATUS: Describe<Volume> = Describe {
    check_id: check_status_id,
    fields: &[("volume-status.status", |v| vec![overall(v).to_owned()])],
    // Volumes cannot be filtered by id here.
    id_filter: "",
    page_sizes: (5, 1000),
    set: "volumeStatusSet",
    ..VOLUMES
};

fn check_status_id(id: &str) -> ApiResult<()> {
    if !well_formed(id, "vol") {
        refuse!("InvalidVolumeID.Malformed", "Invalid id: \"{id}\" (expecting \"vol-...\")");
    }
    Ok(())
}

fn status(call: &mut Call<'_>) -> ApiResult<String> {
    STATUS.answer(call, |x, v| volume_status(call, x, v))
}

fn overall(v: &Volume) -> &'static str {
    match v.life {
        VolumeState::Ready | VolumeState::Deleting { .. } => v.checks.status(),
        VolumeState::Creating { .. } => "insufficient-data",
        VolumeState::Failed => "impaired",
    }
}

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

fn volume_status<'x>(call: &Call<'_>, x: &'x mut Xml, v: &Volume) -> &'x mut Xml {
    x.text("volumeId", &v.id).nest("volumeStatus", |x| {
        x.text("status", overall(v)).list("details", details(call, v), |x, (name, status)| {
            x.text("name", name).text("status", &status)
        })
    });
    if let Some(i) = &v.initialization {
        // Only a provisioned rate yields an estimate.
        let seconds =
            (i.kind == "provisioned-rate").then(|| i.until.since(call.now).div_ceil(1000));
        x.nest("initializationStatusDetails", |x| {
            x.text("initializationType", &i.kind)
                .value("progress", v.initialized_percent(call.now))
                .option("estimatedTimeToCompleteInSeconds", seconds)
        });
    }
    x
}

static MODIFICATIONS: Describe<Volume> = Describe {
    check_id,
    fields: &[("volume-id", |v| vec![v.id.clone()])],
    page_sizes: (1, 500),
    set: "volumeModificationSet",
    ..VOLUMES
};

fn modifications(call: &mut Call<'_>) -> ApiResult<String> {
    let mut query = MODIFICATIONS.parse(call)?;
    query.keep = Box::new(|v| v.modification.is_some());
    let candidates = query.candidates(call)?;
    let mut named = candidates.iter().flatten().filter(|_| !query.ids.is_empty());
    if let Some((id, _)) = named.find(|(_, v)| v.modification.is_none()) {
        refuse!(
            "InvalidVolumeModification.NotFound",
            "Modification for volume '{id}' does not exist."
        );
    }
    Ok(query.answer(call, candidates, |x, v| match &v.modification {
        Some(m) => x.modification(&v.id, m, call.now),
        None => x,
    }))
}
