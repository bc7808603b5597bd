//! The work of each call: parse the request, wait for a turn, call the helper.

use std::sync::Arc;

use ebs_csi_proto::csi;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire as wire;
use ebs_csi_wire::{KubeletPath, Operation, VolumeId};

use super::Options;
use super::queue::Queue;
use super::usage::{self, KnownUsage};
use crate::attach_limit::Attachments;
use crate::deadline::Deadline;
use crate::facts::live_facts::LiveFacts;
use crate::helper::Helper;
use crate::helper::call_failure::{NodeCall, failure};
use crate::metrics::Metrics;
use crate::request::{self, Handle, VolumeAtPath};

/// The state that the calls need.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) facts: Arc<LiveFacts>,
    pub(super) options: Options,
    pub(super) attachments: Attachments,
    pub(super) helper: Arc<Helper>,
    pub(super) queue: Queue,
    pub(super) known: KnownUsage,
    pub(super) metrics: Arc<Metrics>,
}

impl Calls {
    pub(super) async fn stage(
        &self,
        request: &csi::NodeStageVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeStageVolumeResponse, Failure> {
        let done = csi::NodeStageVolumeResponse {};
        let Some(stage) = request::stage(request, self.options.legacy_xfs)? else {
            // A publish uses the device itself; there is nothing to prepare.
            return Ok(done);
        };
        let (volume, path) = (stage.disk.volume.clone(), stage.staging.clone());
        let _turn = self.queue.exclusive(NodeCall::Stage, &volume, deadline).await?;
        let staged = self
            .helper
            .send(stage, deadline)
            .await
            .map_err(|e| failure(NodeCall::Stage, &volume, &path, &e, deadline))?;
        tracing::info!(
            volume.id = %volume,
            already = staged.already,
            formatted = staged.formatted,
            checked = staged.checked,
            replayed = staged.replayed,
            repaired = staged.repaired,
            grown = staged.grown,
            device_bytes = staged.device_bytes,
            "staged"
        );
        if staged.repaired {
            tracing::warn!(volume.id = %volume, "the file system had errors, which were repaired");
        }
        if staged.untold {
            self.metrics.staged_with_unknown_origin();
            tracing::warn!(
                volume.id = %volume,
                "the controller did not say where the file system was made (another driver attached the volume, or its snapshot is gone): \
                 it was mounted without the full check of what was made elsewhere"
            );
        }
        Ok(done)
    }

    pub(super) async fn unstage(
        &self,
        request: &csi::NodeUnstageVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeUnstageVolumeResponse, Failure> {
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        let place = request::place(id, "staging_target_path", path)?;
        let done = csi::NodeUnstageVolumeResponse {};
        let Some(volume) = self.volume_at(NodeCall::Unstage, &place, deadline).await? else {
            // This driver cannot have staged anything there.
            return Ok(done);
        };
        let _turn = self.queue.exclusive(NodeCall::Unstage, &volume, deadline).await?;
        let request = wire::Unstage { volume: volume.clone(), staging: place.path.clone() };
        let released =
            self.perform(NodeCall::Unstage, request, &volume, &place.path, deadline).await?;
        if released.copied {
            self.metrics.released_beside_copy();
            tracing::warn!(
                volume.id = %volume,
                "files of the volume are open in another mount namespace (a container that mounts / or /var/lib of the node without \
                 mount propagation): the file system was written back and made read-only there, and the volume is released"
            );
        }
        if self.known.remove_volume(&volume) {
            self.metrics.filesystem_answers(volume.as_str());
        }
        self.metrics.filesystem_damaged(volume.as_str(), false);
        Ok(done)
    }

    pub(super) async fn publish(
        &self,
        request: &csi::NodePublishVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodePublishVolumeResponse, Failure> {
        let publishing = request::publish(request)?;
        let (volume, target) = (&publishing.volume, &publishing.target);
        let _turn = if publishing.single {
            let turn = self.queue.exclusive(NodeCall::Publish, volume, deadline).await?;
            self.refuse_second_target(volume, target, deadline).await?;
            turn
        } else {
            self.queue.shared(NodeCall::Publish, volume, deadline).await?
        };
        self.perform(NodeCall::Publish, publishing.operation, volume, target, deadline).await?;
        Ok(csi::NodePublishVolumeResponse {})
    }

    pub(super) async fn unpublish(
        &self,
        request: &csi::NodeUnpublishVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeUnpublishVolumeResponse, Failure> {
        let place = request::place(&request.volume_id, "target_path", &request.target_path)?;
        let done = csi::NodeUnpublishVolumeResponse {};
        let Some(volume) = self.volume_at(NodeCall::Unpublish, &place, deadline).await? else {
            return Ok(done);
        };
        let _turn = self.queue.shared(NodeCall::Unpublish, &volume, deadline).await?;
        let request = wire::Unpublish { volume: volume.clone(), target: place.path.clone() };
        self.perform(NodeCall::Unpublish, request, &volume, &place.path, deadline).await?;
        self.known.remove_path(&place.path);
        Ok(done)
    }

    pub(super) async fn expand(
        &self,
        request: &csi::NodeExpandVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeExpandVolumeResponse, Failure> {
        let growing = request::expand(request)?;
        let path = &growing.place.path;
        let volume = self
            .volume_at(NodeCall::Expand, &growing.place, deadline)
            .await?
            .ok_or_else(|| not_at(&request.volume_id, path))?;
        let _turn = self.queue.exclusive(NodeCall::Expand, &volume, deadline).await?;
        let expand = wire::Expand {
            volume: volume.clone(),
            path: path.clone(),
            required_bytes: growing.required_bytes,
            limit_bytes: growing.limit_bytes,
        };
        let expanded = self
            .helper
            .send(expand, deadline)
            .await
            .map_err(|e| failure(NodeCall::Expand, &volume, path, &e, deadline))?;
        Ok(csi::NodeExpandVolumeResponse { capacity_bytes: usage::signed(expanded.device_bytes) })
    }

    async fn perform(
        &self,
        call: NodeCall,
        operation: impl Into<Operation>,
        volume: &VolumeId,
        path: &KubeletPath,
        deadline: Deadline,
    ) -> Result<wire::Done, Failure> {
        self.helper
            .send_operation(operation.into(), deadline)
            .await
            .map_err(|e| failure(call, volume, path, &e, deadline))
    }

    /// Returns the EBS volume of a request that has an id and a path; `None` when there is none.
    pub(super) async fn volume_at(
        &self,
        call: NodeCall,
        place: &VolumeAtPath,
        deadline: Deadline,
    ) -> Result<Option<VolumeId>, Failure> {
        match &place.handle {
            Handle::Volume(volume) => Ok(Some(volume.clone())),
            Handle::Unknown => Ok(None),
            Handle::NodeLocal => {
                let held = self.helper.held(deadline).await.map_err(|e| {
                    failure(call, &"a node-local volume", &place.path, &e, deadline)
                })?;
                let here = held.into_iter().find(|entry| entry.path == place.path);
                Ok(here.map(|entry| entry.volume))
            }
        }
    }

    /// Refuses a second target of a SINGLE_NODE_SINGLE_WRITER volume.
    async fn refuse_second_target(
        &self,
        volume: &VolumeId,
        target: &KubeletPath,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let held = self
            .helper
            .held(deadline)
            .await
            .map_err(|e| failure(NodeCall::Publish, volume, target, &e, deadline))?;
        let is_other = |entry: &&wire::HeldVolume| {
            !entry.staged && entry.volume == *volume && entry.path != *target
        };
        match held.iter().find(is_other) {
            None => Ok(()),
            Some(entry) => Err(Failure::new(
                Condition::InUse,
                format!(
                    "publishing {volume} at {target}: it is published at {} and its access mode allows one place only; unpublish it there first",
                    entry.path
                ),
            )),
        }
    }
}

pub(super) fn not_at(id: &str, path: &KubeletPath) -> Failure {
    let id: String = id.chars().take(64).collect();
    Failure::new(
        Condition::NotFound,
        format!("volume {id:?} is not at {path}; name a path where it is staged or published"),
    )
}
