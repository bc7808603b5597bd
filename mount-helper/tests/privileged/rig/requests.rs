//! Requests that a node-agent sends.
use super::{AGENT, Client, LONG, Rig, connect};
use ebs_csi_wire::{
    Disk, Expand, FormatOptions, FsType, Operation, Origin, Outcome, PublishBlock,
    PublishFilesystem, Source, Stage, Stats, Unpublish, Unstage, VolumeId,
};

impl Rig {
    pub(crate) fn client(&self) -> Client {
        Client::greeted(connect(&self.socket(), AGENT))
    }

    pub(crate) fn ask(&self, operation: Operation) -> Outcome {
        self.client().ask(operation, LONG)
    }

    pub(crate) fn stage(&self, volume: &VolumeId, fs: FsType) -> Outcome {
        self.ask(Operation::Stage(self.staging(volume, fs)))
    }

    /// Returns a plain staging request.
    pub(crate) fn staging(&self, volume: &VolumeId, fs: FsType) -> Stage {
        Stage {
            disk: disk(volume),
            staging: self.kubelet(&staging(volume)),
            fs,
            read_only: false,
            flags: Vec::new(),
            format: FormatOptions::default(),
        }
    }

    pub(crate) fn unstage(&self, volume: &VolumeId) -> Outcome {
        self.ask(Operation::Unstage(Unstage {
            volume: volume.clone(),
            staging: self.kubelet(&staging(volume)),
        }))
    }

    /// Returns a plain publish request.
    pub(crate) fn publishing(&self, volume: &VolumeId, pod: &str) -> PublishFilesystem {
        PublishFilesystem {
            disk: disk(volume),
            staging: self.kubelet(&staging(volume)),
            target: self.kubelet(&target(volume, pod)),
            read_only: false,
            flags: Vec::new(),
        }
    }

    pub(crate) fn publish(&self, volume: &VolumeId, pod: &str) -> Outcome {
        self.ask(Operation::PublishFilesystem(self.publishing(volume, pod)))
    }

    pub(crate) fn publish_block(&self, volume: &VolumeId, pod: &str) -> Outcome {
        self.ask(Operation::PublishBlock(PublishBlock {
            disk: disk(volume),
            target: self.kubelet(&block_target(volume, pod)),
            read_only: false,
        }))
    }

    pub(crate) fn unpublish(&self, volume: &VolumeId, target: &str) -> Outcome {
        self.ask(Operation::Unpublish(Unpublish {
            volume: volume.clone(),
            target: self.kubelet(target),
        }))
    }

    pub(crate) fn expand(&self, volume: &VolumeId, path: &str) -> Outcome {
        self.ask(Operation::Expand(Expand {
            volume: volume.clone(),
            path: self.kubelet(path),
            required_bytes: None,
            limit_bytes: None,
        }))
    }

    pub(crate) fn stats(&self, volume: &VolumeId, path: &str) -> Outcome {
        self.ask(Operation::Stats(Stats { volume: volume.clone(), path: self.kubelet(path) }))
    }
}

pub(crate) fn staging(volume: &VolumeId) -> String {
    format!("plugins/kubernetes.io/csi/ebs.csi.aws.com/{volume}/globalmount")
}

pub(crate) fn target(volume: &VolumeId, pod: &str) -> String {
    format!("pods/{pod}/volumes/kubernetes.io~csi/{volume}/mount")
}

pub(crate) fn block_target(volume: &VolumeId, pod: &str) -> String {
    format!("plugins/kubernetes.io/csi/volumeDevices/publish/{volume}/{pod}")
}

pub(crate) fn disk(volume: &VolumeId) -> Disk {
    Disk {
        volume: volume.clone(),
        device_hint: None,
        partition: None,
        size_at_attach: None,
        origin: Origin::Blank,
        source: Source::Elsewhere,
    }
}
