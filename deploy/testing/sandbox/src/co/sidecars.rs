//! The controller's orchestrator side: the calls of external-provisioner, -attacher, -resizer and
//! -snapshotter.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use csi::controller_client::ControllerClient;
use csi::group_controller_client::GroupControllerClient;
use ebs_csi_proto::csi;
use tonic::transport::Channel;

use super::attempt::{Attempts, CoError, Result, RetryPolicy, call};
use super::channel;
use super::volume::{Claim, Volume};

pub(crate) const ZONE_KEY: &str = "topology.kubernetes.io/zone";

/// The sidecars of one controller.
#[derive(Clone, Debug)]
pub struct Co {
    controller: ControllerClient<Channel>,
    groups: GroupControllerClient<Channel>,
    zone: String,
    /// The retry policy for creating, deleting, resizing and snapshots.
    pub provisioner: RetryPolicy,
    /// The retry policy for attaching and detaching.
    pub attacher: RetryPolicy,
    /// The record of all calls.
    pub attempts: Attempts,
}

/// The `publish_context` of a volume that is attached to a node.
pub type Attachment = HashMap<String, String>;

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Snapshot handle (`snap-…`).
    pub id: String,
    /// Whether a volume can be created from the snapshot.
    pub ready: bool,
}

impl Co {
    /// Returns the sidecars of the controller at `socket`, which request new volumes in `zone`;
    /// empty: anywhere. They connect with the first call.
    pub fn new(socket: &Path, zone: &str) -> Result<Self> {
        Ok(Self {
            controller: ControllerClient::new(channel(socket)?),
            groups: GroupControllerClient::new(channel(socket)?),
            zone: zone.to_owned(),
            provisioner: RetryPolicy::PROVISIONER,
            attacher: RetryPolicy::ATTACHER,
            attempts: Attempts::default(),
        })
    }

    /// Returns the generated client, for calls that this type does not make.
    pub fn controller(&self) -> ControllerClient<Channel> {
        self.controller.clone()
    }

