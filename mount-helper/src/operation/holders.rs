//! A disk that somebody else uses is no volume, whatever a request calls it: not the node's own, not one that is mounted in a namespace
//! that this process cannot see, not one beneath another block device. The whole disk counts, whichever part of it is asked for.
use super::raw;
use crate::device::{Access, Device, DeviceError, Part};
use crate::journal;
use crate::mount_table::Mount;
use crate::outcome::{At, Done, Stop};
use crate::propagation::PLACES;
use crate::world::World;
use ebs_csi_policy::place::PlaceClass;
use ebs_csi_wire::{Refusal, Refused, Seen, Step};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Duration;

/// Times that a claimed disk is looked at again, 25 ms apart: programs that look at disks hold them for that moment.
const PASSERS_BY: usize = 20;

/// What holds a disk and is known.
struct Known {
    mounted: Vec<u64>,
    shown: Vec<u64>,
}

/// Refuse while the disk or a partition of it is held by anything but the mounts and raw publications of this helper. `claimed_next` is
/// what the caller claims exclusively himself, and which is not looked at here.
pub(super) fn none_but_ours(
    world: &World,
    device: &Device,
    table: &[Mount],
    claimed_next: Option<u64>,
) -> Done<()> {
    let parts = device.parts(&world.disks).at(Step::FindDevice)?;
    let known = known(world, device, &parts, table)?;
    let whole_is_shown = known.shown.contains(&parts[0].number);
    for part in &parts {
        if whole_is_shown || known.shown.contains(&part.number) {
            continue;
        }
        if let Some(holder) = world.disks.holder_of(part.number).at(Step::FindDevice)? {
            return Err(held_by(part, &holder));
        }
    }
    // A pod may lay one over what it was given.
    if known.shown.is_empty()
        && let Some(over) = world.disks.loop_over(&parts).at(Step::FindDevice)?
    {
        return Err(held_by(&parts[0], &over));
    }
    let mut tries = 0;
    while let Some(part) = claimed_by_others(world, device, &parts, &known, claimed_next)? {
        if tries == PASSERS_BY {
            let somebody = "an exclusive claim: a mount out of sight, swap, or a program";
            return Err(held_by(part, somebody));
        }
        tries += 1;
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(())
}

fn held_by(part: &Part, holder: &str) -> Stop {
    journal::warn("disk-held", &[("disk", part.name.as_str()), ("by", holder)]);
    Refusal::StillHeld.into()
}

/// Keep everybody else from the disk until what is made of it stands. None where a pod has the disk already, and may have claimed it.
pub(super) fn claim_unless_shown(
    world: &World,
    device: &Device,
    table: &[Mount],
) -> Done<Option<OwnedFd>> {
    if !raw::publications_among(world, device, table).is_empty() {
        return Ok(None);
    }
    match device.claim(&world.disks, Access::ReadOnly) {
        Err(DeviceError::Os(Errno::BUSY)) => Err(Refusal::StillHeld.into()),
        other => other.at(Step::ClaimDevice).map(Some),
    }
}

/// The mounts and raw publications of the disk's parts. A refusal when one of the mounts stands where no volume belongs: the disk is
/// the machine's own.
fn known(world: &World, device: &Device, parts: &[Part], table: &[Mount]) -> Done<Known> {
    let mut known = Known {
        mounted: Vec::new(),
        shown: Vec::new(),
    };
    for mount in table {
        let relative = world.root.relative(mount);
        if parts.iter().any(|part| part.number == mount.device) {
            if !relative
                .as_deref()
                .is_some_and(|relative| is_ours(world, relative))
            {
                return Err(Refused {
                    reason: Refusal::StillHeld,
                    seen: world.root.place_of(mount).map(Seen::MountedAt),
                }
                .into());
            }
            known.mounted.push(mount.device);
        }
        let name = mount.root.rsplit('/').next().unwrap_or_default();
        if let Some(relative) = relative
            && name.starts_with(device.disk())
            && let Some(node) = world.root.bound_node(&relative)
            && parts.iter().any(|part| part.number == node)
        {
            known.shown.push(node);
        }
    }
    Ok(known)
}

/// It stands where volumes are shown. Kubelet makes further mounts of them beneath a pod's directory (`volume-subpaths`). What stands
/// on kubelet's own directories is theirs.
fn is_ours(world: &World, relative: &str) -> bool {
    let beneath = |place: &str| {
        relative
            .strip_prefix(place)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    PLACES.iter().any(|place| beneath(place))
        || (world.rules.places() == PlaceClass::Any
            && beneath("plugins")
            && !PLACES.contains(&relative))
}

/// A part of the disk that is claimed by somebody who is not known.
fn claimed_by_others<'p>(
    world: &World,
    device: &Device,
    parts: &'p [Part],
    known: &Known,
    claimed_next: Option<u64>,
) -> Done<Option<&'p Part>> {
    let claimed = |part: &Part| world.disks.is_claimed(part).at(Step::ClaimDevice);
    let (whole, partitions) = parts.split_first().ok_or(Refusal::DeviceMismatch)?;
    // The claim on a disk fails while one of its partitions is claimed.
    if claimed_next == Some(whole.number) || !claimed(whole)? {
        return Ok(None);
    }
    let accounted = |part: &Part| {
        claimed_next == Some(part.number)
            || known.mounted.contains(&part.number)
            || known.shown.contains(&part.number)
            || known.shown.contains(&whole.number)
            || world.mounted.has(device.sequence(), part.number)
    };
    let mut by_partition = false;
    for part in partitions {
        if claimed(part)? {
            // Each is claimed while the disk itself is.
            if !accounted(part) && !accounted(whole) {
                return Ok(Some(part));
            }
            by_partition = true;
        }
    }
    Ok((!by_partition && !accounted(whole)).then_some(whole))
}
