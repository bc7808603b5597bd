//! A disk that somebody else uses is refused, whatever a request says of it: the node's own disk, a
//! disk that is mounted in a namespace that this process cannot see, a disk beneath another block
//! device. The whole disk counts, also when the request is for a partition.
use super::raw_disk;
use crate::disk::device::{Access, Claim, Device, Part};
use crate::journal;
use crate::mount::mount_table::Mount;
use crate::mount::propagation::PLACES;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done, Stop};
use ebs_csi_policy::facts::DeviceNumber;
use ebs_csi_policy::judge::disk_holders::{self, Held, PartFacts};
use ebs_csi_policy::place::PlaceClass;
use ebs_csi_wire::{Observation, Refusal, Refused, Step};
use std::time::Duration;

/// Number of retries while the disk is claimed, 25 ms apart: programs that only read disks hold
/// them for a moment.
const BUSY_RETRIES: usize = 20;

/// Refuses while anything but the mounts and raw publications of this helper holds the disk or a
/// partition of it. `claimed_next` is the device that the caller claims exclusively afterwards,
/// whose claim is therefore not tested here.
pub(super) fn check_no_other_holder(
    context: &OperationContext,
    device: &Device,
    table: &[Mount],
    claimed_next: Option<DeviceNumber>,
) -> Done<()> {
    let parts = device.parts(&context.disks).at(Step::FindDevice)?;
    let mut facts = collect_facts(context, device, &parts, table, claimed_next)?;
    let over = context.disks.loop_device_on(&parts).at(Step::FindDevice)?;
    let mut tries = 0;
    loop {
        test_claims(context, device, &parts, &mut facts)?;
        match disk_holders::judge(&facts, over.is_some()) {
            Ok(()) => return Ok(()),
            Err(Held::Claimed(_)) if tries < BUSY_RETRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(25));
            }
            Err(held) => return Err(refusal(context, table, &parts, held, over.as_deref())),
        }
    }
}

/// Claims the disk, to keep others from it until the publication is complete. Returns None when a
/// pod has the disk already and may have claimed it.
pub(super) fn claim_unless_published(
    context: &OperationContext,
    device: &Device,
    table: &[Mount],
) -> Done<Option<Claim>> {
    if !raw_disk::publications_in(context, device, table).is_empty() {
        return Ok(None);
    }
    context.claim(device, Access::ReadOnly).map(Some)
}

/// Collects what the mount table and sysfs show of each part.
fn collect_facts(
    context: &OperationContext,
    device: &Device,
    parts: &[Part],
    table: &[Mount],
    claimed_next: Option<DeviceNumber>,
) -> Done<Vec<PartFacts>> {
    let mut facts = Vec::with_capacity(parts.len());
    for part in parts {
        facts.push(PartFacts {
            was_mounted: context.mounted_disks.has(device.sequence(), part.number),
            layered: context.disks.holder_of(part.number).at(Step::FindDevice)?.is_some(),
            claimed_next: claimed_next == Some(part.number),
            ..PartFacts::default()
        });
    }
    let of = |number| parts.iter().position(|part| part.number == number);
    for mount in table {
        let relative = context.root.relative(mount);
        if let Some(part) = of(mount.device) {
            match relative.as_deref() {
                Some(relative) if is_own_place(context, relative) => facts[part].mounted = true,
                _ => facts[part].mounted_elsewhere = true,
            }
        }
        let name = mount.root_name();
        if let Some(relative) = relative
            && name.starts_with(device.disk())
            && let Some(part) = context.root.bound_node(&relative).and_then(of)
        {
            facts[part].shown = true;
        }
    }
    Ok(facts)
}

/// Returns whether a mount at this path is of this helper or derived from one: the path lies where
/// volumes are staged and published. Kubelet makes further mounts of them beneath a pod's directory
/// (`volume-subpaths`). A mount on one of these directories itself is not of this helper.
fn is_own_place(context: &OperationContext, relative: &str) -> bool {
    let beneath =
        |place: &str| relative.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
    PLACES.iter().any(|place| beneath(place))
        || (context.rules.places() == PlaceClass::Any
            && beneath("plugins")
            && !PLACES.contains(&relative))
}

/// Tests whether each part is claimed; the kernel does not say by whom. The whole disk is not
/// tested when the caller claims it.
fn test_claims(
    context: &OperationContext,
    device: &Device,
    parts: &[Part],
    facts: &mut [PartFacts],
) -> Done<()> {
    let Some((whole, partitions)) = facts.split_first_mut() else {
        return Ok(());
    };
    let claimed = |part: &Part| device.is_claimed(&context.disks, part).at(Step::ClaimDevice);
    whole.claimed = !whole.claimed_next && claimed(&parts[0])?;
    for (part, facts) in parts[1..].iter().zip(partitions) {
        // While the disk is not claimed, no partition is.
        facts.claimed = whole.claimed && claimed(part)?;
    }
    Ok(())
}

fn refusal(
    context: &OperationContext,
    table: &[Mount],
    parts: &[Part],
    held: Held,
    over: Option<&str>,
) -> Stop {
    let holder;
    let (part, by) = match held {
        Held::Mounted(part) => {
            let mut of_it = table.iter().filter(|mount| mount.device == parts[part].number);
            let elsewhere = of_it.find(|mount| {
                let relative = context.root.relative(mount);
                !relative.is_some_and(|relative| is_own_place(context, &relative))
            });
            let seen = elsewhere.and_then(|mount| context.root.place_of(mount));
            return Refused { reason: Refusal::StillHeld, seen: seen.map(Observation::MountedAt) }
                .into();
        }
        Held::Layered(part) => {
            holder = context.disks.holder_of(parts[part].number);
            let name = holder.as_ref().ok().and_then(Option::as_deref);
            (part, name.unwrap_or("a block device"))
        }
        Held::BeneathLoop => (0, over.unwrap_or("a loop device")),
        Held::Claimed(part) => {
            (part, "an exclusive claim: a mount out of sight, swap, or a program")
        }
    };
    journal::warn("disk-held", &[("disk", &parts[part].name), ("by", by)]);
    Refusal::StillHeld.into()
}
