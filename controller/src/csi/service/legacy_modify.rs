//! The service of the volume modifier, the sidecar that preceded ControllerModifyVolume: the same
//! change under other names.

use ebs_csi_proto::caller_timeout;
use ebs_csi_proto::modify::{
    GetCsiDriverModificationCapabilityRequest, GetCsiDriverModificationCapabilityResponse,
    ModifyVolumePropertiesRequest, ModifyVolumePropertiesResponse, modify_server,
};
use ebs_csi_proto::observe::record_field;
use tonic::{Request, Response};

use super::{Controller, RpcResult};
use crate::request;

#[tonic::async_trait]
impl modify_server::Modify for Controller {
    async fn get_csi_driver_modification_capability(
        &self,
        _: Request<GetCsiDriverModificationCapabilityRequest>,
    ) -> RpcResult<GetCsiDriverModificationCapabilityResponse> {
        Ok(Response::new(GetCsiDriverModificationCapabilityResponse {}))
    }

    async fn modify_volume_properties(
        &self,
        request: Request<ModifyVolumePropertiesRequest>,
    ) -> RpcResult<ModifyVolumePropertiesResponse> {
        let timeout = caller_timeout::of(request.metadata());
        let wire = request.get_ref();
        record_field("volume.id", &wire.name);
        request::require("name", &wire.name)?;
        let (volume, attributes) = request::parse_modify(&wire.name, &wire.parameters)?;
        self.modifications.modify(&volume, attributes, timeout).await?;
        Ok(Response::new(ModifyVolumePropertiesResponse {}))
    }
}
