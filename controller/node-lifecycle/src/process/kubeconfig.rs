//! Reads a kubeconfig file and every file that it names, before confinement: afterwards the process
//! can open only the files that it still needs.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Kubeconfig};

/// Reads the file of the current context, including its certificates and key.
///
/// # Errors
/// One line for the reader: what cannot be read, or cannot be used by a process that may run no
/// other program.
pub fn read(file: &Path) -> Result<Kubeconfig, String> {
    let mut config = Kubeconfig::read_from(file).map_err(|error| error.to_string())?;
    let context = config.contexts.iter().find(|named| {
        let current = config.current_context.as_ref();
        current == Some(&named.name)
    });
    let Some(context) = context.and_then(|named| named.context.clone()) else {
        // The client reports what is wrong with the context.
        return Ok(config);
    };
    config.clusters.retain(|named| named.name == context.cluster);
    config.auth_infos.retain(|named| context.user.as_ref() == Some(&named.name));
    for cluster in config.clusters.iter_mut().filter_map(|n| n.cluster.as_mut()) {
        let data = &mut cluster.certificate_authority_data;
        inline_file(&mut cluster.certificate_authority, data)?;
    }
    for user in config.auth_infos.iter_mut().filter_map(|n| n.auth_info.as_mut()) {
        refuse_credential_programs(file, user)?;
        let data = &mut user.client_certificate_data;
        inline_file(&mut user.client_certificate, data)?;
        let mut key = None;
        inline_file(&mut user.client_key, &mut key)?;
        if let Some(key) = key {
            user.client_key_data = Some(key.into());
        }
    }
    Ok(config)
}

/// Returns the token files: these are read again when they change.
pub fn token_files(config: &Kubeconfig) -> Vec<PathBuf> {
    let users = config.auth_infos.iter().filter_map(|n| n.auth_info.as_ref());
    users.filter_map(|user| user.token_file.as_ref()).map(PathBuf::from).collect()
}

/// Replaces a file's name by its content. Data in the kubeconfig takes precedence over the file, as
/// in kubectl.
fn inline_file(file: &mut Option<String>, data: &mut Option<String>) -> Result<(), String> {
    let Some(name) = file.take().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    if data.as_ref().is_some_and(|data| !data.is_empty()) {
        return Ok(());
    }
    let content = std::fs::read(&name).map_err(|error| format!("{name}: {error}"))?;
    *data = Some(STANDARD.encode(content));
    Ok(())
}

fn refuse_credential_programs(file: &Path, user: &AuthInfo) -> Result<(), String> {
    if user.exec.is_none() && user.auth_provider.is_none() {
        return Ok(());
    }
    Err(format!(
        "{}: its user is authenticated by a program, and this process may run none; give it a token, a tokenFile or a client certificate",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_kubeconfig(folder: &Path, user: &str) -> PathBuf {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: here,
              clusters: [{{name: here, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}}},
                         {{name: other, cluster: {{server: 'https://127.0.0.1:2', certificate-authority: none.crt}}}}],
              users: [{{name: here, user: {user}}}],
              contexts: [{{name: here, context: {{cluster: here, user: here}}}}]}}"
        );
        let file = folder.join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn kubeconfig_files_of_current_context_are_inlined() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("ca.crt", "ca"), ("me.crt", "me"), ("me.key", "key")] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let user = "{client-certificate: me.crt, client-key: me.key, tokenFile: tokens/token}";
        let config = read(&write_kubeconfig(folder.path(), user)).unwrap();
        assert_eq!(config.clusters.len(), 1, "another context's files are not read");
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority, None);
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!((&user.client_certificate, &user.client_key), (&None, &None));
        assert_eq!(user.client_certificate_data.as_deref(), Some("bWU="));
        assert!(user.client_key_data.is_some());
        assert_eq!(token_files(&config), [folder.path().join("tokens/token")]);
    }

    #[test]
    fn unreadable_file_or_exec_plugin_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = read(&write_kubeconfig(folder.path(), "{}")).unwrap_err();
        assert!(refused.contains("ca.crt"), "{refused}");
        std::fs::write(folder.path().join("ca.crt"), "ca").unwrap();
        let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}";
        let refused = read(&write_kubeconfig(folder.path(), user)).unwrap_err();
        assert!(refused.contains("may run none"), "{refused}");
    }
}
