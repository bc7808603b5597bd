//! Publish: makes a staged file system, or a disk itself, available at a target.
use super::disk_use;
use crate::disk::device_number::of_filesystem;
use crate::fault_point;
use crate::mount::detached_mount;
use crate::mount::directory_requests::Act;
use crate::mount::mount_table::Mount;
use crate::operation::OperationContext;
use crate::operation::volume_disk::{DISK_WAIT, VolumeDisk};
use crate::outcome::{At, Result};
use ebs_csi_policy::flag::{self, MountPlan};
use ebs_csi_policy::judge::{self, Publish};
use ebs_csi_wire::{
    Done, FsType, Observation, PublishBlock, PublishFilesystem, Refusal, Refused, Step,
};
use rustix::fs::fstat;
use std::time::Duration;

/// Binds the staging mount onto the target directory.
pub(super) fn filesystem(context: &OperationContext, request: &PublishFilesystem) -> Result<Done> {
    let staging_path = context.relative(&request.staging)?;
    let target_path = context.relative(&request.target)?;
    let mut plan = plan(request)?;
    // The bind mount copies the attributes of the staged mount.
    plan.clear &= !context.rules.nodev_nosuid().kept();
    let request = &PublishFilesystem { read_only: plan.read_only, ..request.clone() };
    // A staged volume has its disk already, so there is no wait.
    let disk = VolumeDisk::find(context, &request.disk, Duration::ZERO)?;
    let facts = disk.facts();
    let (staging, mounts) =
        context.root.path_facts_and_mounts(staging_path, &context.mount_table)?;
    let target = context.path_facts(target_path)?;
    let permit = judge::publish_filesystem(request, facts, &staging, &target)?;
    disk.remember()?;
    let Publish::Bind { make } = *permit.act() else {
        return Ok(Done { already: true, ..Done::default() });
    };
    let of_volume = context.root.volume_mounts(&mounts, |mount| mount.device == facts.device);
    let shown = of_volume.iter().filter_map(|mount| mount.path.as_deref());
    judge::one_more(shown.filter(|path| *path != staging_path).count())?;
    if make {
        context.root.make(Act::MakeDirectory, target_path, &context.directories)?;
    }
    fault_point::reached("publish-made");
    let source = context.root.hold(staging_path)?;
    let mount = detached_mount::copy(&permit, &source)?;
    // Check that the copied mount is the one that was judged: something may have been moved to that
    // name in between.
    if of_filesystem(&fstat(&source).at(Step::Stat)?) != facts.device {
        return Err(Refusal::NotStaged.into());
    }
    drop(source);
    mount.change(plan.set, plan.clear)?;
    let target = context.root.hold_free(target_path)?;
    mount.attach(&target)?;
    drop(target);
    fault_point::reached("publish-attached");
    Ok(Done { already: false, ..Done::default() })
}

/// Binds the disk's node onto the target file.
pub(super) fn block(context: &OperationContext, request: &PublishBlock) -> Result<Done> {
    let target_path = context.relative(&request.target)?;
    let disk = VolumeDisk::find(context, &request.disk, DISK_WAIT)?;
    let (device, facts) = (disk.device(), disk.facts());
    let target = context.path_facts(target_path)?;
    let table = context.mount_table.read().at(Step::ReadMountTable)?;
    let is_overlapping = |mount: &Mount| disk_use::overlaps(context, device, mount);
    let mounts = context.root.volume_mounts(&table, is_overlapping);
    let others: Vec<_> = disk_use::publications_in(context, device, &table)
        .into_iter()
        .filter(|mount| mount.path.as_deref() != Some(target_path))
        .collect();
    let judged = judge::publish_block(request, facts, &target, &mounts, &others);
    let permit = judged.map_err(|reason| match (reason, others.first()) {
        (Refusal::StillHeld, Some(other)) if mounts.is_empty() => disk_use::held_at(context, other),
        (Refusal::StillHeld, _) => {
            let mut over = table.iter().filter(|mount| is_overlapping(mount));
            let seen = over.find_map(|mount| context.root.place_of(mount));
            Refused { reason, seen: seen.map(Observation::MountedAt) }
        }
        _ => reason.into(),
    })?;
    disk_use::check_no_other_holder(context, device, &table, None)?;
    let claim = disk_use::claim_unless_published(context, device, &table)?;
    disk.remember()?;
    // Switch the disk before anybody can see it, and again when it is published already: only the
    // disk itself can refuse a write.
    disk_use::switch(context, device, request.read_only)?;
    let Publish::Bind { make } = *permit.act() else {
        return Ok(Done { already: true, ..Done::default() });
    };
    judge::one_more(others.len())?;
    if make {
        context.root.make(Act::MakeFile, target_path, &context.directories)?;
    }
    fault_point::reached("publish-block-made");
    let node = device.hold_node(&context.disks).at(Step::FindDevice)?;
    let mount = detached_mount::copy(&permit, &node)?;
    drop(node);
    let read_only = u64::from(rustix::mount::MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    mount.change(if request.read_only { read_only } else { 0 }, 0)?;
    disk.verify()?;
    if !request.read_only {
        // From now on, a container may have written any byte of the disk.
        context.examined_disks.note_raw_use(device);
    }
    let target = context.root.hold_free(target_path)?;
    mount.attach(&target)?;
    drop((target, claim));
    fault_point::reached("publish-block-attached");
    Ok(Done { already: false, ..Done::default() })
}

/// Parses the mount flags for a bind mount. The request does not name the staged file system, and
/// only attributes have an effect here, which are the same for all file systems, so a flag that any
/// of them has is accepted.
fn plan(request: &PublishFilesystem) -> Result<MountPlan, Refused> {
    let plans = FsType::ALL.iter().map(|fs| flag::plan(&request.flags, *fs, request.read_only));
    let any = plans.reduce(Result::or);
    any.unwrap_or_else(|| Ok(MountPlan::default())).map_err(Refused::from)
}
