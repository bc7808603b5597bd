//! What the controller may still use of the machine once it serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebs_csi_confine::{Enforced, Fault, Places};
use ebs_csi_policy::profile;
use ebs_csi_proto::Endpoint;

use crate::process::http::CertificateFiles;

/// The variables that name a file or directory that the driver, the AWS SDK or its TLS library
/// reads after confinement, some of them repeatedly.
const CREDENTIAL_FILES: [&str; 7] = [
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Gives up access to everything but these files, the network, and the sockets that are already
/// bound. Irreversible.
///
/// # Errors
/// [`Fault`]: the process must end with [`Fault::EXIT`].
pub fn enter(
    sockets: &[&Endpoint],
    environment: &BTreeMap<String, String>,
    certificate: Option<&CertificateFiles>,
) -> Result<Enforced, Fault> {
    let mut places = Places::new();
    let mut files = credential_files(environment);
    files
        .extend(certificate.into_iter().flat_map(|files| [files.chain.clone(), files.key.clone()]));
    for path in files {
        // Allow the directory, because a rotated token is a new file in it.
        let place =
            if path.is_dir() { path } else { path.parent().map(Path::to_path_buf).unwrap_or(path) };
        if place.exists() {
            places = places.with("credentials", place)?;
        }
    }
    for socket in sockets {
        if let Endpoint::Unix(path) = socket
            && let Some(directory) = path.parent().filter(|directory| directory.exists())
        {
            places = places.with("socket-directory", directory)?;
        }
    }
    ebs_csi_confine::enter(profile::CONTROLLER, &places)
}

fn credential_files(environment: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let named = CREDENTIAL_FILES.iter().filter_map(|name| environment.get(*name));
    let mut files: Vec<PathBuf> =
        named.filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    if let Some(home) = environment.get("HOME") {
        // Allow `.aws` alone: a home directory holds more than credentials.
        let directory = Path::new(home).join(".aws");
        if directory.is_dir() {
            files.push(directory);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sdk_credential_files_are_found_in_environment() {
        let environment = BTreeMap::from([
            ("AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(), "/var/run/secrets/eks/token".to_owned()),
            ("AWS_CONFIG_FILE".to_owned(), String::new()),
            ("HOME".to_owned(), "/nonexistent".to_owned()),
            ("PATH".to_owned(), "/bin".to_owned()),
        ]);
        assert_eq!(credential_files(&environment), [PathBuf::from("/var/run/secrets/eks/token")]);
    }
}