    /// Returns the request that [`create`](Self::create) sends.
    pub fn create_request(&self, claim: &Claim) -> csi::CreateVolumeRequest {
        let segments = HashMap::from([(ZONE_KEY.to_owned(), self.zone.clone())]);
        let zone = vec![csi::Topology { segments }];
        let requirement = csi::TopologyRequirement { requisite: zone.clone(), preferred: zone };
        csi::CreateVolumeRequest {
            name: claim.name.clone(),
            capacity_range: Some(csi::CapacityRange {
                required_bytes: claim.bytes,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![claim.content.capability()],
            parameters: claim.parameters.clone(),
            volume_content_source: claim.content_source(),
            accessibility_requirements: (!self.zone.is_empty()).then_some(requirement),
            ..csi::CreateVolumeRequest::default()
        }
    }

    /// Calls CreateVolume.
    pub async fn create(&self, claim: &Claim) -> Result<Volume> {
        let message = self.create_request(claim);
        let reply = call!(self.controller, provisioner, create_volume, message)?;
        let violation = |what: String| CoError::violation("CreateVolume", what);
        let volume = reply.volume.ok_or_else(|| violation("the reply has no volume".to_owned()))?;
        if volume.volume_id.is_empty() {
            return Err(violation("the volume id is empty".to_owned()));
        }
        if volume.capacity_bytes < claim.bytes {
            return Err(violation(format!(
                "{} bytes were asked for and {} made",
                claim.bytes, volume.capacity_bytes
            )));
        }
        Ok(Volume {
            bytes: volume.capacity_bytes,
            context: volume.volume_context,
            topology: volume.accessible_topology.into_iter().next().unwrap_or_default().segments,
            ..claim.volume(volume.volume_id)
        })
    }

    /// Calls DeleteVolume.
    pub async fn delete(&self, volume_id: &str) -> Result<()> {
        let message =
            csi::DeleteVolumeRequest { volume_id: volume_id.to_owned(), ..Default::default() };
        call!(self.controller, provisioner, delete_volume, message).map(drop)
    }

    /// Calls ControllerPublishVolume.
    pub async fn attach(&self, volume: &Volume, node_id: &str) -> Result<Attachment> {
        let message = csi::ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node_id.to_owned(),
            volume_capability: Some(volume.content.capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        let reply = call!(self.controller, attacher, controller_publish_volume, message)?;
        if !reply.publish_context.contains_key("devicePath") {
            return Err(CoError::violation(
                "ControllerPublishVolume",
                "publish_context lacks devicePath",
            ));
        }
        Ok(reply.publish_context)
    }

    /// Calls ControllerUnpublishVolume.
    pub async fn detach(&self, volume_id: &str, node_id: &str) -> Result<()> {
        let message = csi::ControllerUnpublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            node_id: node_id.to_owned(),
            ..Default::default()
        };
        call!(self.controller, attacher, controller_unpublish_volume, message).map(drop)
    }

    /// Calls ControllerExpandVolume for at least `bytes` and stores the new size in `volume`.
    /// Returns whether the node must grow the file system.
    pub async fn expand(&self, volume: &mut Volume, bytes: i64) -> Result<bool> {
        let message = csi::ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: Some(csi::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capability: Some(volume.content.capability()),
            ..Default::default()
        };
        let reply = call!(self.controller, provisioner, controller_expand_volume, message)?;
        if reply.capacity_bytes < bytes {
            return Err(CoError::violation(
                "ControllerExpandVolume",
                format!("{bytes} bytes were asked for and {} reported", reply.capacity_bytes),
            ));
        }
        volume.bytes = reply.capacity_bytes;
        Ok(reply.node_expansion_required)
    }

    /// Calls ControllerModifyVolume with the parameters of a VolumeAttributesClass.
    pub async fn modify(&self, volume_id: &str, parameters: &[(&str, &str)]) -> Result<()> {
        let message = csi::ControllerModifyVolumeRequest {
            volume_id: volume_id.to_owned(),
            mutable_parameters: owned(parameters),
            ..Default::default()
        };
        call!(self.controller, provisioner, controller_modify_volume, message).map(drop)
    }

    /// Calls CreateSnapshot with the parameters of a VolumeSnapshotClass, and returns as soon as it
    /// succeeds: the snapshot may not be ready.
    pub async fn snapshot(
        &self,
        name: &str,
        volume_id: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Snapshot> {
        let message = csi::CreateSnapshotRequest {
            source_volume_id: volume_id.to_owned(),
            name: name.to_owned(),
            parameters: owned(parameters),
            ..Default::default()
        };
        let reply = call!(self.controller, provisioner, create_snapshot, message)?;
        let snapshot = reply
            .snapshot
            .ok_or_else(|| CoError::violation("CreateSnapshot", "the reply has no snapshot"))?;
        Ok(Snapshot { id: snapshot.snapshot_id, ready: snapshot.ready_to_use })
    }

    /// Calls CreateVolumeGroupSnapshot and returns as soon as it succeeds: the snapshots may not be
    /// ready.
    pub async fn snapshot_together(
        &self,
        name: &str,
        volume_ids: &[String],
    ) -> Result<Vec<Snapshot>> {
        let message = csi::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volume_ids.to_vec(),
            ..Default::default()
        };
        let reply = call!(self.groups, provisioner, create_volume_group_snapshot, message)?;
        let group = reply.group_snapshot.ok_or_else(|| {
            CoError::violation("CreateVolumeGroupSnapshot", "the reply has no group")
        })?;
        let snapshots = group.snapshots.into_iter();
        Ok(snapshots.map(|it| Snapshot { id: it.snapshot_id, ready: it.ready_to_use }).collect())
    }

    /// Repeats CreateSnapshot, as external-snapshotter does, until the snapshot is ready: at most
    /// for two minutes, and with the same id in each answer.
    pub async fn snapshot_ready(&self, name: &str, volume_id: &str) -> Result<Snapshot> {
        let violation = |what: String| CoError::violation("CreateSnapshot", what);
        let first = self.snapshot(name, volume_id, &[]).await?;
        let mut found = first.clone();
        for _ in 0..240 {
            if found.id != first.id {
                return Err(violation(format!(
                    "the same name gave {} and then {}",
                    first.id, found.id
                )));
            }
            if found.ready {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            found = self.snapshot(name, volume_id, &[]).await?;
        }
        Err(violation(format!("{} is not ready after two minutes", first.id)))
    }

    /// Calls DeleteSnapshot.
    pub async fn delete_snapshot(&self, snapshot_id: &str) -> Result<()> {
        let message = csi::DeleteSnapshotRequest {
            snapshot_id: snapshot_id.to_owned(),
            ..Default::default()
        };
        call!(self.controller, provisioner, delete_snapshot, message).map(drop)
    }
}

fn owned(parameters: &[(&str, &str)]) -> HashMap<String, String> {
    parameters.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}
