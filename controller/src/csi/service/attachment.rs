//! RPCs about a volume and a node.

use std::collections::HashMap;

use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::publish_context::{
    ATTACHED_AT, BLANK, DEVICE_PATH, ORIGIN, OWN_SNAPSHOT, OWN_VOLUME, SIZE_BYTES, SNAPSHOT,
    UNSEEN_SNAPSHOT, UNSEEN_VOLUME, VOLUME,
};
use ebs_csi_proto::{caller_timeout, csi};
use tonic::{Request, Response};

use super::{Controller, RpcResult};
use crate::attach::Attached;
use crate::csi::node_local;
use crate::request::{self, Publish, node_local_handle};
use crate::volume::origin::{Origin, Writer};

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
        publish_context: build_publish_context(&attached, origin),
    }))
}

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

/// Returns the publish context of an attachment. Nodes of the Go driver read only the device name.
fn build_publish_context(attached: &Attached, origin: Origin) -> HashMap<String, String> {
    let volume = &attached.volume;
    let origin = match origin {
        Origin::Blank => BLANK,
        Origin::Snapshot(Writer::Own) => OWN_SNAPSHOT,
        Origin::Snapshot(Writer::Another) => SNAPSHOT,
        Origin::Snapshot(Writer::Unseen) => UNSEEN_SNAPSHOT,
        Origin::Volume(Writer::Own) => OWN_VOLUME,
        Origin::Volume(Writer::Another) => VOLUME,
        Origin::Volume(Writer::Unseen) => UNSEEN_VOLUME,
    };
    let mut context = HashMap::from([
        (DEVICE_PATH.to_owned(), attached.device.clone()),
        (SIZE_BYTES.to_owned(), volume.size.to_bytes().0.to_string()),
        (ORIGIN.to_owned(), origin.to_owned()),
    ]);
    if let Some(since) = attached.since {
        context.insert(ATTACHED_AT.to_owned(), since.to_string());
    }
    context
}
