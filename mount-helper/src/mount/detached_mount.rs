//! Mounts are made detached, compared with what they should be, and only then attached to a held
//! target. Each function that makes or ends a mount takes the policy's authorization as an
//! argument.
use crate::disk::device::{Device, DiskRoots};
use crate::disk::device_number::of_filesystem;
use crate::mount::privilege;
use crate::outcome::{At, Result, Stop, damaged, failed};
use crate::path_resolution::HeldPath;
use crate::{journal, sys};
use ebs_csi_policy::flag::MountPlan;
use ebs_csi_policy::judge::{Authorized, Publish, StageDisk, Withdraw};
use ebs_csi_wire::{
    Features, FsType, KernelVersion, MountFlag, Observation, Refusal, Refused, Step, largest_block,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree, unmount,
};
use std::sync::OnceLock;

/// One parameter of a file system's mount context (fsconfig(2)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parameter {
    Flag(String),
    Value(String, String),
}

impl Parameter {
    /// Returns the parameter as a flag of a request.
    fn flag(&self) -> Option<MountFlag> {
        match self {
            Self::Flag(name) => MountFlag::new(name, None),
            Self::Value(name, value) => MountFlag::new(name, Some(value)),
        }
        .ok()
    }

    fn set(&self, context: &OwnedFd) -> Result<(), Errno> {
        match self {
            Self::Flag(name) => fsconfig_set_flag(context.as_fd(), name.as_str()),
            Self::Value(name, value) => {
                fsconfig_set_string(context.as_fd(), name.as_str(), value.as_str())
            }
        }
    }
}

/// Returns the parameters that follow from a plan and the driver's own rules. `continues`: the
/// superblock of an ext file system says to continue after an error, which counts unless the plan
/// has an `errors` option.
pub(crate) fn parameters(plan: &MountPlan, fs: FsType, continues: bool) -> Vec<Parameter> {
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
    if plan.no_replay {
        add(if fs == FsType::Xfs { "norecovery" } else { "noload" });
    }
    if fs == FsType::Xfs {
        // A clone and its origin have the same identifier, and can be mounted on one node.
        add("nouuid");
    } else if !plan.context.iter().any(|(name, _)| *name == ERRORS) {
        // Without this option the kernel does what the superblock asks for, which may be a panic.
        parameters.push(errors_option(if continues { "continue" } else { "remount-ro" }));
    }
    parameters
}

/// The option for what an ext file system does after an error.
const ERRORS: &str = "errors";

fn errors_option(what: &str) -> Parameter {
    Parameter::Value(ERRORS.to_owned(), what.to_owned())
}

/// A mount that is not attached anywhere yet.
#[derive(Debug)]
pub(crate) struct DetachedMount(OwnedFd);

/// Makes a mount of exactly this disk. `attributes` are `MOUNT_ATTR_*` bits, which are set before
/// anybody can see the mount.
pub(crate) fn create(
    _permit: &Authorized<StageDisk>,
    fs: FsType,
    (disks, device): (&DiskRoots, &Device),
    parameters: &[Parameter],
    attributes: u64,
) -> Result<DetachedMount> {
    let attributes = MountAttrFlags::from_bits(u32::try_from(attributes).unwrap_or(u32::MAX))
        .ok_or(Refusal::MountFlag)?;
    let context = fsopen(fs.as_str(), FsOpenFlags::FSOPEN_CLOEXEC).at(Step::CreateMount)?;
    fsconfig_set_string(context.as_fd(), "source", device.path()).at(Step::CreateMount)?;
    for parameter in parameters {
        match parameter.set(&context) {
            Ok(()) => {}
            // The kernel does not know the parameter, or not with this value.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                log_kernel_messages(&context, device);
                let seen = parameter.flag().map(Observation::MountFlag);
                return Err(Refused { reason: Refusal::MountFlag, seen }.into());
            }
            Err(e) => return Err(failed(Step::CreateMount, e)),
        }
    }
    if let Err(errno) = fsconfig_create(context.as_fd()) {
        log_kernel_messages(&context, device);
        let read_only = parameters.contains(&Parameter::Flag("ro".to_owned()));
        return Err(match errno {
            // EFSCORRUPTED and EFSBADCRC.
            Errno::UCLEAN | Errno::BADMSG => damaged(fs),
            // A journal has to be replayed, and the disk accepts no writes.
            Errno::ROFS => Refusal::DeviceReadOnly.into(),
            // The kernel has one number for a feature, a size and an option that it does not take.
            Errno::INVAL | Errno::NOSYS => lacking(disks, device, read_only)
                .unwrap_or_else(|| failed(Step::CreateMount, errno)),
            _ => failed(Step::CreateMount, errno),
        });
    }
    let mount = mounted(&context, attributes).at(Step::CreateMount)?;
    // The source was given by name, so check which disk the kernel opened.
    if of_filesystem(&fstat(&mount).at(Step::CreateMount)?) != device.number() {
        return Err(Refusal::DeviceMismatch.into());
    }
    Ok(DetachedMount(mount))
}

