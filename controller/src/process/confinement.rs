//! What the controller may still use of the machine once it serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebs_csi_confine::{Enforced, Fault, Places};
use ebs_csi_policy::profile;

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
/// [`Fault`]: the process must end with [`Fault::exit_status`].
pub fn enter(
    environment: &BTreeMap<String, String>,
    certificate: Option<&CertificateFiles>,
) -> Result<Enforced, Fault> {
    let mut places = Places::new();
    for (setting, file) in credential_files(environment) {
        places = places.with_file("credentials", setting, &file)?;
    }
    if let Some(CertificateFiles { chain, key }) = certificate {
        places = places.with_file("credentials", "--metrics-cert-file", chain)?.with_file(
            "credentials",
            "--metrics-key-file",
            key,
        )?;
    }
    ebs_csi_confine::enter(profile::CONTROLLER, &places)
}

/// Returns the files and directories of credentials and certificates, each with its variable.
fn credential_files(environment: &BTreeMap<String, String>) -> Vec<(&'static str, PathBuf)> {
    let named = CREDENTIAL_FILES.iter().filter_map(|name| {
        let path = environment.get(*name).filter(|path| !path.is_empty())?;
        Some((*name, PathBuf::from(path)))
    });
    // Of the home directory `.aws` alone: it holds more than credentials.
    let home = environment.get("HOME").map(|home| ("HOME", Path::new(home).join(".aws")));
    named.chain(home.filter(|(_, directory)| directory.is_dir())).collect()
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
        let token = PathBuf::from("/var/run/secrets/eks/token");
        assert_eq!(credential_files(&environment), [("AWS_WEB_IDENTITY_TOKEN_FILE", token)]);
    }
}
