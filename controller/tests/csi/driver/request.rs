//! Requests in the form in which sidecars send them, and the calls that send them.

use std::collections::HashMap;
use std::time::Duration;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as SourceType, VolumeSource};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

pub(crate) trait CsiRequest: Sized {
    type Response;

    fn send(
        client: ControllerClient<Channel>,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Self::Response, Status>> + Send;
}

macro_rules! calls {
    ($($call:ident: $request:ident -> $response:ident;)*) => {$(
        impl CsiRequest for csi::$request {
            type Response = csi::$response;

            async fn send(
                mut client: ControllerClient<Channel>,
                request: Request<Self>,
            ) -> Result<Self::Response, Status> {
                Ok(client.$call(request).await?.into_inner())
            }
        }
    )*};
}

calls! {
    create_volume: CreateVolumeRequest -> CreateVolumeResponse;
    delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse;
    controller_publish_volume: ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse;
    controller_unpublish_volume: ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse;
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    list_volumes: ListVolumesRequest -> ListVolumesResponse;
    controller_get_capabilities: ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse;
    controller_get_volume_health: ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse;
    controller_list_volume_health: ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse;
    create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse;
    delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse;
    get_snapshot: GetSnapshotRequest -> GetSnapshotResponse;
    list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse;
}

pub(crate) fn within<T>(message: T, seconds: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(seconds));
    request
}

pub(crate) fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(crate) fn mount() -> csi::VolumeCapability {
    capability(
        AccessType::Mount(MountVolume { fs_type: "ext4".to_owned(), ..Default::default() }),
        Mode::SingleNodeWriter,
    )
}

pub(crate) fn block(mode: Mode) -> csi::VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), mode)
}

fn capability(access: AccessType, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

pub(crate) fn volume(name: &str, gib: i64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: range(gib, 0),
        volume_capabilities: vec![mount()],
        ..Default::default()
    }
    .in_zone("us-east-1a")
}

pub(crate) fn range(required: i64, limit: i64) -> Option<csi::CapacityRange> {
    Some(csi::CapacityRange { required_bytes: required << 30, limit_bytes: limit << 30 })
}

pub(crate) trait CreateRequest: Sized {
    fn with_parameters(self, parameters: &[(&str, &str)]) -> Self;
    fn with_capability(self, capability: csi::VolumeCapability) -> Self;
    fn with_source(self, source: csi::VolumeContentSource) -> Self;
    /// Requires, and prefers, the topology with these segments.
    fn with_topology(self, segments: &[(&str, &str)]) -> Self;

    fn in_zone(self, zone: &str) -> Self {
        self.with_topology(&[("topology.kubernetes.io/zone", zone)])
    }
}

impl CreateRequest for csi::CreateVolumeRequest {
    fn with_parameters(self, parameters: &[(&str, &str)]) -> Self {
        Self { parameters: map(parameters), ..self }
    }

    fn with_capability(self, capability: csi::VolumeCapability) -> Self {
        Self { volume_capabilities: vec![capability], ..self }
    }

    fn with_source(self, source: csi::VolumeContentSource) -> Self {
        Self { volume_content_source: Some(source), ..self }
    }

    fn with_topology(self, segments: &[(&str, &str)]) -> Self {
        let term = csi::Topology { segments: map(segments) };
        let required =
            csi::TopologyRequirement { requisite: vec![term.clone()], preferred: vec![term] };
        Self { accessibility_requirements: Some(required), ..self }
    }
}

pub(crate) fn publish(id: &str, node: &str) -> csi::ControllerPublishVolumeRequest {
    csi::ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    }
}

pub(crate) fn unpublish(id: &str, node: &str) -> csi::ControllerUnpublishVolumeRequest {
    csi::ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn snapshot(name: &str, volume: &str) -> csi::CreateSnapshotRequest {
    csi::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: volume.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn from_snapshot(id: &str) -> csi::VolumeContentSource {
    csi::VolumeContentSource {
        r#type: Some(SourceType::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })),
    }
}

pub(crate) fn from_volume(id: &str) -> csi::VolumeContentSource {
    csi::VolumeContentSource {
        r#type: Some(SourceType::Volume(VolumeSource { volume_id: id.to_owned() })),
    }
}

#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, words: &[&str]) {
    assert_eq!(status.code(), code, "{status}");
    for word in words {
        assert!(status.message().contains(word), "{word}: {status}");
    }
}
