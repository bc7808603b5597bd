//! Publish: makes a staged file system, or a disk itself, available at a target.
use super::{by_name, holders, raw};
use crate::device::Access;
use crate::fault_point;
use crate::mount_table::Mount;
use crate::mounts;
use crate::operation::stage::{LATE_DISK, identified};
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_policy::facts::DiskFacts;
use ebs_csi_policy::flag::{self, MountPlan};
use ebs_csi_policy::judge::{self, Publish};
use ebs_csi_wire::{
    self as wire, FsType, PublishBlock, PublishFilesystem, Refusal, Refused, Seen, Step,
};
use rustix::fs::fstat;
use std::time::Duration;

/// Binds the staging mount onto the target directory.
pub(super) fn filesystem(world: &World, asked: &PublishFilesystem) -> Done<wire::Done> {
    let staging_path = world.relative(&asked.staging)?;
    let target_path = world.relative(&asked.target)?;
    let mut plan = plan(asked)?;
    // The bind mount copies the attributes of the staged mount.
    plan.clear &= !world.rules.nodev_nosuid().kept();
    let asked = &PublishFilesystem {
        read_only: plan.read_only,
        ..asked.clone()
    };
    // A staged volume has its disk already, so there is no wait.
    let device = world
        .disks
        .find_asked(&asked.disk, Access::ReadOnly, Duration::ZERO)
        .at(Step::FindDevice)?;
    let facts = DiskFacts {
        bytes: device.bytes(),
        whole_bytes: device.whole_bytes(),
        device: device.number(),
    };
    identified(world, &asked.disk, &device, &facts)?;
    let (staging, mounts) = world.root.look_and_list(staging_path, &world.table)?;
    let target = world.look(target_path)?;
    let permit = judge::publish_filesystem(asked, &facts, &staging, &target)?;
    by_name::remember(world, &asked.disk, &device)?;
    let Publish::Bind { make } = *permit.act() else {
        return Ok(wire::Done {
            already: true,
            ..wire::Done::default()
        });
    };
    let of_volume = world
        .root
        .those(&mounts, |mount| mount.device == facts.device);
    let shown = of_volume.iter().filter_map(|mount| mount.path.as_deref());
    judge::one_more(shown.filter(|path| *path != staging_path).count())?;
    if make {
        world
            .root
            .make_directories(target_path, &world.directories)?;
    }
    fault_point::reached("publish-made");
    let source = world.root.hold(staging_path)?;
    let mount = mounts::copy(&permit, &source)?;
    // Check that the copied mount is the one that was judged: something may have been moved to that
    // name in between.
    if fstat(&source).at(Step::Stat)?.st_dev != facts.device {
        return Err(Refusal::NotStaged.into());
    }
    drop(source);
    mount.change(plan.set, plan.clear)?;
    let target = world.root.hold_free(target_path)?;
    mount.attach(&target)?;
    drop(target);
    fault_point::reached("publish-attached");
    Ok(wire::Done {
        already: false,
        ..wire::Done::default()
    })
}

/// Binds the disk's node onto the target file.
pub(super) fn block(world: &World, asked: &PublishBlock) -> Done<wire::Done> {
    let target_path = world.relative(&asked.target)?;
    let device = world
        .disks
        .find_asked(&asked.disk, Access::ReadOnly, LATE_DISK)
        .at(Step::FindDevice)?;
    let facts = DiskFacts {
        bytes: device.bytes(),
        whole_bytes: device.whole_bytes(),
        device: device.number(),
    };
    identified(world, &asked.disk, &device, &facts)?;
    let target = world.look(target_path)?;
    let table = world.table.read().at(Step::ReadMountTable)?;
    let is_over = |mount: &Mount| raw::is_over(world, &device, mount);
    let mounts = world.root.those(&table, is_over);
    let others: Vec<_> = raw::publications_among(world, &device, &table)
        .into_iter()
        .filter(|mount| mount.path.as_deref() != Some(target_path))
        .collect();
    let judged = judge::publish_block(asked, &facts, &target, &mounts, &others);
    let permit = judged.map_err(|reason| match (reason, others.first()) {
        (Refusal::StillHeld, Some(other)) if mounts.is_empty() => raw::held_at(world, other),
        (Refusal::StillHeld, _) => {
            let mut over = table.iter().filter(|mount| is_over(mount));
            let seen = over.find_map(|mount| world.root.place_of(mount));
            Refused {
                reason,
                seen: seen.map(Seen::MountedAt),
            }
        }
        _ => reason.into(),
    })?;
    holders::none_but_ours(world, &device, &table, None)?;
    let claim = holders::claim_unless_shown(world, &device, &table)?;
    by_name::remember(world, &asked.disk, &device)?;
    // Switch the disk before anybody can see it, and again when it is published already: only the
    // disk itself can refuse a write.
    raw::switch(world, &device, asked.read_only)?;
    let Publish::Bind { make } = *permit.act() else {
        return Ok(wire::Done {
            already: true,
            ..wire::Done::default()
        });
    };
    judge::one_more(others.len())?;
    if make {
        world.root.make_file(target_path, &world.directories)?;
    }
    fault_point::reached("publish-block-made");
    let node = device.hold_node(&world.disks).at(Step::FindDevice)?;
    let mount = mounts::copy(&permit, &node)?;
    drop(node);
    let read_only = u64::from(rustix::mount::MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    mount.change(if asked.read_only { read_only } else { 0 }, 0)?;
    world.verify(&device)?;
    if !asked.read_only {
        // From now on, a container may have written any byte of the disk.
        world.examined.used_raw(&device);
    }
    let target = world.root.hold_free(target_path)?;
    mount.attach(&target)?;
    drop((target, claim));
    fault_point::reached("publish-block-attached");
    Ok(wire::Done {
        already: false,
        ..wire::Done::default()
    })
}

/// Parses the mount flags for a bind mount. The request does not name the staged file system, and
/// only attributes have an effect here, which are the same for all file systems, so a flag that any
/// of them has is accepted.
fn plan(asked: &PublishFilesystem) -> Result<MountPlan, Refusal> {
    let mut result = Err(Refusal::MountFlag);
    for fs in FsType::ALL {
        result = flag::plan(&asked.flags, *fs, asked.read_only);
        if result.is_ok() {
            break;
        }
    }
    result
}
