//! Stats: space and inodes in use, without keeping the volume open and without waiting for other work on it.
use crate::device::Access;
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_policy::judge::{self, Shown};
use ebs_csi_wire::{Stats, Step, Usage};
use rustix::fs::fstatfs;
use std::time::Duration;

/// Carry the request out.
pub(super) fn stats(world: &World, asked: &Stats) -> Done<Usage> {
    let relative = world.relative(&asked.path)?;
    let place = world.look(relative)?;
    let owner = world.owner(&place, &asked.volume)?;
    match judge::shown(&place, owner)?.into_act() {
        Shown::Block => {
            let device = world
                .disks
                .find(&asked.volume.serial(), Access::ReadOnly, Duration::ZERO)
                .at(Step::FindDevice)?;
            Ok(Usage {
                block: true,
                total_bytes: device.bytes(),
                ..Usage::default()
            })
        }
        Shown::Filesystem { .. } => {
            let held = world.root.hold(relative)?;
            let found = fstatfs(&held).at(Step::Stat)?;
            let block = u64::try_from(found.f_frsize).unwrap_or(0);
            let used_blocks = found.f_blocks.saturating_sub(found.f_bfree);
            Ok(Usage {
                block: false,
                total_bytes: found.f_blocks.saturating_mul(block),
                used_bytes: used_blocks.saturating_mul(block),
                available_bytes: found.f_bavail.saturating_mul(block),
                total_inodes: found.f_files,
                used_inodes: found.f_files.saturating_sub(found.f_ffree),
                available_inodes: found.f_ffree,
            })
        }
    }
}
