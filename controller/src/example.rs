//! Resources of EC2 for tests.

use std::collections::BTreeMap;

use ebs_csi_ec2::{
    AttachmentState, BlockMapping, Hibernation, Instance, InstanceState, Snapshot, SnapshotState,
    Volume, VolumeState,
};
use ebs_csi_proto::GiB;
use ebs_csi_wire::{InstanceId, SnapshotId, VolumeId};

/// Returns an available volume for tests, which has nothing that can be left out.
pub(crate) fn example_volume() -> Volume {
    Volume {
        id: VolumeId::parse("vol-0123456789abcdef0").expect("an id"),
        state: VolumeState::Available,
        size: GiB(1),
        kind: "gp3".to_owned(),
        zone: "us-east-1a".to_owned(),
        zone_id: None,
        outpost_arn: None,
        iops: None,
        throughput: None,
        encrypted: false,
        kms_key_id: None,
        snapshot: None,
        source_volume: None,
        multi_attach: false,
        created: None,
        attachments: Vec::new(),
        tags: BTreeMap::new(),
    }
}

/// Returns a completed snapshot of 4 GiB for tests, which has nothing that can be left out.
pub(crate) fn example_snapshot() -> Snapshot {
    Snapshot {
        id: SnapshotId::parse("snap-0123456789abcdef0").expect("an id"),
        state: SnapshotState::Completed,
        message: None,
        volume: VolumeId::parse("vol-0123456789abcdef0").ok(),
        size: GiB(4),
        started: None,
        progress: String::new(),
        encrypted: false,
        outpost_arn: None,
        tags: BTreeMap::new(),
    }
}

/// Returns a running instance for tests, with these devices.
pub(crate) fn example_instance(root_device: &str, devices: Vec<BlockMapping>) -> Instance {
    Instance {
        id: InstanceId::parse("i-0aaaaaaaaaaaaaaa1").expect("an id"),
        kind: "m5.large".to_owned(),
        state: InstanceState::Running,
        launched: None,
        hibernation: Hibernation::No,
        zone: "us-east-1a".to_owned(),
        zone_id: None,
        outpost_arn: None,
        root_device: Some(root_device.to_owned()),
        devices,
    }
}

/// Returns a device of an instance for tests, with a volume that is attached there.
pub(crate) fn example_device(device: &str, volume: Option<VolumeId>) -> BlockMapping {
    BlockMapping {
        device: device.to_owned(),
        volume,
        state: AttachmentState::Attached,
        attached: None,
        card: None,
        delete_on_termination: false,
    }
}
