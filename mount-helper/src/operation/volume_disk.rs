//! The one door to the disk of a request: found by its serial, whether EC2's or a simulator's, or,
//! where it has none (Xen), by the name that EC2 was told. Nothing known about a disk without a
//! serial may contradict that it is the volume's, and from then on the disk is remembered as the
//! volume's.
use super::disk_use;
use crate::disk::device::opener_messages::{KnownDisk, Remembered};
use crate::disk::device::{Access, Device, XenDisk};
use crate::disk::{filesystem_identifier, promises};
use crate::journal;
use crate::operation::OperationContext;
use crate::outcome::{At, Result};
use ebs_csi_policy::facts::DiskFacts;
use ebs_csi_policy::judge;
use ebs_csi_policy::judge::disk_by_name::{self, NameFacts, Use, Whose};
use ebs_csi_wire::{Disk, Observation, Refusal, Refused, Step, VolumeId};
use std::time::Duration;

/// Longest wait for the disk. A disk that EC2 has attached appears within a second; kubelet's retry
/// covers later ones.
pub(super) const DISK_WAIT: Duration = Duration::from_secs(3);

/// Number of retries while a disk is busy, 20 ms apart.
const BUSY_RETRIES: usize = 10;

/// The disk of a request, as far as anything shows.
#[derive(Debug)]
pub(super) struct VolumeDisk<'r> {
    context: &'r OperationContext,
    requested: &'r Disk,
    device: Device,
    facts: DiskFacts,
}

