//! The last steps of a stage: recognising the content of the disk and running the tool that the
//! content calls for, mounting the file system where nobody sees it, and attaching the mount. The
//! claim on the disk is held without a gap from the first read to the end of the tool, which works
//! through the same claim.
use super::examine::{self, has_fast_commits, needs_replay};
use super::filesystem_tools::{self, Check};
use super::{Examined, FoundDisk, UnusedDisk, beside_copy, evidence, now, read_content};
use crate::mount::detached_mount::{self, DetachedMount, JoinedMount};
use crate::mount::privilege;
use crate::operation::grow;
use crate::operation::runner_requests::WaitingRunner;
use crate::outcome::{At, Result, broken};
use crate::{fault_point, journal};
use ebs_csi_policy::facts::{Content, Evidence, ExtFacts};
use ebs_csi_policy::judge::{Authorized, Preparation, StageDisk, offline_growth};
use ebs_csi_wire::{FsType, Origin, Stage, Staged, Step};
use std::cell::RefCell;

/// A disk that is ready to be mounted. Nobody claims it any more.
#[derive(Debug)]
pub(super) struct Prepared<'s> {
    disk: UnusedDisk<'s>,
    /// What the policy allowed, the mount included.
    permit: Authorized<StageDisk>,
    staged: Staged,
    /// Whether the file system has to be grown once it is mounted.
    grow_mounted: bool,
    /// The mount of a file system that stays alive through a copy of an earlier mount.
    joined: Option<JoinedMount>,
}

/// The file system, mounted where nobody sees it.
#[derive(Debug)]
pub(super) struct UnseenMount<'s> {
    disk: UnusedDisk<'s>,
    mount: DetachedMount,
    staged: Staged,
}

impl<'s> UnusedDisk<'s> {
    /// Recognises the content of the disk and does what the policy allows.
    pub(super) fn prepare(self) -> Result<Prepared<'s>> {
        let found = &self.found;
        let (permit, mut staged, grow_mounted, joined) = match prepare_claimed(found) {
            Err(stop) if beside_copy::may_be_held_by_copy(found.context, &stop) => {
                let (permit, joined) = beside_copy::join_copy(found, stop)?;
                (permit, Staged::default(), false, Some(joined))
            }
            prepared => {
                let (permit, staged, grow_mounted) = prepared?;
                (permit, staged, grow_mounted, None)
            }
        };
        staged.untold = permit.act().untold;
        if staged.untold {
            let volume = ("volume", found.request.disk.volume.as_str());
            let meaning = "the controller did not say where this file system was made, so it is \
                mounted without the full check of what was made elsewhere; a volume that this \
                driver's controller attaches again is told apart";
            journal::warn("origin-untold", &[volume, ("meaning", meaning)]);
        }
        fault_point::reached("stage-prepared");
        Ok(Prepared { disk: self, permit, staged, grow_mounted, joined })
    }
}

impl<'s> Prepared<'s> {
    /// Makes the staging directory where it is missing, mounts the file system where nobody sees
    /// it, and grows the file system.
    pub(super) fn mount(self) -> Result<UnseenMount<'s>> {
        let Self { disk, permit, mut staged, grow_mounted, joined } = self;
        disk.make_directory()?;
        let found = &disk.found;
        let mut mount = match joined {
            Some(joined) => {
                let mount = joined.into_mount();
                mount.change(attributes(found, &permit), 0)?;
                mount
            }
            None => create(found, &permit)?,
        };
        found.disk.verify_mounted()?;
        let request = &found.request;
        if request.fs == FsType::Xfs && !request.read_only {
            staged.grown = grow::detached_xfs(&mount, found.device())?;
        }
        if grow_mounted {
            if grow::detached_ext(&mount, found.found_disk()) {
                fault_point::reached("stage-grown");
                staged.grown = true;
            } else {
                // Nobody can have seen the mount yet.
                drop(mount);
                grow_offline(found, &permit, &mut staged)?;
                mount = create(found, &permit)?;
                found.disk.verify_mounted()?;
            }
        }
        fault_point::reached("stage-created");
        Ok(UnseenMount { disk, mount, staged })
    }
}

