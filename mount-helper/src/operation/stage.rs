//! Stage: finds the volume's disk, makes it fit to be mounted, and mounts it at the staging path.
mod beside_copy;
mod evidence;
mod examine;
mod filesystem_tools;
mod found_disk;
mod prepare;

use super::{grow, holders, raw_disk, xen_disk};
use crate::disk::device::{Access, Device};
use crate::fault_point;
use crate::journal;
use crate::mount::detached_mount;
use crate::mount::directory_requests::Act;
use crate::operation::context::OperationContext;
use crate::outcome::{At, Done};
use ebs_csi_policy::facts::DiskFacts;
use ebs_csi_policy::flag;
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::judge::{self, StagePlace};
use ebs_csi_wire::{Disk, FsType, Observation, Refusal, Refused, Stage, Staged, Step};
use found_disk::FoundDisk;
use prepare::Prepared;
use std::time::Duration;

/// Longest wait for the disk. A disk that EC2 has attached appears within a second; kubelet's retry
/// covers later ones.
pub(super) const DISK_WAIT: Duration = Duration::from_secs(3);

/// Carries out the request.
pub(super) fn stage(context: &OperationContext, request: &Stage) -> Done<Staged> {
    let relative = context.relative(&request.staging)?;
    let plan = flag::plan(&request.flags, request.fs, request.read_only).map_err(Refused::from)?;
    // A mount flag may ask for read-only, too.
    let request = &Stage { read_only: plan.read_only, ..request.clone() };
    if !context.rules.offers(request.fs) {
        return Err(Refusal::FsType.into());
    }
    let format =
        FormatOptions::check(&request.format, request.fs).map_err(|_| Refusal::FormatOption)?;
    // Read access is enough here: each step that writes to the disk claims it.
    let (device, facts) = find_disk(context, &request.disk, DISK_WAIT)?;
    fault_point::reached("stage-found");

    let place = context.path_facts(relative)?;
    let table = context.mount_table.read().at(Step::ReadMountTable)?;
    let mounts = context.root.volume_mounts(&table, |mount| mount.device == facts.device);
    let raw = raw_disk::publications_in(context, &device, &table);
    let stage_place =
        judge::stage_place(request, &facts, &place, &mounts, &raw).map_err(|reason| {
            match (reason, raw.first()) {
                (Refusal::StagedElsewhere, _) => {
                    context.in_use_refusal(reason, facts.device, relative)
                }
                (Refusal::StillHeld, Some(other)) => raw_disk::held_at(context, other),
                _ => reason.into(),
            }
        })?;
    let make = match stage_place.into_act() {
        StagePlace::Already => {
            xen_disk::remember(context, &request.disk, &device)?;
            // A stage that was interrupted after its mount has not grown the file system.
            let grown =
                !request.read_only && grow::after_restage(context, relative, request.fs, &device);
            return Ok(Staged {
                already: true,
                grown,
                device_bytes: facts.bytes,
                ..Staged::default()
            });
        }
        StagePlace::Fresh { make } => make,
    };

    holders::check_no_other_holder(context, &device, &table, Some(facts.device))?;
    match raw_disk::make_writable(context, &device) {
        // Whether a read-only stage has to write depends on the content.
        Err(stop) if request.read_only && stop == Refusal::DeviceReadOnly.into() => {}
        other => other?,
    }
    let found = FoundDisk { context, request, format, device: &device };
    let (prepared, joined) = match prepare::prepare(&found) {
        Err(stop) if beside_copy::may_be_held_by_copy(context, &stop) => {
            let (permit, joined) = beside_copy::join_copy(&found, stop)?;
            let unchanged = Prepared { permit, staged: Staged::default(), grow_mounted: false };
            (unchanged, Some(joined))
        }
        other => (other?, None),
    };
    let Prepared { permit, mut staged, grow_mounted } = prepared;
    staged.untold = permit.act().untold;
    if staged.untold {
        journal::warn(
            "origin-untold",
            &[
                ("volume", request.disk.volume.as_str()),
                (
                    "meaning",
                    "the controller did not say where this file system was made, so it is mounted without the full check of what was \
                     made elsewhere; a volume that this driver's controller attaches again is told apart",
                ),
            ],
        );
    }
    fault_point::reached("stage-prepared");

    if make {
        context.root.make(Act::MakeDirectory, relative, &context.directories)?;
    }
    let parameters = detached_mount::parameters(&plan, request.fs, permit.act().continues);
    let restricted = context.rules.nodev_nosuid().staged(permit.act().ours);
    let attributes = plan.set | restricted;
    let mounted = || detached_mount::create(&permit, request.fs, &device, &parameters, attributes);
    let mut mount = match joined {
        Some(joined) => beside_copy::mount(joined, attributes)?,
        None => mounted()?,
    };
    xen_disk::verify_mounted(context, &device)?;
    if request.fs == FsType::Xfs && !request.read_only {
        staged.grown = grow::detached_xfs(&mount, &device)?;
    }
    if grow_mounted {
        if grow::detached_ext(&mount, &device) {
            fault_point::reached("stage-grown");
            staged.grown = true;
        } else {
            // Nobody can have seen the mount yet.
            drop(mount);
            prepare::grow_offline(&found, &permit, &mut staged)?;
            mount = mounted()?;
            xen_disk::verify_mounted(context, &device)?;
        }
    }
    fault_point::reached("stage-created");
    let target = context.root.hold_free(relative)?;
    mount.attach(&target)?;
    context.mounted_disks.add(device.sequence(), device.number());
    drop(target);
    fault_point::reached("stage-attached");
    staged.device_bytes = device.bytes();
    Ok(staged)
}

/// Finds the disk of a request, and checks that it is the one that was attached, as far as its size
/// shows, and for a disk without a serial, as far as anything else shows.
pub(super) fn find_disk(
    context: &OperationContext,
    request: &Disk,
    wait: Duration,
) -> Done<(Device, DiskFacts)> {
    let found = context.disks.find_requested(request, Access::ReadOnly, wait);
    let device = found.at(Step::FindDevice)?;
    let facts = device.facts();
    judge::disk(request, &facts).map_err(|reason| match reason {
        Refusal::DeviceTooSmall => Refused::because(reason, Observation::DiskBytes(facts.bytes)),
        _ => reason.into(),
    })?;
    xen_disk::check(context, request, &device)?;
    Ok((device, facts))
}
