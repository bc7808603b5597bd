//! Directories of the agent's own, so that the agent can start as its own user.
//!
//! Only root may make entries in kubelet's directories. A container that runs as root before the
//! agent gives two directories to the agent's user: that of the CSI socket, and one beneath
//! kubelet's registration directory. Kubelet also looks for sockets in directories beneath it
//! (`traversePluginDir` in its `pkg/kubelet/pluginmanager/pluginwatcher`).

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use ebs_csi_policy::profile::NODE_AGENT;

use super::{SOCKET, remove_abandoned, remove_former};

/// Name of the agent's directory beneath kubelet's registration directory. It is short because the
/// path of a socket has at most 107 bytes.
pub const DIRECTORY: &str = "ebs-csi";

/// Mode of the directories. The group lets an agent in that starts as user 0 without
/// CAP_DAC_OVERRIDE, but with the agent's group: the chart's default, also after another setting.
const MODE: u32 = 0o775;

/// Gives the directory of the CSI socket, and a directory beneath kubelet's registration directory,
/// to the agent's user. Removes the sockets there that a stock registrar or an agent that started
/// as root has left; a socket that an agent still serves stays.
///
/// # Errors
/// Which directory cannot be given, with the errors of mkdir(2) and chown(2).
pub fn give(socket_directory: &Path, registry: &Path) -> Result<(), String> {
    let own = registry.join(DIRECTORY);
    remove_former(registry);
    remove_unserved(&registry.join(SOCKET));
    for path in [socket_directory, &own] {
        give_one(path).map_err(|error| {
            let (path, user) = (path.display(), NODE_AGENT.identity.uid);
            format!("{path} cannot be given to user {user}: {error}")
        })?;
    }
    Ok(())
}

fn give_one(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if metadata.mode() & MODE != MODE {
        // Without CAP_FOWNER only the owner changes the mode.
        lchown(path, Some(0), Some(0))?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(MODE))?;
    }
    let own = NODE_AGENT.identity;
    lchown(path, Some(own.uid), Some(own.gid))
}

/// Removes a registration socket that nobody serves any more.
pub(super) fn remove_unserved(path: &Path) {
    let unserved = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if unserved {
        remove_abandoned(path, "an agent that has ended");
    }
}
