//! The CSI Controller service: parse, act, answer.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::csi::{self, controller_server};
use ebs_csi_proto::observe::note;
use ebs_csi_proto::{Capability, Condition, Failure};
use ebs_csi_wire::VolumeId;
use tonic::{Request, Response, Status};

use crate::attach::Attachments;
use crate::capabilities;
use crate::config::Config;
use crate::ec2::{Ec2, Volume};
use crate::ec2_failure::failure;
use crate::iops::IopsCeilings;
use crate::patience;
use crate::publish_context;
use crate::request::{self, CreateVolume, Publish};
use crate::tags::{TagSettings, Tags};
use crate::topology;
use crate::volume::Volumes;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stands in every tag set.
    pub tags: TagSettings,
    /// How long an expansion and a modification of one volume wait for each other.
    pub modify_window: Duration,
}

impl Settings {
    /// From the process's configuration.
    ///
    /// # Errors
    /// One line that names the flag and what is wrong with its value.
    pub fn read(config: &Config) -> Result<Self, String> {
        let mut extra = Tags::new();
        for (flag, text) in [
            ("--extra-volume-tags", &config.extra_volume_tags),
            ("--extra-tags", &config.extra_tags),
        ] {
            extra.extend(TagSettings::parse_extra(text).map_err(|why| format!("{flag}: {why}"))?);
        }
        Ok(Self {
            tags: TagSettings {
                extra,
                cluster_id: config.cluster_id.clone(),
                warn_on_invalid: config.warn_on_invalid_tag,
            },
            modify_window: config.modify_window,
        })
    }
}

/// The Controller service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Controller {
    ec2: Ec2,
    volumes: Volumes,
    attachments: Attachments,
}

impl Controller {
    /// With nothing under way.
    pub fn new(ec2: Ec2, settings: Settings) -> Self {
        let tags = Arc::new(settings.tags);
        let ceilings = IopsCeilings::default();
        Self {
            volumes: Volumes::new(ec2.clone(), Arc::clone(&tags), ceilings.clone()),
            attachments: Attachments::new(ec2.clone()),
            ec2,
        }
    }

    /// Operations under way, those whose callers have gone included.
    pub fn operations(&self) -> usize {
        self.volumes.operations() + self.attachments.operations()
    }

