//! Requests that a node-agent sends.
use super::{AGENT, Client, LONG, Rig, connect, done, staged};
use ebs_csi_policy::format_option;
use ebs_csi_wire::{
    Disk, Expand, FormatOption, FsType, Inspect, Inventory, Operation, Origin, Outcome,
    PublishBlock, PublishFilesystem, Source, Stage, Stats, Unpublish, Unstage, VolumeId,
};
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

impl Rig {
    pub(crate) fn client(&self) -> Client {
        Client::greeted(connect(&self.socket(), AGENT))
    }

    /// Sends a request over a new connection, and returns the answer.
    pub(crate) fn call(&self, operation: Operation) -> Outcome {
        self.client().call(operation, LONG)
    }

    /// Sends a request that reaches a fault point, and returns its client when it is held there.
    pub(crate) fn call_until(&self, point: &str, operation: Operation) -> Client {
        let mut client = self.client();
        client.send(operation, LONG);
        self.wait_for_point(point);
        client
    }

    pub(crate) fn stage(&self, volume: &VolumeId, fs: FsType) -> Outcome {
        self.call(self.stage_operation(volume, fs))
    }

    pub(crate) fn stage_operation(&self, volume: &VolumeId, fs: FsType) -> Operation {
        Operation::Stage(self.stage_request(volume, fs))
    }

    /// Stages a volume by a request that differs from the plain one.
    pub(crate) fn stage_with(
        &self,
        volume: &VolumeId,
        fs: FsType,
        change: impl FnOnce(&mut Stage),
    ) -> Outcome {
        let mut request = self.stage_request(volume, fs);
        change(&mut request);
        self.call(Operation::Stage(request))
    }

    /// Stages a volume that was created from a snapshot.
    pub(crate) fn stage_copy(&self, volume: &VolumeId, fs: FsType) -> Outcome {
        self.stage_with(volume, fs, |request| request.disk.origin = Origin::Copy)
    }

    pub(crate) fn stage_part(&self, volume: &VolumeId, fs: FsType, part: u32) -> Outcome {
        self.stage_with(volume, fs, |request| request.disk.partition = NonZeroU32::new(part))
    }

    pub(crate) fn stage_request(&self, volume: &VolumeId, fs: FsType) -> Stage {
        Stage {
            disk: disk(volume),
            staging: self.kubelet(&staging(volume)),
            fs,
            read_only: false,
            flags: Vec::new(),
            format: Vec::new(),
        }
    }

    pub(crate) fn unstage(&self, volume: &VolumeId) -> Outcome {
        self.call(self.unstage_operation(volume, &staging(volume)))
    }

    /// Stages and unstages a volume.
    #[track_caller]
    pub(crate) fn stage_once(&self, volume: &VolumeId, fs: FsType) {
        staged(self.stage(volume, fs));
        done(self.unstage(volume));
    }

    /// Unpublishes a volume of one pod, and unstages it.
    #[track_caller]
    pub(crate) fn withdraw(&self, volume: &VolumeId, pod: &str) {
        done(self.unpublish(volume, &target(volume, pod)));
        done(self.unstage(volume));
    }

    pub(crate) fn unstage_operation(&self, volume: &VolumeId, path: &str) -> Operation {
        Operation::Unstage(Unstage { volume: volume.clone(), staging: self.kubelet(path) })
    }

    pub(crate) fn publish_request(&self, volume: &VolumeId, pod: &str) -> PublishFilesystem {
        PublishFilesystem {
            disk: disk(volume),
            staging: self.kubelet(&staging(volume)),
            target: self.kubelet(&target(volume, pod)),
            read_only: false,
            flags: Vec::new(),
        }
    }

    pub(crate) fn publish(&self, volume: &VolumeId, pod: &str) -> Outcome {
        self.call(self.publish_operation(volume, pod))
    }

    pub(crate) fn publish_operation(&self, volume: &VolumeId, pod: &str) -> Operation {
        Operation::PublishFilesystem(self.publish_request(volume, pod))
    }

