//! The volumes that an instance was launched with. They are not published, and the root volume is
//! not detached.

use ebs_csi_ec2::Instance;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};

/// Refuses the instance's root volume, and data volumes of its launch template or image.
///
/// EC2 does not report where an attachment comes from. AttachVolume leaves `DeleteOnTermination`
/// off, so an attachment that has it was made at launch: whatever the node keeps there (containers'
/// images, logs) is in use, and EC2 deletes it with the instance.
///
/// # Errors
/// [`Condition::InUse`], naming the device.
pub(super) fn refuse_publish(instance: &Instance, volume: &VolumeId) -> Result<(), Failure> {
    let refused = |why: String| {
        Err(Failure::new(Condition::InUse, format!("{why}: use a volume of its own")))
    };
    if let Some(device) = instance.root_device_of(volume) {
        return refused(format!(
            "node {} boots from volume {volume} ({device}), which cannot be published",
            instance.id
        ));
    }
    match instance.launch_device_of(volume) {
        None => Ok(()),
        Some(device) => refused(format!(
            "volume {volume} ({device}) came with node {}: EC2 deletes it when the instance is \
             terminated (DeleteOnTermination), and what is to be kept cannot be published there",
            instance.id
        )),
    }
}

/// Returns the refusal to detach a root volume. EC2 would detach it from a stopped instance, which
/// could not start any more.
pub(super) fn root_volume_refusal(volume: &VolumeId, node: &InstanceId, device: &str) -> Failure {
    Failure::new(
        Condition::InUse,
        format!(
            "node {node} boots from volume {volume} ({device}); it was not published there and is not detached: if that is meant, stop the instance and detach it by hand"
        ),
    )
}
