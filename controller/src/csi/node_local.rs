//! Node-local volumes. On each node that uses it, the handle `local-ebs://dev/xvdbz` names the EBS
//! volume that is attached there as `/dev/xvdbz`. Whoever launches the nodes attaches and detaches
//! that volume; the controller only reports which volume it is.

use std::collections::HashMap;

use ebs_csi_ec2::{AttachmentState, Call, Ec2, Instance};
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::publish_context::{DEVICE_PATH, VOLUME_ID};
use ebs_csi_proto::{Capability, Condition, Failure, csi};
use ebs_csi_wire::InstanceId;

use crate::csi::validated;
use crate::request::node_local_handle::PREFIX;
use crate::request::{parse_id, require};

/// Checks a capability. Each node has a volume of its own, so many nodes may write, whatever the
/// access type.
fn check_capability(wire: &csi::VolumeCapability) -> Result<(), Failure> {
    let is_multi_writer =
        wire.access_mode.as_ref().is_some_and(|mode| mode.mode() == Mode::MultiNodeMultiWriter);
    match is_multi_writer && wire.access_type.is_some() {
        true => Ok(()),
        false => Capability::parse(wire).map(drop),
    }
}

/// Answers ValidateVolumeCapabilities for such a handle. The volume differs from node to node, so
/// only the capabilities are checked.
///
/// # Errors
/// [`Condition::MissingField`] without capabilities, or for one without type or mode.
pub(crate) fn validate(
    wire: csi::ValidateVolumeCapabilitiesRequest,
) -> Result<csi::ValidateVolumeCapabilitiesResponse, Failure> {
    if wire.volume_capabilities.is_empty() {
        return Err(Failure::missing("volume_capabilities"));
    }
    for capability in &wire.volume_capabilities {
        match check_capability(capability) {
            Ok(()) => {}
            Err(failure) if failure.condition() == Condition::Unsupported => {
                return Ok(validated(wire, Some(failure.text().to_owned())));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(validated(wire, None))
}

/// Answers ControllerPublishVolume for such a handle: looks up the volume, attaches nothing,
/// reserves nothing.
///
/// # Errors
/// [`Condition::Unsupported`] unless `enabled`, and for the device that the node boots from;
/// [`Condition::NotFound`] for a node or a device that does not exist;
/// [`Condition::OperationPending`] for a volume that is not attached now.
pub(crate) async fn publish(
    ec2: &Ec2,
    enabled: bool,
    wire: &csi::ControllerPublishVolumeRequest,
) -> Result<HashMap<String, String>, Failure> {
    let device = device_of_handle(&wire.volume_id)?;
    let node = require("node_id", &wire.node_id)?;
    let capability =
        wire.volume_capability.as_ref().ok_or_else(|| Failure::missing("volume_capability"))?;
    check_capability(capability)?;
    if !enabled {
        return Err(Failure::new(
            Condition::Unsupported,
            format!(
                "volume_id: volumes of a node itself ({PREFIX}…) are not enabled; start the controller with --enable-node-local-volumes, or use an EBS volume's id"
            ),
        ));
    }
    let node: InstanceId = parse_id("node_id", node)?;
    let look = ec2.look_instance(&Call::default(), &node).await.known();
    let instance = look?.ok_or_else(|| Failure::not_found("node", &node))?;
    find_volume(&instance, &device)
}

fn device_of_handle(volume: &str) -> Result<String, Failure> {
    match volume.strip_prefix(PREFIX).unwrap_or_default() {
        "" => Err(Failure::invalid(
            "volume_id",
            format!("{PREFIX} is followed by no device; write {PREFIX}dev/xvdbz for /dev/xvdbz"),
        )),
        rest => Ok(format!("/{rest}")),
    }
}

fn find_volume(instance: &Instance, device: &str) -> Result<HashMap<String, String>, Failure> {
    let node = &instance.id;
    if instance.root_device.as_deref() == Some(device) {
        return Err(Failure::new(
            Condition::Unsupported,
            format!("volume_id: node {node} boots from {device}; name a data volume"),
        ));
    }
    let mapping = instance.devices.iter().find(|m| m.device == device);
    let Some((mapping, volume)) = mapping.and_then(|m| Some((m, m.volume.as_ref()?))) else {
        return Err(Failure::new(
            Condition::NotFound,
            format!(
                "volume_id: node {node} has no EBS volume at {device}; attach one there (a launch template does it for every node), or correct the handle"
            ),
        ));
    };
    if mapping.state != AttachmentState::Attached {
        return Err(Failure::pending(format!(
            "volume {volume} at {device} of node {node} is not attached now; the request is repeated"
        )));
    }
    Ok(HashMap::from([
        (DEVICE_PATH.to_owned(), device.to_owned()),
        (VOLUME_ID.to_owned(), volume.to_string()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{example_device, example_instance};
    use ebs_csi_ec2::BlockMapping;
    use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
    use ebs_csi_wire::VolumeId;

    const VOLUME: &str = "vol-0123456789abcdef0";

    fn instance() -> Instance {
        let attached =
            |device: &str, volume: &str| example_device(device, VolumeId::parse(volume).ok());
        let devices = vec![
            attached("/dev/xvda", "vol-0fffffffffffffff0"),
            attached("/dev/xvdbz", VOLUME),
            BlockMapping { state: AttachmentState::Attaching, ..attached("/dev/xvdby", VOLUME) },
            example_device("/dev/sdb", None),
        ];
        example_instance("/dev/xvda", devices)
    }

    #[test]
    fn local_ebs_handle_resolves_attached_volume_by_device() {
        let rows = [
            ("local-ebs://dev/xvdbz", Ok(VOLUME)),
            ("local-ebs://", Err(Condition::InvalidField)),
            ("local-ebs://dev/xvda", Err(Condition::Unsupported)),
            ("local-ebs://dev/xvdcc", Err(Condition::NotFound)),
            ("local-ebs://dev/sdb", Err(Condition::NotFound)),
            ("local-ebs:///dev/xvdbz", Err(Condition::NotFound)),
            ("local-ebs://dev/xvdby", Err(Condition::OperationPending)),
        ];
        for (handle, want) in rows {
            let got = device_of_handle(handle).and_then(|device| find_volume(&instance(), &device));
            match (got, want) {
                (Ok(context), Ok(volume)) => {
                    assert_eq!(context[VOLUME_ID], volume);
                    assert_eq!(context[DEVICE_PATH], "/dev/xvdbz");
                }
                (Err(failure), Err(condition)) => {
                    assert_eq!(failure.condition(), condition, "{handle}: {failure}");
                }
                other => panic!("{handle}: {other:?}"),
            }
        }
    }

    /// Each node has a volume of its own behind the same handle, so the access type does not
    /// matter.
    #[test]
    fn node_local_volume_allows_multi_node_multi_writer() {
        let wire = |mode: Mode, access_type| csi::VolumeCapability {
            access_type,
            access_mode: Some(AccessMode { mode: mode as i32 }),
        };
        let mount = || Some(AccessType::Mount(MountVolume::default()));
        let block = || Some(AccessType::Block(BlockVolume {}));
        for (capability, ok) in [
            (wire(Mode::SingleNodeWriter, mount()), true),
            (wire(Mode::MultiNodeMultiWriter, mount()), true),
            (wire(Mode::MultiNodeMultiWriter, block()), true),
            (wire(Mode::MultiNodeMultiWriter, None), false),
            (wire(Mode::MultiNodeReaderOnly, mount()), false),
        ] {
            assert_eq!(check_capability(&capability).is_ok(), ok, "{capability:?}");
        }
    }
}
