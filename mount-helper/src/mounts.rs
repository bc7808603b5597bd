//! Mounts are made detached, compared with what they should be, and only then attached to a held target. Each call
//! that makes or ends one takes what the policy authorized as an argument.
use crate::device::Device;
use crate::outcome::{At, Done, failed};
use crate::sys;
use crate::volume_root;
use ebs_csi_policy::flag::MountPlan;
use ebs_csi_policy::judge::{Authorized, Publish, StageDisk, Withdraw};
use ebs_csi_wire::{ContentState, FsType, Refusal, Refused, Seen, Step};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree, unmount,
};

/// One parameter of a file system's mount context (fsconfig(2)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// A word without a value.
    Flag(String),
    /// A word with a value.
    Value(String, String),
}

impl Parameter {
    fn set(&self, context: &OwnedFd) -> Result<(), Errno> {
        match self {
            Self::Flag(name) => fsconfig_set_flag(context.as_fd(), name.as_str()),
            Self::Value(name, value) => {
                fsconfig_set_string(context.as_fd(), name.as_str(), value.as_str())
            }
        }
    }
}

/// The parameters that a plan and the driver's own rules come to. `continues`: an ext file system that
/// goes on being written to after an error, unless the plan says what becomes of it.
pub fn parameters(plan: &MountPlan, fs: FsType, continues: bool) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = plan
        .context
        .iter()
        .map(|(name, value)| match value {
            Some(value) => Parameter::Value((*name).to_owned(), value.clone()),
            None => Parameter::Flag((*name).to_owned()),
        })
        .collect();
    let mut add = |word: &str| {
        let flag = Parameter::Flag(word.to_owned());
        if !parameters.contains(&flag) {
            parameters.push(flag);
        }
    };
    if plan.read_only {
        add("ro");
    }
    if fs == FsType::Xfs {
        // A clone and its origin have one identifier, and may meet on a node.
        add("nouuid");
    } else if !plan.context.iter().any(|(name, _)| *name == ERRORS) {
        // Told nothing, the kernel does what the superblock asks for, and that may be a panic.
        parameters.push(on_error(if continues { "continue" } else { "remount-ro" }));
    }
    parameters
}

/// What an ext file system does after an error.
const ERRORS: &str = "errors";

fn on_error(what: &str) -> Parameter {
    Parameter::Value(ERRORS.to_owned(), what.to_owned())
}

/// A mount that is not attached anywhere yet.
#[derive(Debug)]
pub struct Detached(OwnedFd);

/// Make a mount of exactly this disk. `attributes` are `MOUNT_ATTR_*` bits, there before anybody can see the mount.
pub fn create(
    _permit: &Authorized<StageDisk>,
    fs: FsType,
    device: &Device,
    parameters: &[Parameter],
    attributes: u64,
) -> Done<Detached> {
    let attributes = MountAttrFlags::from_bits(u32::try_from(attributes).unwrap_or(u32::MAX))
        .ok_or(Refusal::MountFlag)?;
    let context = fsopen(fs.as_str(), FsOpenFlags::FSOPEN_CLOEXEC).at(Step::CreateMount)?;
    fsconfig_set_string(context.as_fd(), "source", device.path()).at(Step::CreateMount)?;
    for parameter in parameters {
        match parameter.set(&context) {
            Ok(()) => {}
            // The kernel does not know the word, or not with this value.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Err(Refusal::MountFlag.into()),
            Err(e) => return Err(failed(Step::CreateMount, e)),
        }
    }
    match fsconfig_create(context.as_fd()) {
        Ok(()) => {}
        // EFSCORRUPTED and EFSBADCRC.
        Err(Errno::UCLEAN | Errno::BADMSG) => {
            let damaged = Seen::Content {
                signature: fs.into(),
                state: ContentState::Damaged,
            };
            return Err(Refused::because(Refusal::FilesystemErrors, damaged).into());
        }
        Err(e) => return Err(failed(Step::CreateMount, e)),
    }
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .at(Step::CreateMount)?;
    // The source was given by name; what counts is which disk the kernel opened.
    if fstat(&mount).at(Step::CreateMount)?.st_dev != device.number() {
        return Err(Refusal::DeviceMismatch.into());
    }
    Ok(Detached(mount))
}

