//! The CSI GroupController service: snapshots of several volumes at one moment.

use ebs_csi_ec2::{Snapshot, SnapshotState};
use ebs_csi_proto::csi::group_controller_server;
use ebs_csi_proto::csi::group_controller_service_capability::rpc::Type as Offer;
use ebs_csi_proto::csi::group_controller_service_capability::{Rpc, Type};
use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::{caller_timeout, csi};
use tokio::time::Instant;
use tonic::Request;

use super::snapshot::to_wire;
use super::{Controller, RpcResult};
use crate::request::group::{CreateGroup, GroupId, parse_members};
use crate::request::{parse_delete, parse_id};

#[tonic::async_trait]
impl group_controller_server::GroupController for Controller {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<csi::GroupControllerGetCapabilitiesRequest>,
    ) -> RpcResult<csi::GroupControllerGetCapabilitiesResponse> {
        let offer = Rpc { r#type: Offer::CreateDeleteGetVolumeGroupSnapshot as i32 };
        let capability = csi::GroupControllerServiceCapability { r#type: Some(Type::Rpc(offer)) };
        Ok(csi::GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] }.into())
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<csi::CreateVolumeGroupSnapshotRequest>,
    ) -> RpcResult<csi::CreateVolumeGroupSnapshotResponse> {
        let began = Instant::now();
        let timeout = caller_timeout::of(request.metadata());
        let parsed = CreateGroup::parse(request.get_ref())?;
        record_field("request.name", &request.get_ref().name);
        record_field("group.id", parsed.id.as_str());
        let id = parsed.id.clone();
        let snapshots = self.groups.create(parsed, timeout).await;
        let snapshots = snapshots.map_err(|why| self.explain_deadline(why.into(), began))?;
        let group_snapshot = Some(group_to_wire(&id, &snapshots));
        Ok(csi::CreateVolumeGroupSnapshotResponse { group_snapshot }.into())
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<csi::DeleteVolumeGroupSnapshotRequest>,
    ) -> RpcResult<csi::DeleteVolumeGroupSnapshotResponse> {
        let began = Instant::now();
        let timeout = caller_timeout::of(request.metadata());
        let id = &request.get_ref().group_snapshot_id;
        record_field("group.id", id);
        if let Some(id) = parse_delete("group_snapshot_id", id)? {
            let listed = parse_members(&request.get_ref().snapshot_ids)?;
            let deleted = self.groups.delete(id, listed, timeout).await;
            deleted.map_err(|why| self.explain_deadline(why.into(), began))?;
        }
        Ok(csi::DeleteVolumeGroupSnapshotResponse {}.into())
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<csi::GetVolumeGroupSnapshotRequest>,
    ) -> RpcResult<csi::GetVolumeGroupSnapshotResponse> {
        let id: GroupId = parse_id("group_snapshot_id", &request.get_ref().group_snapshot_id)?;
        record_field("group.id", id.as_str());
        let listed = parse_members(&request.get_ref().snapshot_ids)?;
        let snapshots = self.groups.get(&id, &listed).await?;
        let group_snapshot = Some(group_to_wire(&id, &snapshots));
        Ok(csi::GetVolumeGroupSnapshotResponse { group_snapshot }.into())
    }
}

fn group_to_wire(id: &GroupId, snapshots: &[Snapshot]) -> csi::VolumeGroupSnapshot {
    let members = snapshots
        .iter()
        .map(|snapshot| csi::Snapshot { group_snapshot_id: id.to_string(), ..to_wire(snapshot) });
    let members: Vec<_> = members.collect();
    csi::VolumeGroupSnapshot {
        group_snapshot_id: id.to_string(),
        creation_time: members.first().and_then(|member| member.creation_time),
        ready_to_use: snapshots.iter().all(|it| it.state == SnapshotState::Completed),
        snapshots: members,
    }
}
