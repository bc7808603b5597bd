//! RPCs about a volume and a node.

use ebs_csi_proto::caller_timeout;
use ebs_csi_proto::csi;
use ebs_csi_proto::observe::record_field;
use tonic::{Request, Response};

use super::{Controller, RpcResult};
use crate::csi::node_local;
use crate::csi::publish_context;
use crate::request::{self, Publish, node_local_handle};

/// ControllerPublishVolume.
pub(super) async fn publish(
    this: &Controller,
    request: Request<csi::ControllerPublishVolumeRequest>,
) -> RpcResult<csi::ControllerPublishVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let wire = request.get_ref();
    record_field("volume.id", &wire.volume_id);
    record_field("node.id", &wire.node_id);
    if node_local_handle::is_handle(&wire.volume_id) {
        let context = node_local::publish(&this.ec2, this.node_local_volumes, wire).await?;
        return Ok(Response::new(csi::ControllerPublishVolumeResponse {
            publish_context: context,
        }));
    }
    let attached = this.attachments.attach(Publish::parse(wire)?, timeout).await?;
    let origin = this.sources.origin_of(&attached.volume).await;
    Ok(Response::new(csi::ControllerPublishVolumeResponse {
        publish_context: publish_context::build(&attached, origin),
    }))
}

/// ControllerUnpublishVolume.
pub(super) async fn unpublish(
    this: &Controller,
    request: Request<csi::ControllerUnpublishVolumeRequest>,
) -> RpcResult<csi::ControllerUnpublishVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let wire = request.get_ref();
    record_field("volume.id", &wire.volume_id);
    record_field("node.id", &wire.node_id);
    if let Some(pair) = request::parse_unpublish(wire)? {
        this.attachments.detach(pair, timeout).await?;
    }
    Ok(Response::new(csi::ControllerUnpublishVolumeResponse {}))
}
