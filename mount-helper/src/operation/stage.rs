//! Stage: finds the volume's disk, makes it fit to be mounted, and mounts it at the staging path.
//! Each step is a type that only the step before it makes.
mod beside_copy;
mod evidence;
mod examine;
mod filesystem_tools;
mod prepare;

use crate::disk::device::{Access, Claim, Device, DiskRoots};
use crate::disk::filesystem_identifier;
use crate::fault_point;
use crate::mount::directory_requests::Act;
use crate::operation::volume_disk::{DISK_WAIT, VolumeDisk};
use crate::operation::{OperationContext, disk_use, grow};
use crate::outcome::{At, Result};
use ebs_csi_policy::facts::{Content, Evidence};
use ebs_csi_policy::flag::{self, MountPlan};
use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::judge::{self, Authorized, StageDisk, StagePlace};
use ebs_csi_wire::{Origin, Refusal, Refused, Stage, Staged, Step};
use rustix::fd::AsFd;

pub(super) fn stage(context: &OperationContext, request: &Stage) -> Result<Staged> {
    match FoundDisk::find(context, request)?.guard()? {
        Guarded::Mounted(disk) => disk.restage(),
        Guarded::Unused(disk) => disk.prepare()?.mount()?.attach(),
    }
}

/// A stage request, and the disk that was found and identified for it.
#[derive(Debug)]
struct FoundDisk<'s> {
    context: &'s OperationContext,
    /// The request, which is read-only also when a mount flag asks for that.
    request: Stage,
    format: FormatOptions,
    plan: MountPlan,
    path: &'s str,
    disk: VolumeDisk<'s>,
}

/// How a stage goes on.
#[derive(Debug)]
enum Guarded<'s> {
    Mounted(MountedDisk<'s>),
    Unused(UnusedDisk<'s>),
}

/// A disk that is mounted at the staging path already.
#[derive(Debug)]
struct MountedDisk<'s>(FoundDisk<'s>);

/// A disk that may be mounted at the staging path, and that nobody uses.
#[derive(Debug)]
struct UnusedDisk<'s> {
    found: FoundDisk<'s>,
    make: bool,
}

impl<'s> FoundDisk<'s> {
    fn find(context: &'s OperationContext, request: &'s Stage) -> Result<Self> {
        let path = context.relative(&request.staging)?;
        let plan =
            flag::plan(&request.flags, request.fs, request.read_only).map_err(Refused::from)?;
        if !context.rules.offers(request.fs) {
            return Err(Refusal::FsType.into());
        }
        let format =
            FormatOptions::check(&request.format, request.fs).map_err(|_| Refusal::FormatOption)?;
        let disk = VolumeDisk::find(context, &request.disk, DISK_WAIT)?;
        fault_point::reached("stage-found");
        // A mount flag may ask for read-only, too.
        let request = Stage { read_only: plan.read_only, ..request.clone() };
        Ok(Self { context, request, format, plan, path, disk })
    }

