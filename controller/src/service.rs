//! The CSI Controller service: parse, act, answer.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::csi::{self, controller_server};
use ebs_csi_proto::observe::note;
use ebs_csi_proto::{Capability, Condition, Failure};
use ebs_csi_wire::{SnapshotId, VolumeId};
use tonic::{Request, Response, Status};

use crate::attach::Attachments;
use crate::capabilities;
use crate::config::Config;
use crate::ec2::{Ec2, Snapshot, SnapshotState, Volume};
use crate::ec2_failure::failure;
use crate::iops::IopsCeilings;
use crate::metrics::Metrics;
use crate::modify::Modifications;
use crate::node_local;
use crate::patience;
use crate::publish_context;
use crate::request::{self, CreateSnapshot, CreateVolume, Expand, Publish};
use crate::safe_detach::Mode;
use crate::snapshot::Snapshots;
use crate::tags::{TagSettings, Tags};
use crate::tally::Tally;
use crate::topology;
use crate::volume::Volumes;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stands in every tag set.
    pub tags: TagSettings,
    /// How long an expansion and a modification of one volume wait for each other.
    pub modify_window: Duration,
    /// Whether handles that begin with `local-ebs://` may be published.
    pub node_local_volumes: bool,
    /// How much must be proved before a volume leaves a node.
    pub safe_detach: Mode,
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
            node_local_volumes: config.node_local_volumes,
            safe_detach: config.safe_detach,
        })
    }
}

/// The Controller service. Clones share everything.
#[derive(Clone, Debug)]
pub struct Controller {
    ec2: Ec2,
    volumes: Volumes,
    attachments: Attachments,
    modifications: Modifications,
    snapshots: Snapshots,
    tally: Tally,
    node_local_volumes: bool,
}

impl Controller {
    /// With nothing under way.
    pub fn new(ec2: Ec2, settings: Settings, metrics: Arc<Metrics>) -> Self {
        metrics.safe_detach_mode(settings.safe_detach);
        let tally = Tally::shown_by(metrics);
        let tags = Arc::new(settings.tags);
        let ceilings = IopsCeilings::default();
        Self {
            volumes: Volumes::new(ec2.clone(), Arc::clone(&tags), ceilings.clone(), &tally),
            attachments: Attachments::new(ec2.clone(), settings.safe_detach, tally.clone()),
            modifications: Modifications::new(
                ec2.clone(),
                Arc::clone(&tags),
                ceilings,
                settings.modify_window,
                tally.clone(),
            ),
            snapshots: Snapshots::new(ec2.clone(), tags, &tally),
            tally,
            ec2,
            node_local_volumes: settings.node_local_volumes,
        }
    }

