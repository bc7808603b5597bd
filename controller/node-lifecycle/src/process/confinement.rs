//! The rights that node-lifecycle keeps, fixed before it connects.

use std::path::{Path, PathBuf};

use ebs_csi_confine::{Enforced, Fault, Places};
use ebs_csi_policy::profile;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Gives up everything except the service account's files, the network, and open descriptors.
/// Irreversible.
///
/// With a kubeconfig file, whose content has already been read, its directory and `tokens` replace
/// the service account's directory. From Landlock ABI 9 on, the process connects to unix sockets in
/// the directory of `controller` alone.
///
/// # Errors
/// [`Fault`]: the process must end with [`Fault::EXIT`].
pub fn enter(
    kubeconfig: Option<&Path>,
    tokens: &[PathBuf],
    controller: Option<&Path>,
) -> Result<Enforced, Fault> {
    let mut places = Places::new();
    let directory = match kubeconfig.map(|file| file.parent().unwrap_or(Path::new("/"))) {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new(SERVICE_ACCOUNT),
    };
    places = places.with("service-account", directory)?;
    for directory in tokens {
        places = places.with("service-account", directory)?;
    }
    if let Some(socket) = controller {
        places = places.with_directory_of("controller-socket-directory", socket)?;
    }
    ebs_csi_confine::enter(profile::NODE_LIFECYCLE, &places)
}
