//! A node's orchestrator side: kubelet's calls to the CSI Node service, and the files and
//! directories that kubelet itself makes and removes around each call.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use csi::node_client::NodeClient;
use ebs_csi_proto::{DRIVER_NAME, csi};
use tonic::transport::Channel;

use super::attempt::{Attempts, CoError, RetryPolicy, call};
use super::sidecars::Attachment;
use super::volume::Volume;
use super::{channel, kubelet_paths};

/// One node's kubelet.
#[derive(Clone, Debug)]
pub struct Kubelet {
    node: NodeClient<Channel>,
    root: PathBuf,
    /// The retry policy of each call.
    pub retry_policy: RetryPolicy,
    /// The record of all calls.
    pub attempts: Attempts,
}

/// A volume published to a pod.
#[derive(Clone, Debug)]
pub struct Published {
    /// The target path: a directory, or a device's file.
    pub path: PathBuf,
}

impl Kubelet {
    /// Returns the kubelet for the node plugin at `socket` and the kubelet directory `root`. It
    /// connects with the first call.
    pub fn new(socket: &Path, root: &Path) -> Result<Self, CoError> {
        Ok(Self {
            node: NodeClient::new(channel(socket)?),
            root: root.to_owned(),
            retry_policy: RetryPolicy::KUBELET,
            attempts: Attempts::default(),
        })
    }

    /// Returns the generated client, for calls that this type does not make.
    pub fn node(&self) -> NodeClient<Channel> {
        self.node.clone()
    }

    /// Returns the kubelet directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Calls NodeGetInfo.
    pub async fn info(&self) -> Result<csi::NodeGetInfoResponse, CoError> {
        call!(self.node, retry_policy, node_get_info, csi::NodeGetInfoRequest {})
    }

    /// Returns the staging path of `volume` on this node.
    pub fn staging_path(&self, volume: &Volume) -> PathBuf {
        if volume.is_block() {
            kubelet_paths::block_staging(&self.root, &volume.name)
        } else {
            kubelet_paths::staging(&self.root, &volume.id)
        }
    }

    /// Returns the target path of `volume` for `pod`.
    pub fn target_path(&self, volume: &Volume, pod: &str) -> PathBuf {
        if volume.is_block() {
            kubelet_paths::block_target(&self.root, pod, &volume.name)
        } else {
            kubelet_paths::target(&self.root, pod, &volume.name)
        }
    }

    /// Returns the request that [`stage`](Self::stage) sends.
    pub fn stage_request(
        &self,
        volume: &Volume,
        attachment: &Attachment,
    ) -> Result<csi::NodeStageVolumeRequest, CoError> {
        Ok(csi::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: attachment.context.clone(),
            staging_target_path: text(&self.staging_path(volume))?,
            volume_capability: Some(volume.capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        })
    }

    /// Makes the staging directory, as kubelet does before it stages. [`stage`](Self::stage) calls
    /// this function.
    pub fn prepare_stage(&self, volume: &Volume) -> Result<PathBuf, CoError> {
        let path = self.staging_path(volume);
        make_directory(&path)?;
        if !volume.is_block() {
            let note = serde_json::json!({ "driverName": DRIVER_NAME, "volumeHandle": volume.id });
            let file =
                kubelet_paths::device_mount_parent(&self.root, &volume.id).join("vol_data.json");
            fs::write(&file, note.to_string())
                .map_err(|e| CoError::own(format!("writing {}", file.display()), e))?;
        }
        Ok(path)
    }

    /// Calls NodeStageVolume. Returns the staging path.
    pub async fn stage(
        &self,
        volume: &Volume,
        attachment: &Attachment,
    ) -> Result<PathBuf, CoError> {
        let path = self.prepare_stage(volume)?;
        let message = self.stage_request(volume, attachment)?;
        call!(self.node, retry_policy, node_stage_volume, message)?;
        Ok(path)
    }

    /// Calls NodePublishVolume for `pod`.
    pub async fn publish(
        &self,
        volume: &Volume,
        attachment: &Attachment,
        pod: &str,
        readonly: bool,
    ) -> Result<Published, CoError> {
        let path = self.target_path(volume, pod);
        // Kubelet makes the parent, the driver makes the target itself (csi.proto,
        // NodePublishVolumeRequest.target_path).
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        let message = csi::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: attachment.context.clone(),
            staging_target_path: text(&self.staging_path(volume))?,
            target_path: text(&path)?,
            volume_capability: Some(volume.capability()),
            readonly,
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        call!(self.node, retry_policy, node_publish_volume, message)?;
        Ok(Published { path })
    }

    /// Calls NodeUnpublishVolume for `pod`, then removes the pod's directory of the volume.
    pub async fn unpublish(&self, volume: &Volume, pod: &str) -> Result<(), CoError> {
        let path = self.target_path(volume, pod);
        let message = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: text(&path)?,
        };
        call!(self.node, retry_policy, node_unpublish_volume, message)?;
        if fs::symlink_metadata(&path).is_ok() {
            return Err(CoError::violation(
                "NodeUnpublishVolume",
                format!("{} still exists", path.display()),
            ));
        }
        path.parent().map_or(Ok(()), remove_directory)
    }

    /// Calls NodeUnstageVolume, then removes the staging directory.
    pub async fn unstage(&self, volume: &Volume) -> Result<(), CoError> {
        let path = self.staging_path(volume);
        let message = csi::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&path)?,
        };
        call!(self.node, retry_policy, node_unstage_volume, message)?;
        remove_directory(&path)?;
        if volume.is_block() {
            return Ok(());
        }
        let parent = kubelet_paths::device_mount_parent(&self.root, &volume.id);
        let note = parent.join("vol_data.json");
        match fs::remove_file(&note) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(CoError::own(format!("removing {}", note.display()), e));
            }
            _ => {}
        }
        remove_directory(&parent)
    }

    /// Calls NodeExpandVolume for a published volume, with the size in `volume`. Returns the size
    /// that the node reports, in bytes.
    pub async fn expand(&self, volume: &Volume, target: &Published) -> Result<i64, CoError> {
        let message = csi::NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: text(&target.path)?,
            capacity_range: Some(csi::CapacityRange {
                required_bytes: volume.bytes,
                limit_bytes: 0,
            }),
            staging_target_path: text(&self.staging_path(volume))?,
            volume_capability: Some(volume.capability()),
            ..Default::default()
        };
        let reply = call!(self.node, retry_policy, node_expand_volume, message)?;
        Ok(reply.capacity_bytes)
    }

    /// Calls NodeGetVolumeStats for a published volume.
    pub async fn stats(
        &self,
        volume: &Volume,
        target: &Published,
    ) -> Result<Vec<csi::VolumeUsage>, CoError> {
        let message = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: text(&target.path)?,
            staging_target_path: text(&self.staging_path(volume))?,
        };
        let reply = call!(self.node, retry_policy, node_get_volume_stats, message)?;
        Ok(reply.usage)
    }
}

fn text(path: &Path) -> Result<String, CoError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| CoError::own(format!("naming {}", path.display()), "it is not UTF-8"))
}

fn make_directory(path: &Path) -> Result<(), CoError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)
        .map_err(|e| CoError::own(format!("making {}", path.display()), e))
}

fn remove_directory(path: &Path) -> Result<(), CoError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(CoError::own(format!("removing {}", path.display()), e)),
    }
}
