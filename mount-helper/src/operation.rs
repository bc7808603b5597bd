//! The operations behind the requests: each gathers the facts itself, has the policy judge them,
//! and acts only on what the policy allowed.
mod copied_mount;
mod disk_use;
mod grow;
mod held;
mod inspect;
mod publish;
pub(crate) mod runner_requests;
mod stage;
mod statistics;
mod volume_disk;
mod withdraw;

use crate::disk::attachments::{Attachments, ExaminedDisks, MountedDisks, ReadOnlyRecord};
use crate::disk::device::opener_messages::KnownDisk;
use crate::disk::device::{Access, Claim, Device, DeviceError, DiskRoots, XenDisk};
use crate::disk::device_number;
use crate::disk::format_comparison::Comparisons;
use crate::disk::promises::Promises;
use crate::lock;
use crate::mount::directory_requests::Directories;
use crate::mount::kubelet_root::KubeletRoot;
use crate::mount::mount_table::MountTable;
use crate::operation::runner_requests::Runners;
use crate::outcome::{At, Result, Stop};
use crate::tool::PlaceKind;
use ebs_csi_policy::ceiling::Ceiling;
use ebs_csi_policy::facts::{DeviceNumber, MountFacts, Owner, PathFacts};
use ebs_csi_policy::place;
use ebs_csi_wire::{
    FsType, HelperRequest, KubeletPath, Operation, Outcome, Refusal, Refused, Step, VolumeId,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

pub(crate) use copied_mount::CopiedMounts;
pub(crate) use disk_use::record_earlier_publications;
pub(crate) use inspect::inventory;

/// Carries out one operation on a volume. An error says that the operation needs a tool, has done
/// nothing yet, and has to wait until there is a place of this kind.
pub(crate) fn run(context: &OperationContext, operation: &Operation) -> Result<Outcome, PlaceKind> {
    if let Err(reason) = place::check(operation, context.root.path(), context.rules.places()) {
        return Ok(reason.into());
    }
    let Some(_reservation) = context.path_reservations.enter(operation.changed_path()) else {
        return Ok(Refusal::Busy.into());
    };
    let outcome = match operation {
        Operation::Stage(request) => answer(context, request, stage::stage),
        Operation::Unstage(request) => answer(context, request, withdraw::unstage),
        Operation::PublishFilesystem(request) => answer(context, request, publish::filesystem),
        Operation::PublishBlock(request) => answer(context, request, publish::block),
        Operation::Unpublish(request) => answer(context, request, withdraw::unpublish),
        Operation::Expand(request) => answer(context, request, grow::expand),
        Operation::Stats(request) => answer(context, request, statistics::stats),
        Operation::NvmeStatistics(request) => answer(context, request, statistics::nvme),
        Operation::Held(request) => answer(context, request, held::held),
        Operation::Promise(request) => answer(context, request, held::promise),
        Operation::Hello(_) | Operation::Inspect(_) => Err(Refusal::Unsupported.into()),
    };
    outcome.or_else(Stop::outcome)
}

fn answer<R: HelperRequest>(
    context: &OperationContext,
    request: &R,
    carry_out: fn(&OperationContext, &R) -> Result<R::Answer>,
) -> Result<Outcome> {
    carry_out(context, request).map(Into::into)
}

/// The broker's held directories, its state and its connections to the other processes.
#[derive(Debug)]
pub(crate) struct OperationContext {
    /// The kubelet root, beneath which every path of a request lies.
    pub(crate) root: KubeletRoot,
    pub(crate) disks: DiskRoots,
    pub(crate) mount_table: MountTable,
    pub(crate) directories: Directories,
    pub(crate) runners: Runners,
    /// The compiled rules under the settings.
    pub(crate) rules: Ceiling,
    /// Which disks need not be examined again.
    pub(crate) examined_disks: ExaminedDisks,
    pub(crate) mounted_disks: MountedDisks,
    /// The comparisons between the content of disks and formats of their volumes.
    pub(crate) comparisons: Comparisons,
    /// What to do about copies of mounts in other namespaces.
    pub(crate) copied_mounts: CopiedMounts,
    pub(crate) read_only_record: ReadOnlyRecord,
    pub(crate) promises: Promises,
    /// The disks of which an unstage has made a file system read-only that files in another mount
    /// namespace keep.
    pub(crate) released_beside_copy: Attachments<()>,
    pub(crate) path_reservations: PathReservations,
    /// The mark that this process uses the kubelet root.
    #[expect(dead_code, reason = "held for as long as a thread lives")]
    pub(crate) mark: OwnedFd,
}

impl OperationContext {
    /// Returns a path of a request relative to the root. The caller has checked before the
    /// operation began that the policy allows the path.
    pub(crate) fn relative<'p>(&self, path: &'p KubeletPath) -> Result<&'p str> {
        path.strip_root(self.root.path())
            .map(|relative| relative.as_str())
            .ok_or_else(|| Refusal::PathOutside.into())
    }

    pub(crate) fn path_facts(&self, relative: &str) -> Result<PathFacts> {
        self.root.path_facts(relative, &self.mount_table)
    }

    /// Returns whose disk is mounted at a place. A place without a mount counts as the volume's.
    pub(crate) fn owner(&self, place: &PathFacts, volume: &VolumeId) -> Result<Owner> {
        let PathFacts::Mounted(MountFacts { device, block, .. }) = place else {
            return Ok(Owner::ThisVolume);
        };
        if device_number::is_anonymous(*device) {
            return Ok(Owner::Another);
        }
        Ok(match self.disks.serial_of(*device) {
            Some(serial) if serial == volume.serial() => Owner::ThisVolume,
            Some(_) => Owner::Another,
            None => match self.disks.known_disk(*device) {
                Some(known) => self.owner_of_xen_disk(&known, *block, volume)?,
                None if self.disks.exists(*device) => Owner::Another,
                None if self.was_mounted_by_driver(*device, *block)? => Owner::Gone,
                None => Owner::Another,
            },
        })
    }

    /// Returns whether a mount of a disk that is gone looks like one of a volume: made by a mount
    /// call of this helper, or one like it, on a disk that could be a volume's.
    fn was_mounted_by_driver(&self, device: DeviceNumber, block: bool) -> Result<bool> {
        let mounts = self.mount_table.read().at(Step::ReadMountTable)?;
        Ok(mounts.iter().any(|mount| {
            let named = if block {
                let bound = || self.root.bound_node(&self.root.relative(mount)?);
                Some(mount.root_name()).filter(|_| bound() == Some(device))
            } else {
                let ours = FsType::ALL.iter().any(|fs| fs.as_str() == mount.fs_type);
                mount.source.rsplit('/').next().filter(|_| ours && mount.device == device)
            };
            named.is_some_and(|name| self.disks.may_be_disk_name(name))
        }))
    }

    /// Returns the owner of a disk without a serial, from what is remembered of it. A disk that is
    /// also mounted outside the places of volumes belongs to no volume, whoever asks. A mount under
    /// the disk's number that has not claimed the disk is of a disk that left the node before this
    /// one came.
    fn owner_of_xen_disk(
        &self,
        known: &KnownDisk,
        block: bool,
        volume: &VolumeId,
    ) -> Result<Owner> {
        let disk = known.disk;
        let former = || {
            let now = self.disks.open_known(disk, None, Access::ReadOnly);
            !block && now.and_then(|device| device.is_free(&self.disks)) == Ok(true)
        };
        Ok(match &known.volume {
            Some(known) if known == volume => Owner::ThisVolume,
            Some(_) => Owner::Another,
            None if self.is_mounted_elsewhere(disk)? => Owner::Another,
            None if former() => Owner::Gone,
            None => Owner::Unproved,
        })
    }

    /// Returns whether the disk, or a partition of it, is mounted where no volume is, as the
    /// machine's own disk is.
    pub(crate) fn is_mounted_elsewhere(&self, disk: XenDisk) -> Result<bool> {
        for number in self.disks.numbers_of(disk).at(Step::FindDevice)? {
            let mounts = self.mount_table.read_of(number).at(Step::ReadMountTable)?;
            if mounts.iter().any(|mount| self.root.relative(mount).is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds a volume's disk for a request that does not say where it is: by its serial, or by what
    /// is remembered of disks without one.
    pub(crate) fn find_known(
        &self,
        volume: &VolumeId,
        partition: Option<NonZeroU32>,
        access: Access,
    ) -> Result<Device, DeviceError> {
        let mut found = self.disks.find_part(&volume.serial(), partition, access, Duration::ZERO);
        if found.as_ref().is_err_and(|error| *error == DeviceError::Absent) {
            for known in self.disks.disks_taken_for(Some(volume))? {
                found = self.disks.open_known(known.disk, partition, access);
                if found.as_ref().err() != Some(&DeviceError::Absent) {
                    break;
                }
            }
        }
        found
    }

    /// Returns the number of the partition that is mounted or bound at a place; None for a whole
    /// disk.
    pub(crate) fn partition_at(&self, place: &PathFacts) -> Option<NonZeroU32> {
        match place {
            PathFacts::Mounted(mount) => self.disks.partition_of(mount.device),
            _ => None,
        }
    }

    /// Builds the refusal for a disk that is in use, with a place other than `relative` where the
    /// disk is mounted.
    pub(crate) fn in_use_refusal(
        &self,
        reason: Refusal,
        device: DeviceNumber,
        relative: &str,
    ) -> Refused {
        Refused { reason, seen: self.root.other_mount(device, relative, &self.mount_table) }
    }

    pub(crate) fn claim(&self, device: &Device, access: Access) -> Result<Claim> {
        match device.claim(&self.disks, access) {
            Err(DeviceError::Os(Errno::BUSY)) => Err(Refusal::StillHeld.into()),
            other => other.at(Step::ClaimDevice),
        }
    }

    /// Checks that the disk is still the one that was found.
    pub(crate) fn verify(&self, device: &Device) -> Result<()> {
        device.verify(&self.disks).at(Step::FindDevice)
    }
}

/// The places (paths) that are reserved. Changes of one volume run one after the other; so that
/// operations of two volumes never meet at one place, an operation reserves its place together with
/// everything above and beneath it.
#[derive(Debug, Default)]
pub(crate) struct PathReservations(Mutex<Vec<KubeletPath>>);

/// A place that is reserved for one operation until this is dropped.
#[derive(Debug)]
pub(crate) struct PathReservation<'l> {
    reservations: &'l PathReservations,
    place: Option<KubeletPath>,
}

impl PathReservations {
    /// Reserves the place that an operation changes, if it changes one. Returns None when the
    /// operation of another volume has reserved the place: two volumes never share a place, so no
    /// honest caller meets this.
    pub(crate) fn enter(&self, place: Option<&KubeletPath>) -> Option<PathReservation<'_>> {
        let place = place.cloned();
        if let Some(place) = &place {
            let mut taken = lock(&self.0);
            if taken.iter().any(|other| meet(other, place)) {
                return None;
            }
            taken.push(place.clone());
        }
        Some(PathReservation { reservations: self, place })
    }
}

impl Drop for PathReservation<'_> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            lock(&self.reservations.0).retain(|other| other != place);
        }
    }
}

/// Returns whether the paths are equal or one is above the other.
fn meet(one: &KubeletPath, other: &KubeletPath) -> bool {
    one == other || one.strip_root(other).is_some() || other.strip_root(one).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> KubeletPath {
        KubeletPath::parse(path).expect("path")
    }

    #[test]
    fn path_lane_excludes_parents_and_children_until_dropped() {
        let reservations = PathReservations::default();
        let enter = |place: &str| reservations.enter(Some(&path(place)));
        let reservation = enter("/k/pods/a").expect("free");
        for place in ["/k/pods/a", "/k/pods/a/b", "/k/pods"] {
            assert!(enter(place).is_none(), "{place}");
        }
        let beside = enter("/k/pods/ab").expect("free");
        drop(reservation);
        let again = enter("/k/pods/a/b").expect("free again");
        drop((beside, again));
        assert!(lock(&reservations.0).is_empty());
    }

    #[test]
    fn operation_without_place_needs_no_reservation() {
        let reservations = PathReservations::default();
        let _reservation = reservations.enter(Some(&path("/k/pods/a"))).expect("free");
        assert!(reservations.enter(None).is_some());
    }
}