/// A further mount of a file system that is mounted somewhere already, and the context that can
/// change it for everybody.
#[derive(Debug)]
pub struct Joined {
    context: OwnedFd,
    mount: Detached,
}

/// Join the live file system of this disk. `EBUSY` when the disk is held by anything else, or the
/// file system is not as read-only as `read_only` says.
pub fn join(
    _permit: &Authorized<Withdraw>,
    fs: FsType,
    device: &Device,
    read_only: bool,
) -> Result<Joined, Errno> {
    joined(fs, device, read_only)
}

/// The same for a stage.
pub fn join_staged(
    _permit: &Authorized<StageDisk>,
    fs: FsType,
    device: &Device,
    read_only: bool,
) -> Result<Joined, Errno> {
    joined(fs, device, read_only)
}

fn joined(fs: FsType, device: &Device, read_only: bool) -> Result<Joined, Errno> {
    let context = fsopen(fs.as_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device.path())?;
    if read_only {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    if fs == FsType::Xfs {
        fsconfig_set_flag(context.as_fd(), "nouuid")?;
    } else {
        // Counts only where the file system has just gone, and this call mounts it anew.
        on_error("remount-ro").set(&context)?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    if fstat(&mount)?.st_dev != device.number() {
        return Err(Errno::NODEV);
    }
    Ok(Joined {
        context,
        mount: Detached(mount),
    })
}

impl Joined {
    /// Write back and take no more writes, by whichever mount. `EBUSY` while a file is open for
    /// writing.
    pub fn make_read_only(&self) -> Result<(), Errno> {
        self.reconfigure("ro")
    }

    /// Take writes again.
    pub fn make_writable(&self) -> Result<(), Errno> {
        self.reconfigure("rw")
    }

    /// A context that has made its mount changes the file system from then on (fsmount(2)).
    fn reconfigure(&self, word: &str) -> Result<(), Errno> {
        fsconfig_set_flag(self.context.as_fd(), word)?;
        fsconfig_reconfigure(self.context.as_fd())
    }

    /// The mount alone.
    pub fn into_mount(self) -> Detached {
        self.mount
    }
}

/// Copy the mount that stands at a held path, without what is mounted beneath it.
pub fn copy(_permit: &Authorized<Publish>, of: impl AsFd) -> Done<Detached> {
    open_tree(
        of,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH,
    )
    .at(Step::CreateMount)
    .map(Detached)
}

impl Detached {
    /// Set and clear `MOUNT_ATTR_*` bits in one step.
    pub fn change(&self, set: u64, clear: u64) -> Done<()> {
        if set == 0 && clear == 0 {
            return Ok(());
        }
        sys::set_mount_attributes(&self.0, set, clear).at(Step::CreateMount)
    }

    /// Attach to a held path. Consumes the handle: an open one would keep the mount busy.
    pub fn attach(self, target: impl AsFd) -> Done<()> {
        move_mount(
            &self.0,
            "",
            target,
            "",
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
        )
        .at(Step::AttachMount)
    }

    /// Root of the file system, for its ioctls.
    pub fn root(&self) -> Result<OwnedFd, Errno> {
        volume_root::open(&self.0, ".")
    }
}

/// Unmount what stands at `name` in a held directory. Nothing may hold the mount itself: a descriptor on it, even
/// one that only names it, keeps it busy.
pub fn detach(_permit: &Authorized<Withdraw>, parent: impl AsFd, name: &str) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}/{name}", parent.as_fd().as_raw_fd());
    unmount(path, UnmountFlags::NOFOLLOW)
}
