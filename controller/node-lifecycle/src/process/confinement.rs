//! The rights that node-lifecycle keeps, fixed before it connects.

use std::path::{Path, PathBuf};

use ebs_csi_confine::{Enforced, Fault, Places};
use ebs_csi_policy::profile;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Gives up everything except the service account's files, the network, and open descriptors.
/// Irreversible.
///
/// A kubeconfig file, whose content has already been read, and the files `tokens` replace the
/// service account's directory. From Landlock ABI 9 on, the process connects to unix sockets in the
/// directory of `controller` alone.
///
/// # Errors
/// [`Fault`]: the process must end with [`Fault::exit_status`].
pub fn enter(
    kubeconfig: Option<&Path>,
    tokens: &[PathBuf],
    controller: Option<&Path>,
) -> Result<Enforced, Fault> {
    let mut places = match kubeconfig {
        Some(file) => Places::new().with_file("service-account", "--kubeconfig", file)?,
        None => Places::new().with("service-account", SERVICE_ACCOUNT)?,
    };
    for file in tokens {
        places = places.with_file("service-account", "tokenFile of --kubeconfig", file)?;
    }
    if let Some(socket) = controller {
        places = places.with_directory_of("controller-socket-directory", socket)?;
    }
    ebs_csi_confine::enter(profile::NODE_LIFECYCLE, &places)
}
