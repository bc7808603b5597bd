//! RPCs about a snapshot.

use ebs_csi_ec2::{Snapshot, SnapshotState};
use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::{Failure, caller_timeout, csi};
use ebs_csi_wire::{SnapshotId, VolumeId};
use tonic::{Request, Response};

use super::volume::size_in_bytes;
use super::{Controller, RpcResult};
use crate::request::listing::PageRequest;
use crate::request::{self, CreateSnapshot};

pub(super) async fn create(
    this: &Controller,
    request: Request<csi::CreateSnapshotRequest>,
) -> RpcResult<csi::CreateSnapshotResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let parsed = CreateSnapshot::parse(request.get_ref())?;
    record_field("request.name", &parsed.name);
    record_field("volume.id", parsed.volume.as_str());
    let snapshot = this.snapshots.create(parsed, timeout).await?;
    record_field("snapshot.id", snapshot.id.as_str());
    Ok(Response::new(csi::CreateSnapshotResponse { snapshot: Some(to_wire(&snapshot)) }))
}

pub(super) async fn delete(
    this: &Controller,
    request: Request<csi::DeleteSnapshotRequest>,
) -> RpcResult<csi::DeleteSnapshotResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let id = &request.get_ref().snapshot_id;
    record_field("snapshot.id", id);
    if let Some(id) = request::parse_delete("snapshot_id", id)? {
        this.groups.forget(&id);
        this.snapshots.delete(id, timeout).await?;
    }
    Ok(Response::new(csi::DeleteSnapshotResponse {}))
}

pub(super) async fn list(
    this: &Controller,
    request: Request<csi::ListSnapshotsRequest>,
) -> RpcResult<csi::ListSnapshotsResponse> {
    let wire = request.get_ref();
    let wanted = PageRequest::parse(wire.max_entries, &wire.starting_token)?;
    // An id that EC2 cannot have issued belongs to no snapshot and to no volume.
    let impossible = !wire.snapshot_id.is_empty() && SnapshotId::parse(&wire.snapshot_id).is_err()
        || !wire.source_volume_id.is_empty() && VolumeId::parse(&wire.source_volume_id).is_err();
    let volume = VolumeId::parse(&wire.source_volume_id).ok();
    let (snapshots, next_token) = match SnapshotId::parse(&wire.snapshot_id) {
        _ if impossible => (Vec::new(), String::new()),
        Ok(id) => {
            let found = this.snapshots.get(&id).await?;
            let matching = found.filter(|found| volume.is_none() || found.volume == volume);
            (matching.into_iter().collect(), String::new())
        }
        Err(_) => this.snapshots.list(volume, &wanted).await?,
    };
    let entry = |snapshot| csi::list_snapshots_response::Entry { snapshot: Some(snapshot) };
    let entries = snapshots.iter().map(to_wire).map(entry).collect();
    Ok(Response::new(csi::ListSnapshotsResponse { entries, next_token }))
}

pub(super) async fn get(
    this: &Controller,
    request: Request<csi::GetSnapshotRequest>,
) -> RpcResult<csi::GetSnapshotResponse> {
    let id: SnapshotId = request::parse_id("snapshot_id", &request.get_ref().snapshot_id)?;
    record_field("snapshot.id", id.as_str());
    let snapshot =
        this.snapshots.get(&id).await?.ok_or_else(|| Failure::not_found("snapshot", &id))?;
    Ok(Response::new(csi::GetSnapshotResponse { snapshot: Some(to_wire(&snapshot)) }))
}

/// Returns the snapshot as responses describe it, without its group: csi-snapshotter never deletes
/// a snapshot for which ListSnapshots names a group.
pub(super) fn to_wire(snapshot: &Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: size_in_bytes(snapshot.size),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.volume.as_ref().map(ToString::to_string).unwrap_or_default(),
        creation_time: snapshot.started.map(|started| prost_types::Timestamp {
            seconds: started.seconds,
            nanos: i32::try_from(started.nanoseconds).unwrap_or_default(),
        }),
        ready_to_use: snapshot.state == SnapshotState::Completed,
        group_snapshot_id: String::new(),
        accessible_topology: Vec::new(),
    }
}
