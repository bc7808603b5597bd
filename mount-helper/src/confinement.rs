//! Which profile each part of the helper enters, and with which places.
use crate::journal;
use crate::place::Root;
use crate::sys;
use ebs_csi_confine::tool::{self, Filters};
use ebs_csi_confine::{Enforced, Entering, Fault, Places, start};
use ebs_csi_policy::block_nodes::BlockNodes;
use ebs_csi_policy::profile;
use ebs_csi_policy::tool::ToolId;
use rustix::fd::AsFd;
use std::io;

/// Forget what the starter left: descriptors and environment.
pub fn sanitise() -> io::Result<()> {
    start::close_strays(&[])?;
    // Nothing of the environment is used, and a tool gets its own.
    start::keep_environment(&[])
}

/// No network, no System V objects and no host name are shared with anybody: the socket that is bound
/// already goes on. The whole tree is in these namespaces.
pub fn namespaces() -> Result<(), Fault> {
    sys::leave_namespaces().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => Fault::CapabilityMissing("CAP_SYS_ADMIN"),
        _ => Fault::Namespaces(error),
    })
}

/// The broker's identity, and Landlock. Its filter comes behind its threads, which inherit this step.
pub fn broker() -> Result<Entering, Fault> {
    Entering::begin(profile::BROKER)?
        .identity()?
        .files(&Places::new())
}

/// The opener's, with the groups of the machine's disks; its filter comes behind its threads, too.
pub fn opener(disks: &BlockNodes, allow_missing_landlock: bool) -> Result<Entering, Fault> {
    Entering::begin(profile::OPENER.on(disks))?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&Places::new())
}

/// The directories process, from the first step to the last.
pub fn directories(root: &Root, allow_missing_landlock: bool) -> Result<Enforced, Fault> {
    let held = root
        .held()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| Fault::Place {
            place: "kubelet-root".to_owned(),
            source,
        })?;
    let places = Places::new().with_descriptor("kubelet-root", held);
    Entering::begin(profile::DIRECTORIES)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&places)?
        .calls()
}

/// The supervisor, from the first step to the last; every runner inherits it.
pub fn supervisor(allow_missing_landlock: bool) -> Result<Enforced, Fault> {
    Entering::begin(profile::SUPERVISOR)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&tool::programs(Places::new())?)?
        .calls()
}

/// In the child that becomes a tool: limits and Landlock.
pub fn tool_files(id: ToolId, allow_missing_landlock: bool) -> io::Result<()> {
    tool::restrict(id, Places::new(), allow_missing_landlock)
        .map(drop)
        .map_err(io::Error::other)
}

/// In the child that becomes a tool: the filters.
pub fn tool_calls(filters: &Filters, id: ToolId) -> io::Result<()> {
    filters.install(id).map_err(io::Error::other)
}

/// Say what the kernel confirms.
pub fn confirmed(enforced: &Enforced) {
    journal::info("confined", &[("as", &enforced.to_string())]);
}
