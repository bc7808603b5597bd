//! A node's orchestrator side: kubelet's calls to the CSI Node service, and the files and
//! directories that kubelet itself makes and removes around each call.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use csi::node_client::NodeClient;
use ebs_csi_proto::{DRIVER_NAME, csi};
use sha2::{Digest, Sha256};
use tonic::transport::Channel;

use super::attempt::{Attempts, CoError, Result, RetryPolicy, call};
use super::channel;
use super::sidecars::Attachment;
use super::volume::Volume;

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

/// The directories of CSI volumes beneath kubelet's (Kubernetes `pkg/volume/csi`, as public
/// behaviour).
const CSI: &str = "plugins/kubernetes.io/csi";
const BLOCK: &str = "plugins/kubernetes.io/csi/volumeDevices";

impl Kubelet {
    /// Returns the kubelet for the node plugin at `socket` and the kubelet directory `root`. It
    /// connects with the first call.
    pub fn new(socket: &Path, root: &Path) -> Result<Self> {
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
    pub async fn info(&self) -> Result<csi::NodeGetInfoResponse> {
        call!(self.node, retry_policy, node_get_info, csi::NodeGetInfoRequest {})
    }

    /// Returns the staging path of `volume` on this node.
    pub fn staging_path(&self, volume: &Volume) -> PathBuf {
        match volume.is_block() {
            true => self.root.join(BLOCK).join("staging").join(&volume.name),
            false => self.device_mount(volume).join("globalmount"),
        }
    }

    /// Returns the directory of a volume's device mount, which holds `globalmount` and
    /// `vol_data.json`.
    fn device_mount(&self, volume: &Volume) -> PathBuf {
        let digest = Sha256::digest(volume.id.as_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.root.join(CSI).join(DRIVER_NAME).join(name)
    }

    /// Returns the target path of `volume` for `pod`: a directory, or a device's file.
    pub fn target_path(&self, volume: &Volume, pod: &str) -> PathBuf {
        if volume.is_block() {
            return self.root.join(BLOCK).join("publish").join(&volume.name).join(pod);
        }
        let volumes = self.root.join("pods").join(pod).join("volumes/kubernetes.io~csi");
        volumes.join(&volume.name).join("mount")
    }

    /// Returns the request that [`stage`](Self::stage) sends.
    pub fn stage_request(
        &self,
        volume: &Volume,
        attachment: &Attachment,
    ) -> Result<csi::NodeStageVolumeRequest> {
        Ok(csi::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: attachment.clone(),
            staging_target_path: text(&self.staging_path(volume))?,
            volume_capability: Some(volume.content.capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        })
    }

    /// Makes the staging directory, as kubelet does before it stages. [`stage`](Self::stage) calls
    /// this function.
    pub fn prepare_stage(&self, volume: &Volume) -> Result<PathBuf> {
        let path = self.staging_path(volume);
        make_directory(&path)?;
        if !volume.is_block() {
            let note = serde_json::json!({ "driverName": DRIVER_NAME, "volumeHandle": volume.id });
            let file = self.device_mount(volume).join("vol_data.json");
            fs::write(&file, note.to_string())
                .map_err(|e| CoError::own(format!("writing {}", file.display()), e))?;
        }
        Ok(path)
    }

    /// Calls NodeStageVolume. Returns the staging path.
    pub async fn stage(&self, volume: &Volume, attachment: &Attachment) -> Result<PathBuf> {
        let path = self.prepare_stage(volume)?;
        let message = self.stage_request(volume, attachment)?;
        call!(self.node, retry_policy, node_stage_volume, message)?;
        Ok(path)
    }

    /// Calls NodePublishVolume for `pod`. Returns the target path.
    pub async fn publish(
        &self,
        volume: &Volume,
        attachment: &Attachment,
        pod: &str,
        readonly: bool,
    ) -> Result<PathBuf> {
        let path = self.target_path(volume, pod);
        // Kubelet makes the parent, the driver makes the target itself (csi.proto,
        // NodePublishVolumeRequest.target_path).
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        let message = csi::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: attachment.clone(),
            staging_target_path: text(&self.staging_path(volume))?,
            target_path: text(&path)?,
            volume_capability: Some(volume.content.capability()),
            readonly,
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        call!(self.node, retry_policy, node_publish_volume, message)?;
        Ok(path)
    }

    /// Calls NodeUnpublishVolume for `pod`, then removes the pod's directory of the volume.
    pub async fn unpublish(&self, volume: &Volume, pod: &str) -> Result<()> {
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
        path.parent().map_or(Ok(()), |parent| removed(parent, fs::remove_dir(parent)))
    }

    /// Calls NodeUnstageVolume, then removes the staging directory.
    pub async fn unstage(&self, volume: &Volume) -> Result<()> {
        let path = self.staging_path(volume);
        let message = csi::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&path)?,
        };
        call!(self.node, retry_policy, node_unstage_volume, message)?;
        removed(&path, fs::remove_dir(&path))?;
        if volume.is_block() {
            return Ok(());
        }
        let parent = self.device_mount(volume);
        let note = parent.join("vol_data.json");
        removed(&note, fs::remove_file(&note))?;
        removed(&parent, fs::remove_dir(&parent))
    }

