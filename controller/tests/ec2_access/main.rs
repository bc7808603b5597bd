//! Tests the EC2 layer, with the real SDK, against the simulator.

mod answers;
mod calls;
mod rates;
mod refused;
#[path = "../world/mod.rs"]
mod world;

use ebs_csi_ec2::{CreateSnapshot, Tags};
use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};
use world::NODE_A;

fn node_a() -> InstanceId {
    InstanceId::parse(NODE_A).unwrap()
}

fn device() -> DeviceName {
    DeviceName::parse("/dev/xvdaa").unwrap()
}

fn nobody() -> VolumeId {
    VolumeId::parse("vol-0123456789abcdef0").unwrap()
}

fn snapshot_of(volume: &VolumeId, name: &str) -> CreateSnapshot {
    CreateSnapshot {
        volume: volume.clone(),
        description: "made by a test".to_owned(),
        outpost_arn: None,
        tags: Tags::from([("CSIVolumeSnapshotName".to_owned(), name.to_owned())]),
    }
}
