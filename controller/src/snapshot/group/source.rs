//! What to name in the request to EC2: the instance that has the volumes, and its other volumes.

use std::collections::BTreeSet;

use ebs_csi_ec2::{AttachmentState, CreateSnapshots, Instance, Volume};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::{InstanceId, VolumeId};

/// Returns an instance that all volumes are attached to.
///
/// # Errors
/// [`Condition::NotPrepared`], with each volume and where it is.
pub(super) fn common_instance(volumes: &[Volume]) -> Result<InstanceId, Failure> {
    let attached = |volume: &Volume| -> BTreeSet<InstanceId> {
        let is_attached = |at: &&ebs_csi_ec2::Attachment| at.state == AttachmentState::Attached;
        let attachments = volume.attachments.iter().filter(is_attached);
        attachments.filter_map(|at| at.instance.clone()).collect()
    };
    let common = volumes.iter().map(attached).reduce(|a, b| &a & &b).unwrap_or_default();
    if let Some(instance) = common.into_iter().next() {
        return Ok(instance);
    }
    let places: Vec<_> = volumes
        .iter()
        .map(|volume| {
            let nodes: Vec<_> = attached(volume).into_iter().map(|node| node.to_string()).collect();
            match nodes.is_empty() {
                true => format!("{} is attached to none", volume.id),
                false => format!("{} is attached to {}", volume.id, nodes.join(" and ")),
            }
        })
        .collect();
    Err(Failure::new(
        Condition::NotPrepared,
        format!(
            "EC2 takes snapshots of several volumes at one moment only while one instance has all of them, and no snapshot was taken: {}; bring the pods that use the volumes to one node",
            places.join(", ")
        ),
    ))
}

/// Returns whether the root volume is to be excluded, and which other volumes are.
///
/// # Errors
/// [`Condition::NotPrepared`] when they are more than a request can name.
pub(super) fn exclusions(
    instance: &Instance,
    wanted: &BTreeSet<VolumeId>,
) -> Result<(bool, Vec<VolumeId>), Failure> {
    let is_root = |volume: &VolumeId| instance.root_device_of(volume).is_some();
    let attached = instance.devices.iter().filter_map(|at| at.volume.as_ref());
    let others: Vec<_> =
        attached.filter(|volume| !wanted.contains(*volume) && !is_root(volume)).cloned().collect();
    if others.len() > CreateSnapshots::MAX_EXCLUDED {
        return Err(Failure::new(
            Condition::NotPrepared,
            format!(
                "instance {} has {} volumes besides those of the group, EC2 takes snapshots of all that are not excluded, and a request excludes at most {}; no snapshot was taken: bring the pods to a node with fewer volumes",
                instance.id,
                others.len(),
                CreateSnapshots::MAX_EXCLUDED
            ),
        ));
    }
    Ok((!wanted.iter().any(is_root), others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attachment;
    use crate::example::{example_device, example_instance, example_volume};

    fn id(number: usize) -> VolumeId {
        VolumeId::parse(&format!("vol-{number:017x}")).unwrap()
    }

    fn node(number: usize) -> InstanceId {
        InstanceId::parse(&format!("i-{number:017x}")).unwrap()
    }

    fn volume(number: usize, nodes: &[(usize, AttachmentState)]) -> Volume {
        let attachments = nodes.iter().map(|(at, state)| attachment(node(*at), state.clone()));
        Volume { id: id(number), attachments: attachments.collect(), ..example_volume() }
    }

    #[test]
    fn instance_has_all_volumes_or_each_is_named() {
        use AttachmentState::{Attached, Detaching};
        let both = [(1, Attached), (2, Attached)];
        let shared = [volume(1, &both), volume(2, &[(2, Attached)])];
        assert_eq!(common_instance(&shared), Ok(node(2)));
        for apart in [
            [volume(1, &[(1, Attached)]), volume(2, &[(2, Attached)])],
            [volume(1, &[(1, Attached)]), volume(2, &[])],
            [volume(1, &[(1, Attached)]), volume(2, &[(1, Detaching)])],
        ] {
            let refused = common_instance(&apart).unwrap_err();
            assert_eq!(refused.condition(), Condition::NotPrepared);
            for named in [id(1).as_str(), node(1).as_str(), id(2).as_str()] {
                assert!(refused.text().contains(named), "{named}: {refused}");
            }
        }
    }

    /// Volume 0 is the root volume.
    #[test]
    fn exclusions_name_all_other_volumes_up_to_40() {
        let device = |number| example_device(&format!("/dev/{number}"), Some(id(number)));
        let instance = |volumes| example_instance("/dev/0", (0..volumes).map(device).collect());
        for (volumes, wanted, expected) in [
            (3, &[1, 2][..], Some((true, vec![]))),
            (4, &[1, 2], Some((true, vec![id(3)]))),
            (3, &[0, 1], Some((false, vec![id(2)]))),
            (43, &[1, 2], Some((true, (3..43).map(id).collect()))),
            (44, &[1, 2], None),
        ] {
            let wanted = wanted.iter().copied().map(id).collect();
            assert_eq!(exclusions(&instance(volumes), &wanted).ok(), expected, "{volumes}");
        }
    }
}