    /// Operations under way, those whose callers have gone included.
    pub fn operations(&self) -> usize {
        self.tally.running()
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
        if node_local::is_handle(&wire.volume_id) {
            let context = node_local::publish(&self.ec2, self.node_local_volumes, wire).await?;
            return Ok(Response::new(csi::ControllerPublishVolumeResponse {
                publish_context: context,
            }));
        }
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
        if node_local::is_handle(&wire.volume_id) {
            return Ok(Response::new(node_local::validate(wire)?));
        }
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
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Answer<csi::CreateSnapshotResponse> {
        let patience = patience::of(&request);
        let asked = CreateSnapshot::parse(request.get_ref())?;
        note("name", &asked.name);
        note("volume.id", asked.volume.as_str());
        let snapshot = self.snapshots.create(asked, patience).await?;
        note("snapshot.id", snapshot.id.as_str());
        Ok(Response::new(csi::CreateSnapshotResponse {
            snapshot: Some(to_wire(&snapshot)),
        }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Answer<csi::DeleteSnapshotResponse> {
        let patience = patience::of(&request);
        let id = &request.get_ref().snapshot_id;
        note("snapshot.id", id);
        if let Some(id) = request::delete("snapshot_id", id)? {
            self.snapshots.delete(id, patience).await?;
        }
        Ok(Response::new(csi::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<csi::ListSnapshotsRequest>,
    ) -> Answer<csi::ListSnapshotsResponse> {
        let wire = request.get_ref();
        let most = usize::try_from(wire.max_entries)
            .map_err(|_| Failure::invalid("max_entries", "is negative; give 0 for no limit"))?;
        // An id that EC2 cannot have issued belongs to no snapshot, and to no volume.
        let impossible = !wire.snapshot_id.is_empty()
            && SnapshotId::parse(&wire.snapshot_id).is_err()
            || !wire.source_volume_id.is_empty()
                && VolumeId::parse(&wire.source_volume_id).is_err();
        let volume = VolumeId::parse(&wire.source_volume_id).ok();
        let (snapshots, next_token) = match SnapshotId::parse(&wire.snapshot_id) {
            _ if impossible => (Vec::new(), String::new()),
            Ok(id) => {
                let found = self.snapshots.get(&id).await?;
                let wanted = found.filter(|found| volume.is_none() || found.volume == volume);
                (wanted.into_iter().collect(), String::new())
            }
            Err(_) => {
                self.snapshots
                    .list(volume, most, &wire.starting_token)
                    .await?
            }
        };
        Ok(Response::new(csi::ListSnapshotsResponse {
            entries: snapshots
                .iter()
                .map(|snapshot| csi::list_snapshots_response::Entry {
                    snapshot: Some(to_wire(snapshot)),
                })
                .collect(),
            next_token,
        }))
    }

    async fn get_snapshot(
        &self,
        request: Request<csi::GetSnapshotRequest>,
    ) -> Answer<csi::GetSnapshotResponse> {
        let id = request::snapshot_id("snapshot_id", &request.get_ref().snapshot_id)?;
        note("snapshot.id", id.as_str());
        let snapshot = self
            .snapshots
            .get(&id)
            .await?
            .ok_or_else(|| Failure::not_found("snapshot", &id))?;
        Ok(Response::new(csi::GetSnapshotResponse {
            snapshot: Some(to_wire(&snapshot)),
        }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Answer<csi::ControllerExpandVolumeResponse> {
        let patience = patience::of(&request);
        note("volume.id", &request.get_ref().volume_id);
        let asked = Expand::parse(request.get_ref())?;
        let volume = match asked.size {
            Some(size) => {
                self.modifications
                    .expand(&asked.volume, size, patience)
                    .await?
            }
            None => self.volume(&asked.volume).await?,
        };
        Ok(Response::new(csi::ControllerExpandVolumeResponse {
            capacity_bytes: bytes(&volume),
            node_expansion_required: !asked.block,
        }))
    }

    async fn controller_get_volume(
        &self,
        _: Request<csi::ControllerGetVolumeRequest>,
    ) -> Answer<csi::ControllerGetVolumeResponse> {
        Err(Failure::unimplemented("ControllerGetVolume").into())
    }

    async fn controller_modify_volume(
        &self,
        request: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Answer<csi::ControllerModifyVolumeResponse> {
        let patience = patience::of(&request);
        let wire = request.get_ref();
        note("volume.id", &wire.volume_id);
        let (volume, attributes) = request::modify(&wire.volume_id, &wire.mutable_parameters)?;
        self.modifications
            .modify(&volume, attributes, patience)
            .await?;
        Ok(Response::new(csi::ControllerModifyVolumeResponse {}))
    }
}

/// A volume's size as CSI counts.
fn bytes(volume: &Volume) -> i64 {
    i64::try_from(volume.size.to_bytes().0).unwrap_or(i64::MAX)
}

fn to_wire(snapshot: &Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: i64::try_from(snapshot.size.to_bytes().0).unwrap_or(i64::MAX),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot
            .volume
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        creation_time: snapshot.started.map(|started| prost_types::Timestamp {
            seconds: started.seconds,
            nanos: i32::try_from(started.nanoseconds).unwrap_or_default(),
        }),
        ready_to_use: snapshot.state == SnapshotState::Completed,
        group_snapshot_id: String::new(),
        accessible_topology: Vec::new(),
    }
}