    /// A volume that must exist.
    async fn volume(&self, id: &VolumeId) -> Result<Volume, Failure> {
        self.ec2
            .look_volume(id)
            .await
            .known()
            .map_err(|error| failure(&error))?
            .ok_or_else(|| Failure::not_found("volume", id))
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl controller_server::Controller for Controller {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Answer<csi::CreateVolumeResponse> {
        let patience = patience::of(&request);
        let asked = CreateVolume::parse(request.get_ref())?;
        note("name", &asked.name);
        let (context, source) = (asked.class.volume_context(), asked.source.clone());
        let volume = self.volumes.create(asked, patience).await?;
        note("volume.id", volume.id.as_str());
        Ok(Response::new(csi::CreateVolumeResponse {
            volume: Some(csi::Volume {
                capacity_bytes: bytes(&volume),
                volume_id: volume.id.to_string(),
                volume_context: context,
                content_source: source.map(|source| source.to_wire()),
                accessible_topology: vec![topology::of_volume(
                    &volume.zone,
                    volume.outpost_arn.as_deref(),
                )],
            }),
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Answer<csi::DeleteVolumeResponse> {
        let patience = patience::of(&request);
        let id = &request.get_ref().volume_id;
        note("volume.id", id);
        if let Some(id) = request::delete("volume_id", id)? {
            self.volumes.delete(id, patience).await?;
        }
        Ok(Response::new(csi::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Answer<csi::ControllerPublishVolumeResponse> {
        let patience = patience::of(&request);
        let wire = request.get_ref();
        note("volume.id", &wire.volume_id);
        note("node.id", &wire.node_id);
        let attached = self
            .attachments
            .attach(Publish::parse(wire)?, patience)
            .await?;
        Ok(Response::new(csi::ControllerPublishVolumeResponse {
            publish_context: publish_context::of(&attached),
        }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Answer<csi::ControllerUnpublishVolumeResponse> {
        let patience = patience::of(&request);
        let wire = request.get_ref();
        note("volume.id", &wire.volume_id);
        note("node.id", &wire.node_id);
        if let Some(pair) = request::unpublish(wire)? {
            self.attachments.detach(pair, patience).await?;
        }
        Ok(Response::new(csi::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<csi::ValidateVolumeCapabilitiesResponse> {
        let wire = request.into_inner();
        note("volume.id", &wire.volume_id);
        request::present("volume_id", &wire.volume_id)?;
        let parsed = Capability::parse_all(&wire.volume_capabilities);
        if let Err(failure) = &parsed
            && failure.condition() != Condition::Unsupported
        {
            return Err(failure.clone().into());
        }
        let volume = self
            .volume(&request::volume_id("volume_id", &wire.volume_id)?)
            .await?;
        let refusal = match parsed {
            Err(failure) => Some(failure.text().to_owned()),
            Ok(capabilities)
                if !volume.multi_attach
                    && capabilities.iter().any(Capability::needs_multi_attach) =>
            {
                Some(format!(
                    "volume {} cannot be attached to several nodes",
                    volume.id
                ))
            }
            Ok(_) => None,
        };
        use csi::validate_volume_capabilities_response::Confirmed;
        Ok(Response::new(match refusal {
            Some(message) => csi::ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message,
            },
            None => csi::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: wire.volume_context,
                    volume_capabilities: wire.volume_capabilities,
                    parameters: wire.parameters,
                    mutable_parameters: wire.mutable_parameters,
                }),
                message: String::new(),
            },
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Answer<csi::ControllerGetCapabilitiesResponse> {
        Ok(Response::new(capabilities::answer()))
    }

    async fn list_volumes(
        &self,
        _: Request<csi::ListVolumesRequest>,
    ) -> Answer<csi::ListVolumesResponse> {
        Err(Failure::unimplemented("ListVolumes").into())
    }

    async fn controller_list_volume_health(
        &self,
        _: Request<csi::ControllerListVolumeHealthRequest>,
    ) -> Answer<csi::ControllerListVolumeHealthResponse> {
        Err(Failure::unimplemented("ControllerListVolumeHealth").into())
    }

    async fn controller_get_volume_health(
        &self,
        _: Request<csi::ControllerGetVolumeHealthRequest>,
    ) -> Answer<csi::ControllerGetVolumeHealthResponse> {
        Err(Failure::unimplemented("ControllerGetVolumeHealth").into())
    }

    async fn get_capacity(
        &self,
        _: Request<csi::GetCapacityRequest>,
    ) -> Answer<csi::GetCapacityResponse> {
        Err(Failure::unimplemented("GetCapacity").into())
    }

    async fn create_snapshot(
        &self,
        _: Request<csi::CreateSnapshotRequest>,
    ) -> Answer<csi::CreateSnapshotResponse> {
        Err(Failure::unimplemented("CreateSnapshot").into())
    }

    async fn delete_snapshot(
        &self,
        _: Request<csi::DeleteSnapshotRequest>,
    ) -> Answer<csi::DeleteSnapshotResponse> {
        Err(Failure::unimplemented("DeleteSnapshot").into())
    }

    async fn list_snapshots(
        &self,
        _: Request<csi::ListSnapshotsRequest>,
    ) -> Answer<csi::ListSnapshotsResponse> {
        Err(Failure::unimplemented("ListSnapshots").into())
    }

    async fn get_snapshot(
        &self,
        _: Request<csi::GetSnapshotRequest>,
    ) -> Answer<csi::GetSnapshotResponse> {
        Err(Failure::unimplemented("GetSnapshot").into())
    }

    async fn controller_expand_volume(
        &self,
        _: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Answer<csi::ControllerExpandVolumeResponse> {
        Err(Failure::unimplemented("ControllerExpandVolume").into())
    }

    async fn controller_get_volume(
        &self,
        _: Request<csi::ControllerGetVolumeRequest>,
    ) -> Answer<csi::ControllerGetVolumeResponse> {
        Err(Failure::unimplemented("ControllerGetVolume").into())
    }

    async fn controller_modify_volume(
        &self,
        _: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Answer<csi::ControllerModifyVolumeResponse> {
        Err(Failure::unimplemented("ControllerModifyVolume").into())
    }
}

/// A volume's size as CSI counts.
fn bytes(volume: &Volume) -> i64 {
    i64::try_from(volume.size.to_bytes().0).unwrap_or(i64::MAX)
}
