//! Requests for the node service that it accepts.

#![allow(dead_code)]

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};

pub(crate) const VOLUME: &str = "vol-0123456789abcdef0";
pub(crate) const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/d/h/globalmount";
pub(crate) const TARGET: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount";

pub(crate) fn mount(fs_type: &str, flags: &[&str]) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..Default::default()
        })),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
    }
}

pub(crate) fn block() -> csi::VolumeCapability {
    csi::VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mount("", &[]) }
}

pub(crate) fn with_mode(capability: csi::VolumeCapability, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability { access_mode: Some(AccessMode { mode: mode as i32 }), ..capability }
}

pub(crate) fn single_writer() -> csi::VolumeCapability {
    with_mode(mount("", &[]), Mode::SingleNodeSingleWriter)
}

pub(crate) fn stage() -> csi::NodeStageVolumeRequest {
    csi::NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount("", &[])),
        publish_context: [("devicePath".to_owned(), "/dev/xvdaa".to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) fn publish() -> csi::NodePublishVolumeRequest {
    csi::NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        target_path: TARGET.to_owned(),
        volume_capability: Some(mount("", &[])),
        publish_context: [("devicePath".to_owned(), "/dev/xvdaa".to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) fn stats() -> csi::NodeGetVolumeStatsRequest {
    csi::NodeGetVolumeStatsRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn expand() -> csi::NodeExpandVolumeRequest {
    csi::NodeExpandVolumeRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn unstage() -> csi::NodeUnstageVolumeRequest {
    csi::NodeUnstageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
    }
}

pub(crate) fn unpublish() -> csi::NodeUnpublishVolumeRequest {
    csi::NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path: TARGET.to_owned() }
}