    /// Publishes a volume by a request that differs from the plain one.
    pub(crate) fn publish_with(
        &self,
        volume: &VolumeId,
        pod: &str,
        change: impl FnOnce(&mut PublishFilesystem),
    ) -> Outcome {
        let mut request = self.publish_request(volume, pod);
        change(&mut request);
        self.call(Operation::PublishFilesystem(request))
    }

    pub(crate) fn publish_block(&self, volume: &VolumeId, pod: &str) -> Outcome {
        self.publish_disk(&disk(volume), pod, false)
    }

    pub(crate) fn publish_disk(&self, disk: &Disk, pod: &str, read_only: bool) -> Outcome {
        self.call(self.block_operation(disk, pod, read_only))
    }

    pub(crate) fn block_operation(&self, disk: &Disk, pod: &str, read_only: bool) -> Operation {
        Operation::PublishBlock(PublishBlock {
            disk: disk.clone(),
            target: self.kubelet(&block_target(&disk.volume, pod)),
            read_only,
        })
    }

    pub(crate) fn unpublish(&self, volume: &VolumeId, target: &str) -> Outcome {
        self.call(self.unpublish_operation(volume, target))
    }

    pub(crate) fn unpublish_operation(&self, volume: &VolumeId, target: &str) -> Operation {
        Operation::Unpublish(Unpublish { volume: volume.clone(), target: self.kubelet(target) })
    }

    pub(crate) fn unpublish_block(&self, volume: &VolumeId, pod: &str) -> Outcome {
        self.unpublish(volume, &block_target(volume, pod))
    }

    pub(crate) fn expand(&self, volume: &VolumeId, path: &str) -> Outcome {
        self.call(self.expand_operation(volume, path, 0, 0))
    }

    /// Returns a request for growth. A limit of 0 bytes is none.
    pub(crate) fn expand_operation(
        &self,
        volume: &VolumeId,
        path: &str,
        required: u64,
        limit: u64,
    ) -> Operation {
        Operation::Expand(Expand {
            volume: volume.clone(),
            path: self.kubelet(path),
            required_bytes: NonZeroU64::new(required),
            limit_bytes: NonZeroU64::new(limit),
        })
    }

    pub(crate) fn stats(&self, volume: &VolumeId, path: &str) -> Outcome {
        self.call(self.stats_operation(volume, path))
    }

    pub(crate) fn stats_operation(&self, volume: &VolumeId, path: &str) -> Operation {
        Operation::Stats(Stats { volume: volume.clone(), path: self.kubelet(path) })
    }

    pub(crate) fn inventory(&self) -> Inventory {
        inventory(&mut self.client())
    }

    pub(crate) fn staged_root(&self, volume: &VolumeId) -> PathBuf {
        self.inside(&staging(volume))
    }

    pub(crate) fn published_root(&self, volume: &VolumeId, pod: &str) -> PathBuf {
        self.inside(&target(volume, pod))
    }

    #[track_caller]
    pub(crate) fn published_file(&self, volume: &VolumeId, pod: &str, name: &str) -> String {
        fs::read_to_string(self.published_root(volume, pod).join(name)).expect(name)
    }

    #[track_caller]
    pub(crate) fn staged_file(&self, volume: &VolumeId, name: &str) -> String {
        fs::read_to_string(self.staged_root(volume).join(name)).expect(name)
    }
}

#[track_caller]
pub(crate) fn inventory(client: &mut Client) -> Inventory {
    match client.call(Operation::Inspect(Inspect::default()), LONG) {
        Outcome::Inventory(inventory) => inventory,
        other => panic!("{other:?}"),
    }
}

/// Returns format options by the keys of a StorageClass.
pub(crate) fn format_options(given: &[(&str, u64)]) -> Vec<FormatOption> {
    given.iter().map(|(key, value)| format_option::find(key).expect(key).with(*value)).collect()
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
        attached_at: None,
        origin: Origin::Blank,
        source: Source::Elsewhere,
    }
}
