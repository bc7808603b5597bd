//! TLS for the HTTP endpoint. The certificate is read again when its files change, because it is
//! rotated while the process runs.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ebs_csi_proto::http_endpoint::{Connection, Transport};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files of `--metrics-cert-file` and `--metrics-key-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and the intermediate certificates, PEM.
    pub chain: PathBuf,
    /// The certificate's key, PEM.
    pub key: PathBuf,
}

/// Distinguishes the versions of the files: Kubernetes replaces a file by another.
type FileVersions = [(u64, u64, i64, i64); 2];

/// The certificate as last read.
pub(super) struct Tls {
    files: CertificateFiles,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    file_versions: FileVersions,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A text that names the file and the problem.
    pub(super) fn new(files: CertificateFiles) -> Result<Self, String> {
        let file_versions = file_versions(&files)?;
        let config = read(&files)?;
        Ok(Self { files, loaded: Mutex::new(Loaded { file_versions, config }) })
    }

    /// Returns the acceptor for the next connection. When changed files cannot be used, the former
    /// certificate stays in use and one warning is logged.
    fn acceptor(&self) -> TlsAcceptor {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match file_versions(&self.files) {
            Ok(file_versions) if file_versions != loaded.file_versions => {
                loaded.file_versions = file_versions;
                match read(&self.files) {
                    Ok(config) => {
                        loaded.config = config;
                        tracing::info!(file = %self.files.chain.display(), "the certificate of the HTTP endpoint was read again");
                    }
                    Err(why) => {
                        tracing::warn!(
                            why,
                            "the new certificate of the HTTP endpoint cannot be used; the one before stays"
                        );
                    }
                }
            }
            // The files did not change, or a file is missing during a rotation: the certificate
            // that is held stays in use.
            Ok(_) | Err(_) => {}
        }
        TlsAcceptor::from(Arc::clone(&loaded.config))
    }
}

impl Transport for Tls {
    type Stream = TlsStream<Connection>;

    async fn accept(&self, connection: Connection) -> io::Result<TlsStream<Connection>> {
        self.acceptor().accept(connection).await
    }

    fn connection(stream: &TlsStream<Connection>) -> &Connection {
        stream.get_ref().0
    }
}

fn file_versions(files: &CertificateFiles) -> Result<FileVersions, String> {
    let one = |path: &Path| {
        let metadata = fs::metadata(path).map_err(|error| unusable(path, &error))?;
        Ok::<_, String>((metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
    };
    Ok([one(&files.chain)?, one(&files.key)?])
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> String {
    format!("{}: {why}; give PEM files that the controller's user may read", path.display())
}

fn read(files: &CertificateFiles) -> Result<Arc<ServerConfig>, String> {
    let text = |path: &Path| -> Result<Vec<u8>, String> {
        fs::read(path).map_err(|error: io::Error| unusable(path, &error))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text(&files.chain)?)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(&files.chain, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.chain, &"holds no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&text(&files.key)?)
        .map_err(|error| unusable(&files.key, &error))?;
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
        .map(Arc::new)
        .map_err(|error| unusable(&files.chain, &error))
}
