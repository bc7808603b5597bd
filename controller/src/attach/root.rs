//! What a node boots from is neither published nor detached.

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};

use crate::ec2::Instance;

/// The root device's name, when the volume hangs there.
pub(crate) fn root_device_of<'a>(instance: &'a Instance, volume: &VolumeId) -> Option<&'a str> {
    let root = instance.root_device.as_deref()?;
    let mut devices = instance.devices.iter();
    devices
        .any(|device| device.volume.as_ref() == Some(volume) && device.device == root)
        .then_some(root)
}

/// Nobody mounts it a second time.
pub(super) fn refuse_publish(instance: &Instance, volume: &VolumeId) -> Result<(), Failure> {
    match root_device_of(instance, volume) {
        None => Ok(()),
        Some(device) => Err(Failure::new(
            Condition::InUse,
            format!(
                "node {} boots from volume {volume} ({device}); what a node boots from cannot be published: use a data volume",
                instance.id
            ),
        )),
    }
}

/// EC2 would take it off an instance that is stopped, which then starts no more.
pub(super) fn detach_refused(volume: &VolumeId, node: &InstanceId, device: &str) -> Failure {
    Failure::new(
        Condition::InUse,
        format!(
            "node {node} boots from volume {volume} ({device}); it was not published there and is not detached: if that is meant, stop the instance and detach it by hand"
        ),
    )
}