    /// Calls NodeExpandVolume for a published volume, with the size in `volume`. Returns the size
    /// that the node reports, in bytes.
    pub async fn expand(&self, volume: &Volume, target: &Path) -> Result<i64> {
        let message = csi::NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: text(target)?,
            capacity_range: Some(csi::CapacityRange {
                required_bytes: volume.bytes,
                limit_bytes: 0,
            }),
            staging_target_path: text(&self.staging_path(volume))?,
            volume_capability: Some(volume.content.capability()),
            ..Default::default()
        };
        let reply = call!(self.node, retry_policy, node_expand_volume, message)?;
        Ok(reply.capacity_bytes)
    }

    /// Calls NodeGetVolumeStats for a published volume.
    pub async fn stats(&self, volume: &Volume, target: &Path) -> Result<Vec<csi::VolumeUsage>> {
        let message = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: text(target)?,
            staging_target_path: text(&self.staging_path(volume))?,
        };
        let reply = call!(self.node, retry_policy, node_get_volume_stats, message)?;
        Ok(reply.usage)
    }
}

fn text(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| CoError::own(format!("naming {}", path.display()), "it is not UTF-8"))
}

fn make_directory(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)
        .map_err(|e| CoError::own(format!("making {}", path.display()), e))
}

/// Returns the error of a removal, unless nothing was at the path.
fn removed(path: &Path, result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(CoError::own(format!("removing {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::co::Claim;

    fn kubelet() -> Kubelet {
        Kubelet::new(Path::new("/csi.sock"), Path::new("/k")).unwrap()
    }

    #[tokio::test]
    async fn staging_path_contains_sha256_of_volume_id() {
        let volume = Claim::filesystem("pv", "ext4", 1).volume("vol-0123456789abcdef0".to_owned());
        // printf vol-0123456789abcdef0 | sha256sum
        let digest = "7f0b2e31ddb1b3a849f76dd4a2ae35279a9d823391976605d7dcd0e593f57812";
        let expected = format!("/k/plugins/kubernetes.io/csi/ebs.csi.aws.com/{digest}/globalmount");
        assert_eq!(kubelet().staging_path(&volume), Path::new(&expected));
    }

    #[tokio::test]
    async fn pod_and_block_paths_match_kubelet_layout() {
        let mounted = Claim::filesystem("pv", "ext4", 1).volume("vol-1".to_owned());
        let target = Path::new("/k/pods/p/volumes/kubernetes.io~csi/pv/mount");
        assert_eq!(kubelet().target_path(&mounted, "p"), target);
        let raw = Claim::block("pv", 1).volume("vol-1".to_owned());
        let devices = Path::new("/k/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(kubelet().staging_path(&raw), devices.join("staging/pv"));
        assert_eq!(kubelet().target_path(&raw, "p"), devices.join("publish/pv/p"));
    }
}
