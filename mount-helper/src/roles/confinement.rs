//! Which profile each part of the helper enters, and with which places.
use crate::mount::kubelet_root::KubeletRoot;
use crate::{journal, sys};
use ebs_csi_confine::{Enforced, Entering, Fault, Places, start, tool};
use ebs_csi_policy::profile;
use ebs_csi_policy::profile::BlockNodes;
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// Closes the inherited descriptors from number 3 on and clears the inherited environment: all
/// processes of the helper start as the supervisor.
pub(crate) fn sanitise() -> io::Result<()> {
    start::clean(profile::SUPERVISOR)
}

/// Leaves the node's namespaces that the policy names. All processes of the helper share the new
/// ones. A socket that is bound already keeps working.
pub(crate) fn namespaces() -> Result<(), Fault> {
    sys::unshare_namespaces(profile::SUPERVISOR.unshared()).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM) => Fault::CapabilityMissing("CAP_SYS_ADMIN"),
            _ => Fault::Namespaces(error),
        }
    })
}

/// Sets the broker's identity and Landlock rules. The threads are started afterwards and inherit
/// both; the system call filter is installed after they have started.
pub fn broker() -> Result<Entering, Fault> {
    Entering::begin(profile::BROKER)?.identity()?.files(&Places::new())
}

/// Sets the opener's identity, with the groups of the machine's disks, its Landlock rules and the
/// descriptors that it keeps and to some of which it writes. The system call filter is installed
/// after its threads have started.
pub fn opener(
    disks: &BlockNodes,
    written: &[BorrowedFd<'_>],
    allow_missing_landlock: bool,
) -> Result<Entering, Fault> {
    Entering::begin(profile::OPENER.on(disks))?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&Places::new())?
        .keep_descriptors(written)
}

/// Confines the relay, from the first step to the last.
pub(crate) fn relay(allow_missing_landlock: bool) -> Result<Enforced, Fault> {
    Entering::begin(profile::RELAY)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&Places::new())?
        .calls()
}

/// Confines the directories process, from the first step to the last.
pub(crate) fn directories(
    root: &KubeletRoot,
    allow_missing_landlock: bool,
) -> Result<Enforced, Fault> {
    let held = root
        .held()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| Fault::Place { place: "kubelet-root".to_owned(), source })?;
    let places = Places::new().with_descriptor("kubelet-root", held);
    Entering::begin(profile::DIRECTORIES)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&places)?
        .calls()
}

/// Confines the supervisor, from the first step to the last; every runner inherits the result, but
/// for its limits.
pub fn supervisor(allow_missing_landlock: bool) -> Result<Enforced, Fault> {
    Entering::begin(profile::SUPERVISOR)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&tool::programs(Places::new())?)?
        .calls()
}

pub(crate) fn log(enforced: &Enforced) {
    journal::info("confined", &[("as", &enforced.to_string())]);
}
