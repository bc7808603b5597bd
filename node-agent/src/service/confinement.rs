//! The rights that the process gives up between reading its facts and serving.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ebs_csi_confine::{Enforced, Entering, Fault, Places};
use ebs_csi_policy::profile;
use ebs_csi_proto::Endpoint;

use crate::settings::flags::REHEARSE;

/// Returns the directories in which sysfs shows the devices of the PCI buses.
fn pci_roots() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/sys/devices")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pci"))
        })
}

/// Opens the places that the profile `node-agent` leaves to settings.
///
/// From Landlock ABI 9 on, it connects to unix sockets in the directory of `helper` alone.
///
/// A process that starts as its own user has a registration directory of its own. There it may
/// only remove sockets: with a socket of another name it could register as another driver.
///
/// # Errors
/// [`Fault`]: the process must end with [`Fault::exit_status`].
pub fn places<'a>(
    endpoint: Option<&Endpoint>,
    registration: Option<&Path>,
    facts_files: impl IntoIterator<Item = &'a Path>,
    helper: Option<&Path>,
) -> Result<Places, Fault> {
    let mut places = Places::new();
    if let Some(Endpoint::Unix(socket)) = endpoint
        && let Some(directory) = socket.parent()
    {
        places = places.with_directory("socket-directory", "--endpoint", directory)?;
    }
    if let Some(directory) = registration {
        let place = match rustix::process::getuid().is_root() {
            true => "registration-directory",
            false => "socket-directory",
        };
        places = places.with_directory(place, "--plugin-registration-path", directory)?;
    }
    if let Some(socket) = helper {
        places = places.with_directory_of("helper-socket-directory", socket)?;
    }
    for file in facts_files {
        // Kubelet replaces the file by switching a link in its directory.
        places = places.with_file("node-facts", "--node-facts-file", file)?;
    }
    Ok(places)
}

/// Gives up user, capabilities, files, network and system calls, in the order that the profile
/// `node-agent` needs.
///
/// The process keeps these rights: reading what sysfs shows of PCI devices, using sockets that are
/// already bound, making new unix sockets, removing its own CSI socket, reading the files of
/// `places`, making and removing a socket in kubelet's registration directory, and, with `vsock`
/// alone, making sockets of AF_VSOCK.
///
/// # Errors
/// [`Fault`]: the process must end with [`Fault::exit_status`].
pub fn enter(mut places: Places, vsock: bool) -> Result<Enforced, Fault> {
    for root in pci_roots() {
        places = places.with("pci-devices", root)?;
    }
    Entering::begin(profile::NODE_AGENT)?
        .choose(vsock.then_some("vsock"))?
        .identity()?
        .files(&places)?
        .calls()
}

/// Lets a child take every step of [`enter`] and end. A process that cannot be confined thereby
/// ends before it has taken anything over from the serving agent.
///
/// # Errors
/// The child's reason. A child that cannot be started is logged; [`enter`] itself then decides.
pub fn rehearse() -> Result<(), String> {
    let child = Command::new("/proc/self/exe")
        .arg(REHEARSE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match child {
        Ok(child) if child.status.success() => Ok(()),
        Ok(child) => {
            let why = String::from_utf8_lossy(&child.stderr);
            let why = why.trim().trim_start_matches("ebs-csi-node-agent: ");
            Err(format!("{why} ({})", child.status))
        }
        Err(error) => {
            tracing::warn!(%error, "the confinement cannot be tried beforehand");
            Ok(())
        }
    }
}