/// Makes a context's mount with these attributes. The system call filter permits only fsmount calls
/// with `nodev`, which is cleared afterwards where the attributes lack it.
fn mounted(context: &OwnedFd, attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let nodev = MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes | nodev)?;
    if !attributes.contains(nodev) {
        sys::set_mount_attributes(&mount, 0, nodev.bits().into())
            .map_err(|error| sys::errno_of(&error))?;
    }
    Ok(mount)
}

/// Returns the refusal of a file system that needs something which the kernel lacks; None when
/// nothing is known to be lacking.
fn lacking(disks: &DiskRoots, device: &Device, read_only: bool) -> Option<Stop> {
    let features = disks.first_facts(device).ok()?.features?;
    let (kernel, page) = (kernel_version()?, sys::page_bytes());
    let features = features.lacking(kernel, page, read_only)?;
    let seen = Observation::Lacking { features, kernel: Some(kernel) };
    Some(Refused::because(Refusal::KernelLacksFeature, seen).into())
}

/// Refuses a new file system with blocks that the kernel could not mount.
pub(crate) fn check_block_size(fs: FsType, block_bytes: u64) -> Result<()> {
    let Some(kernel) = kernel_version() else { return Ok(()) };
    let block_bytes = u32::try_from(block_bytes).unwrap_or(u32::MAX);
    if block_bytes <= largest_block(fs, kernel, sys::page_bytes()) {
        return Ok(());
    }
    let features =
        Features { fs, compatible: 0, incompatible: 0, read_only_compatible: 0, block_bytes };
    let seen = Observation::Lacking { features, kernel: Some(kernel) };
    Err(Refused::because(Refusal::KernelLacksFeature, seen).into())
}

/// Returns the version of the running kernel. The first call, which asks the kernel, comes before
/// the system call filter.
pub(crate) fn kernel_version() -> Option<KernelVersion> {
    static VERSION: OnceLock<Option<KernelVersion>> = OnceLock::new();
    *VERSION
        .get_or_init(|| KernelVersion::parse(&rustix::system::uname().release().to_string_lossy()))
}

/// Longest message of the kernel that is read, in bytes, and the largest number of messages; the
/// kernel keeps eight.
const MESSAGE: usize = 512;
const MESSAGES: usize = 8;

/// Logs what the kernel says in the context about a failed mount (fsopen(2)). What a file system
/// itself says stands in the kernel's log alone.
fn log_kernel_messages(context: &OwnedFd, device: &Device) {
    let mut buffer = [0; MESSAGE];
    for _ in 0..MESSAGES {
        let Ok(length) = rustix::io::read(context, &mut buffer) else { return };
        let message = String::from_utf8_lossy(&buffer[..length]);
        let said = message.trim_end();
        journal::error("kernel", &[("disk", device.disk()), ("said", said)]);
    }
}