impl<'r> VolumeDisk<'r> {
    /// Finds the disk, and checks that it is the one that was attached, as far as its size shows,
    /// and for a disk without a serial, as far as anything else shows. Read access is enough: each
    /// step that writes to the disk claims it.
    pub(super) fn find(
        context: &'r OperationContext,
        requested: &'r Disk,
        wait: Duration,
    ) -> Result<Self> {
        let found = context.disks.find_requested(requested, Access::ReadOnly, wait);
        let device = found.at(Step::FindDevice)?;
        let facts = device.facts();
        judge::disk(requested, &facts).map_err(|reason| match reason {
            Refusal::DeviceTooSmall => {
                Refused::because(reason, Observation::DiskBytes(facts.bytes))
            }
            _ => reason.into(),
        })?;
        let (volume, sequence) = (&requested.volume, device.sequence());
        let attached_at = requested.attached_at.as_ref();
        let promised = context.promises.forbids(promises::now(), volume, attached_at, sequence);
        if promised.at(Step::Sync)? {
            return Err(Refusal::Promised.into());
        }
        // A mount that follows makes the file system writable again.
        context.released_beside_copy.lock().remove(&(sequence, device.whole()));
        let disk = Self { context, requested, device, facts };
        // A serial needs no further proof.
        disk.device.by_name().map_or(Ok(()), |named| disk.check_name(named))?;
        Ok(disk)
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn facts(&self) -> &DiskFacts {
        &self.facts
    }

    /// Remembers a disk without a serial as the volume's. Must be called before anything is written
    /// to the disk or it is published.
    pub(super) fn remember(&self) -> Result<()> {
        let Some(named) = self.device.by_name() else {
            return Ok(());
        };
        let taken = KnownDisk { disk: named, volume: Some(self.requested.volume.clone()) };
        let remembered = self.context.disks.remember(&taken).at(Step::FindDevice)?;
        if remembered == Remembered::AsAnother {
            return Err(Refusal::DeviceMismatch.into());
        }
        if remembered == Remembered::Now {
            let told = self.requested.device_hint.as_ref().map_or("", |name| name.as_str());
            journal::warn(
                "disk-by-name",
                &[
                    ("volume", self.requested.volume.as_str()),
                    ("disk", &self.device.path()),
                    ("told", told),
                    ("diskseq", &named.sequence.to_string()),
                    ("meaning", "the disk has no serial: its name is taken for its identity"),
                ],
            );
        }
        Ok(())
    }

    /// Checks that the disk is still the one that was found.
    pub(super) fn verify(&self) -> Result<()> {
        self.context.verify(&self.device)
    }

    /// Checks that the mounted disk is this one and not one that left the node before it. With Xen
    /// the next disk at a name gets the device number of the last one, and only a mount of this
    /// disk has claimed it.
    pub(super) fn verify_mounted(&self) -> Result<()> {
        self.verify()?;
        if self.device.by_name().is_some()
            && self.device.is_free(&self.context.disks).at(Step::FindDevice)?
        {
            return Err(Refusal::DeviceMismatch.into());
        }
        Ok(())
    }

    fn check_name(&self, named: XenDisk) -> Result<()> {
        let known = self.context.disks.known_disk(named.number);
        let known = known.filter(|known| known.disk == named).and_then(|known| known.volume);
        let before = self.compare("taken-for", known);
        let mut facts =
            NameFacts { before, other_disk: false, mark: Whose::Unknown, used: Use::Nobody };
        // An earlier decision that is remembered settles the question alone.
        if before == Whose::Unknown {
            facts.other_disk = self.has_other_disk(named)?;
            facts.mark = self.read_mark()?;
            facts.used = self.find_use(named)?;
        }
        disk_by_name::judge(self.requested, &facts).map_err(|reason| match reason {
            Refusal::StillHeld => {
                self.context.in_use_refusal(reason, self.device.number(), "").into()
            }
            _ => reason.into(),
        })
    }

    fn has_other_disk(&self, named: XenDisk) -> Result<bool> {
        let taken = self.context.disks.disks_taken_for(Some(&self.requested.volume));
        Ok(taken.at(Step::FindDevice)?.iter().any(|other| other.disk != named))
    }

    fn read_mark(&self) -> Result<Whose> {
        let facts = self.context.disks.first_facts(&self.device).at(Step::ReadDevice)?;
        let volume = facts.identifier.and_then(filesystem_identifier::volume_of);
        Ok(self.compare("identifier-of", volume))
    }

    fn find_use(&self, named: XenDisk) -> Result<Use> {
        let context = self.context;
        if context.is_mounted_elsewhere(named)? {
            return Ok(Use::Elsewhere);
        }
        let mut mounted = false;
        for number in &context.disks.numbers_of(named).at(Step::FindDevice)? {
            if context.disks.holder_of(*number).at(Step::FindDevice)?.is_some() {
                return Ok(Use::Elsewhere);
            }
            let mounts = context.mount_table.read_of(*number).at(Step::ReadMountTable)?;
            mounted |= !mounts.is_empty();
        }
        let is_free = || self.device.is_free(&context.disks).at(Step::FindDevice);
        let mut free = is_free()?;
        for _ in 0..BUSY_RETRIES {
            if free || mounted {
                break;
            }
            // A program that only reads disks holds the disk for a moment.
            std::thread::sleep(Duration::from_millis(20));
            free = is_free()?;
        }
        Ok(match (mounted, free) {
            (true, true) => Use::Former,
            (true, false) => Use::Kubelet,
            (false, true) => Use::Nobody,
            // A pod to which the disk was published raw may have claimed it.
            (false, false) if !disk_use::publications(context, &self.device)?.is_empty() => {
                Use::Kubelet
            }
            (false, false) => Use::Elsewhere,
        })
    }

    /// Compares the volume that a fact names with the request's, and logs another one.
    fn compare(&self, fact: &str, volume: Option<VolumeId>) -> Whose {
        let requested = &self.requested.volume;
        match volume {
            None => Whose::Unknown,
            Some(volume) if volume == *requested => Whose::ThisVolume,
            Some(other) => {
                let disk = self.device.path();
                let fields =
                    [("volume", requested.as_str()), ("disk", &disk), (fact, other.as_str())];
                journal::warn("name-contradicted", &fields);
                Whose::Another
            }
        }
    }
}
