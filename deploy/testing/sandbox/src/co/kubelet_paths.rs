//! Kubelet's paths for CSI volumes (Kubernetes `pkg/volume/csi`, as public behaviour).

use std::path::{Path, PathBuf};

use ebs_csi_proto::DRIVER_NAME;
use sha2::{Digest, Sha256};

/// Returns the directory of a volume's device mount, which holds `globalmount` and `vol_data.json`.
pub(crate) fn device_mount_parent(root: &Path, volume_id: &str) -> PathBuf {
    let digest = Sha256::digest(volume_id.as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    root.join("plugins/kubernetes.io/csi").join(DRIVER_NAME).join(name)
}

pub(crate) fn staging(root: &Path, volume_id: &str) -> PathBuf {
    device_mount_parent(root, volume_id).join("globalmount")
}

pub(crate) fn target(root: &Path, pod: &str, volume_name: &str) -> PathBuf {
    root.join("pods").join(pod).join("volumes/kubernetes.io~csi").join(volume_name).join("mount")
}

pub(crate) fn block_staging(root: &Path, volume_name: &str) -> PathBuf {
    root.join("plugins/kubernetes.io/csi/volumeDevices/staging").join(volume_name)
}

/// Returns the target path (a file) of a raw block volume for one pod.
pub(crate) fn block_target(root: &Path, pod: &str, volume_name: &str) -> PathBuf {
    root.join("plugins/kubernetes.io/csi/volumeDevices/publish").join(volume_name).join(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_path_contains_sha256_of_volume_id() {
        // printf vol-0123456789abcdef0 | sha256sum
        let path = staging(Path::new("/var/lib/kubelet"), "vol-0123456789abcdef0");
        let text = path.to_str().unwrap();
        assert!(
            text.starts_with("/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/"),
            "{text}"
        );
        assert!(text.ends_with("/globalmount"), "{text}");
        assert!(
            text.contains("/7f0b2e31ddb1b3a849f76dd4a2ae35279a9d823391976605d7dcd0e593f57812/"),
            "{text}"
        );
    }

    #[test]
    fn pod_and_block_paths_match_kubelet_layout() {
        let root = Path::new("/k");
        assert_eq!(
            target(root, "p", "pv"),
            Path::new("/k/pods/p/volumes/kubernetes.io~csi/pv/mount")
        );
        assert_eq!(
            block_staging(root, "pv"),
            Path::new("/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv")
        );
        assert_eq!(
            block_target(root, "p", "pv"),
            Path::new("/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv/p")
        );
    }
}