/// A further mount of a file system that is mounted somewhere already, and the context that can
/// reconfigure the file system for all its mounts.
#[derive(Debug)]
pub(crate) struct JoinedMount {
    context: OwnedFd,
    mount: DetachedMount,
}

/// Joins the live file system of this disk. Fails with `EBUSY` when anything else holds the disk,
/// or when `read_only` differs from the state of the file system.
pub(crate) fn join(
    _permit: &Authorized<Withdraw>,
    fs: FsType,
    device: &Device,
    read_only: bool,
) -> Result<JoinedMount, Errno> {
    join_filesystem(fs, device, read_only)
}

/// Does the same as [`join`] for a stage.
pub(crate) fn join_for_stage(
    _permit: &Authorized<StageDisk>,
    fs: FsType,
    device: &Device,
    read_only: bool,
) -> Result<JoinedMount, Errno> {
    join_filesystem(fs, device, read_only)
}

fn join_filesystem(fs: FsType, device: &Device, read_only: bool) -> Result<JoinedMount, Errno> {
    let context = fsopen(fs.as_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device.path())?;
    if read_only {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    if fs == FsType::Xfs {
        fsconfig_set_flag(context.as_fd(), "nouuid")?;
    } else {
        // Counts only when the other mount has just gone and this call mounts the file system anew.
        errors_option("remount-ro").set(&context)?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = mounted(&context, MountAttrFlags::empty())?;
    if of_filesystem(&fstat(&mount)?) != device.number() {
        return Err(Errno::NODEV);
    }
    Ok(JoinedMount { context, mount: DetachedMount(mount) })
}

impl JoinedMount {
    /// Writes the file system back and makes it read-only for all its mounts. Fails with `EBUSY`
    /// while a file is open for writing.
    pub(crate) fn make_read_only(&self) -> Result<(), Errno> {
        self.reconfigure("ro")
    }

    pub(crate) fn make_writable(&self) -> Result<(), Errno> {
        self.reconfigure("rw")
    }

    /// Reconfigures the file system: a context that has made its mount does that from then on
    /// (fsmount(2)).
    fn reconfigure(&self, word: &str) -> Result<(), Errno> {
        fsconfig_set_flag(self.context.as_fd(), word)?;
        fsconfig_reconfigure(self.context.as_fd())
    }

    pub(crate) fn root(&self) -> Result<OwnedFd, Errno> {
        self.mount.root()
    }

    pub(crate) fn into_mount(self) -> DetachedMount {
        self.mount
    }
}

/// Copies the mount at a held path, without what is mounted beneath it.
pub(crate) fn copy(_permit: &Authorized<Publish>, of: &HeldPath) -> Result<DetachedMount> {
    open_tree(
        of,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH,
    )
    .at(Step::CreateMount)
    .map(DetachedMount)
}

impl DetachedMount {
    /// Sets and clears `MOUNT_ATTR_*` bits in one step.
    pub(crate) fn change(&self, set: u64, clear: u64) -> Result<()> {
        if set == 0 && clear == 0 {
            return Ok(());
        }
        sys::set_mount_attributes(&self.0, set, clear).at(Step::CreateMount)
    }

    /// Attaches the mount to a held path. Consumes the handle, because an open one would keep the
    /// mount busy.
    pub(crate) fn attach(self, target: &HeldPath) -> Result<()> {
        move_mount(
            &self.0,
            "",
            target,
            "",
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
        )
        .at(Step::AttachMount)
    }

    pub(crate) fn root(&self) -> Result<OwnedFd, Errno> {
        privilege::open_volume_root(&self.0, ".")
    }
}

/// Unmounts what stands at `name` in a held directory. The caller must hold no descriptor on the
/// mount: even an O_PATH descriptor keeps it busy.
pub(crate) fn unmount_at(
    _permit: &Authorized<Withdraw>,
    parent: &HeldPath,
    name: &str,
) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}/{name}", parent.as_fd().as_raw_fd());
    unmount(path, UnmountFlags::NOFOLLOW)
}