    /// Asks the policy whether the disk may be mounted at the staging path, checks that nobody else
    /// uses it, and makes it writable.
    fn guard(self) -> Result<Guarded<'s>> {
        let Self { context, request, path, disk, .. } = &self;
        let (device, facts) = (disk.device(), disk.facts());
        let place = context.path_facts(path)?;
        let table = context.mount_table.read().at(Step::ReadMountTable)?;
        let mounts = context.root.volume_mounts(&table, |mount| mount.device == facts.device);
        let raw = disk_use::publications_in(context, device, &table);
        let judged = judge::stage_place(request, facts, &place, &mounts, &raw);
        let permit = judged.map_err(|reason| match (reason, raw.first()) {
            (Refusal::StagedElsewhere, _) => context.in_use_refusal(reason, facts.device, path),
            (Refusal::StillHeld, Some(other)) => disk_use::held_at(context, other),
            _ => reason.into(),
        })?;
        let StagePlace::Fresh { make } = permit.into_act() else {
            return Ok(Guarded::Mounted(MountedDisk(self)));
        };
        disk_use::check_no_other_holder(context, device, &table, Some(facts.device))?;
        match disk_use::make_writable(context, device) {
            // Whether a read-only stage has to write depends on the content.
            Err(stop) if request.read_only && stop == Refusal::DeviceReadOnly.into() => {}
            other => other?,
        }
        Ok(Guarded::Unused(UnusedDisk { found: self, make }))
    }

    fn device(&self) -> &Device {
        self.disk.device()
    }

    /// Returns the disk, and the directories in which it was found.
    fn found_disk(&self) -> (&DiskRoots, &Device) {
        (&self.context.disks, self.disk.device())
    }

    /// Claims the disk for this process alone. A read-only request may need write access, too, to
    /// replay a journal.
    fn claim(&self) -> Result<Claim> {
        let read_only = self.request.read_only && self.device().facts().read_only;
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        self.context.claim(self.device(), access)
    }

    /// Flushes what a tool wrote, and checks that the disk is still the volume's.
    fn flush(&self) -> Result<()> {
        self.device().flush().at(Step::Sync)?;
        self.disk.verify()
    }

    /// Returns what this process remembers of the disk. An interrupted format is not part of it:
    /// only the content shows one.
    fn remembered_evidence(&self) -> Evidence {
        let examined_disks = &self.context.examined_disks;
        Evidence {
            uuid: filesystem_identifier::identifier(&self.request.disk.volume),
            unfinished: false,
            examined: examined_disks.has(self.device()),
            used_raw: examined_disks.was_used_raw(self.device()),
        }
    }

    /// Returns whether the content may be what an interrupted format of the volume left, and
    /// whether that can change what the policy decides.
    fn may_be_unfinished(&self, content: &Content) -> bool {
        (self.is_marked_unfinished(content)
            || matches!(content, Content::Unknown { .. } | Content::Damaged(_)))
            && !self.request.read_only
            && self.request.disk.origin != Origin::Copy
    }

    /// Returns whether an XFS of this volume says that its format is in progress.
    fn is_marked_unfinished(&self, content: &Content) -> bool {
        let uuid = filesystem_identifier::identifier(&self.request.disk.volume);
        matches!(content, Content::Xfs(facts) if facts.in_progress && facts.uuid == uuid)
    }

    /// Asks the policy what may be done to a disk with this content.
    fn judge(&self, content: &Content, evidence: Evidence) -> Result<Authorized<StageDisk>> {
        let images = self.context.rules.untrusted_images();
        let facts = self.device().facts();
        judge::stage_disk(&self.request, &facts, content, evidence, images).map_err(|reason| {
            let seen = content.seen(facts.bytes);
            Refused { reason, seen }.into()
        })
    }
}

impl MountedDisk<'_> {
    /// Completes an earlier stage: one that was interrupted after its mount has not grown the file
    /// system.
    fn restage(self) -> Result<Staged> {
        let FoundDisk { context, request, path, disk, .. } = &self.0;
        disk.remember()?;
        let grown =
            !request.read_only && grow::after_restage(context, path, request.fs, disk.device());
        let device_bytes = disk.facts().bytes;
        Ok(Staged { already: true, grown, device_bytes, ..Staged::default() })
    }
}

impl UnusedDisk<'_> {
    fn make_directory(&self) -> Result<()> {
        let (context, path) = (self.found.context, self.found.path);
        if self.make {
            context.root.make(Act::MakeDirectory, path, &context.directories)?;
        }
        Ok(())
    }
}

/// A claimed disk whose content was recognised, and what the policy allows to do with it.
#[derive(Debug)]
struct Examined<'s> {
    found: &'s FoundDisk<'s>,
    /// The claim, which keeps others from the disk.
    claim: Claim,
    content: Content,
    /// What the policy allowed, the mount included.
    permit: Authorized<StageDisk>,
}

fn read_content(context: &OperationContext, disk: impl AsFd) -> Result<Content> {
    context.disks.recognise(disk, now(), || (), || ()).at(Step::ReadDevice)
}

/// Returns the current time, in seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
