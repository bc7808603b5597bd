//! RPCs about a volume.

use ebs_csi_ec2::{Call, Volume, VolumeState};
use ebs_csi_proto::csi::list_volumes_response::Entry;
use ebs_csi_proto::modify::{
    GetCsiDriverModificationCapabilityRequest, GetCsiDriverModificationCapabilityResponse,
    ModifyVolumePropertiesRequest, ModifyVolumePropertiesResponse, modify_server,
};
use ebs_csi_proto::observe::record_field;
use ebs_csi_proto::{Capability, Condition, Failure, GiB, caller_timeout, csi};
use ebs_csi_wire::VolumeId;
use tonic::{Request, Response};

use super::{Controller, RpcResult};
use crate::csi::{node_local, validated};
use crate::request::listing::PageRequest;
use crate::request::{self, CreateVolume, Expand, Source, node_local_handle, topology};

pub(super) async fn create(
    this: &Controller,
    request: Request<csi::CreateVolumeRequest>,
) -> RpcResult<csi::CreateVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let mut request = request;
    if let Some(requirement) = &mut request.get_mut().accessibility_requirements {
        complete_outposts(this, requirement).await?;
    }
    let parsed = CreateVolume::parse(request.get_ref())?;
    record_field("request.name", &parsed.name);
    let (volume_context, source) = (parsed.class.volume_context(), parsed.source.clone());
    let volume = this.volumes.create(parsed, timeout).await?;
    record_field("volume.id", volume.id.as_str());
    let volume = csi::Volume { volume_context, ..to_wire(&volume, source) };
    Ok(Response::new(csi::CreateVolumeResponse { volume: Some(volume) }))
}

/// Returns the volume as responses describe it, without a volume context.
pub(super) fn to_wire(volume: &Volume, source: Option<Source>) -> csi::Volume {
    let topology = topology::of_volume(&volume.zone, volume.outpost_arn.as_deref());
    csi::Volume {
        capacity_bytes: size_in_bytes(volume.size),
        volume_id: volume.id.to_string(),
        content_source: source.map(|source| source.to_wire()),
        accessible_topology: vec![topology],
        ..Default::default()
    }
}

/// Completes an Outpost that is named by its id alone: it belongs to this account and Region.
async fn complete_outposts(
    this: &Controller,
    requirement: &mut csi::TopologyRequirement,
) -> Result<(), Failure> {
    // The common request needs no call to STS.
    if !topology::lacks_owner(requirement) {
        return Ok(());
    }
    let owner = this.ec2.caller().await.map_err(|why| {
        Failure::new(
            Condition::BackendDown,
            format!(
                "accessibility_requirements name an Outpost by its id, and sts:GetCallerIdentity, which tells its account and partition, failed: {why}; \
                 name it by its whole ARN, or let the driver reach STS"
            ),
        )
    })?;
    topology::complete_outposts(requirement, this.ec2.region(), &owner);
    Ok(())
}

pub(super) async fn delete(
    this: &Controller,
    request: Request<csi::DeleteVolumeRequest>,
) -> RpcResult<csi::DeleteVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let id = &request.get_ref().volume_id;
    record_field("volume.id", id);
    if let Some(id) = request::parse_delete("volume_id", id)? {
        this.volumes.delete(id, timeout).await?;
    }
    Ok(Response::new(csi::DeleteVolumeResponse {}))
}

pub(super) async fn validate(
    this: &Controller,
    request: Request<csi::ValidateVolumeCapabilitiesRequest>,
) -> RpcResult<csi::ValidateVolumeCapabilitiesResponse> {
    let wire = request.into_inner();
    record_field("volume.id", &wire.volume_id);
    request::require("volume_id", &wire.volume_id)?;
    if node_local_handle::is_handle(&wire.volume_id) {
        return Ok(Response::new(node_local::validate(wire)?));
    }
    let capabilities = Capability::parse_all(&wire.volume_capabilities);
    if let Err(failure) = &capabilities
        && failure.condition() != Condition::Unsupported
    {
        return Err(failure.clone().into());
    }
    let volume = find_existing(this, &request::parse_id("volume_id", &wire.volume_id)?).await?;
    let refusal = match capabilities {
        Err(failure) => Some(failure.text().to_owned()),
        Ok(capabilities)
            if !volume.multi_attach && capabilities.iter().any(Capability::needs_multi_attach) =>
        {
            Some(format!("volume {} cannot be attached to several nodes", volume.id))
        }
        Ok(_) => None,
    };
    Ok(Response::new(validated(wire, refusal)))
}

pub(super) async fn expand(
    this: &Controller,
    request: Request<csi::ControllerExpandVolumeRequest>,
) -> RpcResult<csi::ControllerExpandVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    record_field("volume.id", &request.get_ref().volume_id);
    let parsed = Expand::parse(request.get_ref())?;
    let volume = match parsed.size {
        Some(size) => this.modifications.expand(&parsed.volume, size, timeout).await?,
        None => find_existing(this, &parsed.volume).await?,
    };
    Ok(Response::new(csi::ControllerExpandVolumeResponse {
        capacity_bytes: size_in_bytes(volume.size),
        node_expansion_required: !parsed.block,
    }))
}

pub(super) async fn modify(
    this: &Controller,
    request: Request<csi::ControllerModifyVolumeRequest>,
) -> RpcResult<csi::ControllerModifyVolumeResponse> {
    let timeout = caller_timeout::of(request.metadata());
    let wire = request.get_ref();
    record_field("volume.id", &wire.volume_id);
    let (volume, attributes) = request::parse_modify(&wire.volume_id, &wire.mutable_parameters)?;
    this.modifications.modify(&volume, attributes, timeout).await?;
    Ok(Response::new(csi::ControllerModifyVolumeResponse {}))
}

pub(super) async fn find_existing(this: &Controller, id: &VolumeId) -> Result<Volume, Failure> {
    let look = this.ec2.look_volume(&Call::default(), id).await;
    let found = look.known()?;
    found.ok_or_else(|| Failure::not_found("volume", id))
}

/// Returns a size in bytes, as CSI expects it.
pub(super) fn size_in_bytes(size: GiB) -> i64 {
    i64::try_from(size.to_bytes().0).unwrap_or(i64::MAX)
}

pub(super) async fn list(
    this: &Controller,
    request: Request<csi::ListVolumesRequest>,
) -> RpcResult<csi::ListVolumesResponse> {
    let wire = request.get_ref();
    let owned = this.tags.of_own_volumes();
    let (volumes, next_token) = PageRequest::parse(wire.max_entries, &wire.starting_token)?
        .read(|max, token| {
            let owned = &owned;
            async move {
                let mut page = this.ec2.list_volumes(&Call::default(), max, token, owned).await?;
                page.entries.retain(|volume| !is_deleted(volume));
                Ok(page)
            }
        })
        .await?;
    Ok(Response::new(csi::ListVolumesResponse {
        entries: volumes.iter().map(entry).collect(),
        next_token,
    }))
}

/// Returns whether the volume counts as deleted for the caller.
fn is_deleted(volume: &Volume) -> bool {
    matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted)
}

/// Builds an entry. The volume context is empty: EC2 does not store it.
fn entry(volume: &Volume) -> Entry {
    let copied = volume.source_volume.clone().map(Source::Volume);
    let source = copied.or_else(|| volume.snapshot.clone().map(Source::Snapshot));
    Entry { volume: Some(to_wire(volume, source)), status: None }
}

/// The service of the volume modifier, the sidecar that preceded ControllerModifyVolume: the same
/// change under other names.
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