impl UnseenMount<'_> {
    pub(super) fn attach(self) -> Result<Staged> {
        let Self { disk, mount, mut staged } = self;
        let found = &disk.found;
        let (context, device) = (found.context, found.device());
        let target = context.root.hold_free(found.path)?;
        mount.attach(&target)?;
        context.mounted_disks.add(device.sequence(), device.number());
        drop(target);
        fault_point::reached("stage-attached");
        staged.device_bytes = device.bytes();
        Ok(staged)
    }
}

/// Claims the disk, and does what its content calls for. Returns what the policy allowed, what was
/// done, and whether the file system has to be grown once it is mounted.
fn prepare_claimed(found: &FoundDisk<'_>) -> Result<(Authorized<StageDisk>, Staged, bool)> {
    let (mut disk, evidence, format) = Examined::recognise(found)?;
    let mut staged = Staged::default();
    let preparation = disk.permit.act().preparation;
    // The kernel journals what it changes on a mounted file system; resize2fs does not.
    let offline = disk.permit.act().grow && !privilege::has_resource();
    let full = match &disk.content {
        Content::Ext(facts) if offline => check_before_growth(facts),
        _ => Check::Full,
    };
    let replayed = needs_replay(&disk.content) && !disk.permit.act().no_replay;
    match preparation {
        Preparation::Nothing => {}
        Preparation::Format => {
            let block_bytes = found.format.block_size().unwrap_or_default();
            detached_mount::check_block_size(found.request.fs, block_bytes)?;
            disk.format(format)?;
            staged.formatted = true;
            fault_point::reached("stage-formatted");
        }
        Preparation::Check => {
            found.disk.verify()?;
            let how = if has_fast_commits(&disk.content) {
                disk = examine::replay_by_kernel(disk)?;
                // The kernel's replay may leave wrong counters.
                Check::Full
            } else {
                Check::Usual
            };
            staged.repaired = filesystem_tools::check(&disk, how)?;
        }
        Preparation::Examine => {
            found.disk.verify()?;
            (disk, staged.repaired) = examine::examine_in_full(disk, full)?;
        }
    }
    if matches!(preparation, Preparation::Check | Preparation::Examine) {
        staged.checked = true;
        staged.replayed = replayed;
        found.flush()?;
        fault_point::reached("stage-checked");
        // A check may have replayed a journal that held a newer superblock.
        disk.content = read_content(found.context, &disk.claim)?;
        let evidence = Evidence {
            examined: preparation == Preparation::Examine || evidence.examined,
            ..evidence
        };
        disk.permit = found.judge(&disk.content, evidence)?;
    }
    let grow = disk.permit.act().grow;
    let grow_mounted = grow && privilege::has_resource();
    if grow && !grow_mounted {
        let checked = preparation == Preparation::Examine && full != Check::Full;
        disk.grow(checked, &mut staged)?;
    }
    if preparation == Preparation::Examine {
        found.context.examined_disks.add(found.device());
    }
    Ok((disk.permit, staged, grow_mounted))
}

/// Grows an ext file system that the kernel could not grow once it was mounted, and adds to
/// `staged` what was done.
pub(super) fn grow_offline(
    found: &FoundDisk<'_>,
    permit: &Authorized<StageDisk>,
    staged: &mut Staged,
) -> Result<()> {
    let claim = found.claim()?;
    let content = read_content(found.context, &claim)?;
    let disk = Examined { found, content, claim, permit: permit.clone() };
    disk.grow(false, staged)
}

