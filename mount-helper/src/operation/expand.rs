//! Expand: grows the mounted file system of a volume to the current size of its disk.
use super::grow;
use crate::device::Access;
use crate::fault_point;
use crate::outcome::{At, Done};
use crate::world::World;
use ebs_csi_policy::judge::{self, Shown};
use ebs_csi_wire::{Expand, Expanded, Refused, Seen, Step};

/// Carries out the request.
pub(super) fn expand(world: &World, asked: &Expand) -> Done<Expanded> {
    let relative = world.relative(&asked.path)?;
    let place = world.look(relative)?;
    let owner = world.owner(&place, &asked.volume)?;
    let shown = judge::shown(&place, owner)?.into_act();
    let device = world
        .find_known(&asked.volume, world.partition_at(&place), Access::ReadOnly)
        .at(Step::FindDevice)?;
    // A partition keeps its size; the request is about the size of the volume.
    judge::expand(asked, device.whole_bytes())
        .map_err(|reason| Refused::because(reason, Seen::DiskBytes(device.whole_bytes())))?;
    let filesystem_bytes = match shown {
        Shown::Block => 0,
        // On a read-only mount the size stays, and that is no error.
        Shown::Filesystem { read_only } => {
            let (_, bytes) = grow::mounted(world, relative, &device, read_only)?;
            fault_point::reached("expand-grown");
            bytes
        }
    };
    world.verify(&device)?;
    Ok(Expanded {
        device_bytes: device.bytes(),
        filesystem_bytes,
    })
}