impl<'s> Examined<'s> {
    /// Claims the disk, recognises its content and asks the policy. A runner gets ready for a
    /// format while the content is read.
    fn recognise(found: &'s FoundDisk<'s>) -> Result<(Self, Evidence, Option<WaitingRunner<'s>>)> {
        let request = &found.request;
        let claim = found.claim()?;
        // Only a blank disk needs a format.
        let wanted = !request.read_only && request.disk.origin == Origin::Blank;
        let format: RefCell<Option<WaitingRunner<'_>>> = RefCell::new(None);
        let seems_blank = || {
            if wanted {
                format.replace(filesystem_tools::request_format_runner(found, now()));
            }
        };
        let meanwhile = || {
            if let Some(waiting) = format.borrow_mut().as_mut() {
                waiting.send_job_when_started();
            }
        };
        let content = found.context.disks.recognise(&claim, now(), seems_blank, meanwhile);
        let content = content.at(Step::ReadDevice)?;
        let format = format.into_inner();
        let evidence = if found.may_be_unfinished(&content) {
            evidence::collect(found, &content, &claim)?
        } else {
            found.remembered_evidence()
        };
        fault_point::reached("stage-looked");
        let permit = found.judge(&content, evidence)?;
        found.disk.remember()?;
        let disk = Self { found, claim, content, permit };
        Ok((disk, evidence, format))
    }

    fn format(&self, waiting: Option<WaitingRunner<'_>>) -> Result<()> {
        self.found.disk.verify()?;
        // The tool flushes its writes before it reports success, and the content is read from the
        // disk.
        filesystem_tools::format(self, waiting, now())?;
        let made = read_content(self.found.context, &self.claim)?;
        check_format(&self.found.request, &made)?;
        fault_point::reached("stage-made");
        self.found.disk.verify()
    }

    /// Grows an ext file system by resize2fs, and adds to `staged` what was done. `checked` says
    /// that the full check before it has been done; otherwise it is done here.
    fn grow(&self, checked: bool, staged: &mut Staged) -> Result<()> {
        self.found.disk.verify()?;
        // resize2fs works only on a file system that was checked in full since its last mount.
        if !checked {
            let Content::Ext(facts) = &self.content else {
                return Err(broken(Step::Grow));
            };
            staged.repaired |= filesystem_tools::check(self, check_before_growth(facts))?;
            self.found.flush()?;
            fault_point::reached("stage-marked");
        }
        staged.grown = filesystem_tools::grow_ext(self)?;
        self.found.flush()?;
        if !staged.grown {
            // The file system keeps its size. A full check confirms that it is still sound before
            // anybody uses it.
            grow::log_not_grown(self.found.request.fs, "resize2fs does not grow it");
            staged.repaired |= filesystem_tools::check(self, Check::Full)?;
            self.found.flush()?;
        }
        staged.checked = true;
        fault_point::reached("stage-grown");
        Ok(())
    }
}

/// Returns the full check that an offline growth needs, which also marks that one begins.
fn check_before_growth(facts: &ExtFacts) -> Check {
    Check::FullBeforeGrowth(offline_growth::time(facts.uuid, now()))
}

/// Checks that a format tool that reported success made what was asked for.
fn check_format(request: &Stage, content: &Content) -> Result<()> {
    let right = match content {
        Content::Ext(_) => request.fs != FsType::Xfs,
        Content::Xfs(facts) => request.fs == FsType::Xfs && facts.sound && !facts.in_progress,
        _ => false,
    };
    if right { Ok(()) } else { Err(broken(Step::Format)) }
}

fn create(found: &FoundDisk<'_>, permit: &Authorized<StageDisk>) -> Result<DetachedMount> {
    let (fs, attributes) = (found.request.fs, attributes(found, permit));
    let parameters = detached_mount::parameters(&found.plan, fs, permit.act().continues);
    detached_mount::create(permit, fs, found.found_disk(), &parameters, attributes)
}

fn attributes(found: &FoundDisk<'_>, permit: &Authorized<StageDisk>) -> u64 {
    found.plan.set | found.context.rules.nodev_nosuid().staged(permit.act().ours)
}
