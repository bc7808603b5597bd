//! The pages of the HTTP endpoint, with TLS where a certificate is given.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fmt, fs, io};

use ebs_csi_ec2::Ec2;
use ebs_csi_proto::http_endpoint::{self, Connection, PlainText, StatusCode, Transport};
use ebs_csi_proto::lock;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::metrics::Metrics;
use crate::process::probe::Probe;

/// Scrapes per second that are answered, and how many at once; further scrapes get status 429.
const RATE: f64 = 5.0;
const BURST: f64 = 10.0;

#[derive(Debug)]
pub(crate) struct Pages {
    ec2: Ec2,
    metrics: Arc<Metrics>,
    probe: Arc<Probe>,
    limiter: Mutex<RequestLimiter>,
}

impl Pages {
    /// Creates the pages: `/metrics` shows the lanes of the EC2 layer, too, and `/readyz` the
    /// result of the probe.
    pub(crate) fn new(ec2: Ec2, metrics: Arc<Metrics>, probe: Arc<Probe>) -> Self {
        Self { ec2, metrics, probe, limiter: Mutex::new(RequestLimiter::full(Instant::now())) }
    }
}

impl http_endpoint::Pages for Pages {
    async fn metrics(&self) -> Result<String, StatusCode> {
        if !lock(&self.limiter).try_take(Instant::now()) {
            return Err(StatusCode::TOO_MANY_REQUESTS);
        }
        Ok(self.metrics.encode(&self.ec2.lane_levels()))
    }

    async fn ready(&self) -> Result<(), String> {
        self.probe.unready().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

/// A token bucket of the requests that may be answered.
#[derive(Debug)]
struct RequestLimiter {
    level: f64,
    at: Instant,
}

impl RequestLimiter {
    fn full(now: Instant) -> Self {
        Self { level: BURST, at: now }
    }

    fn try_take(&mut self, now: Instant) -> bool {
        let refill = now.duration_since(self.at).as_secs_f64() * RATE;
        self.level = (self.level + refill).min(BURST);
        self.at = now;
        let is_allowed = self.level >= 1.0;
        if is_allowed {
            self.level -= 1.0;
        }
        is_allowed
    }
}

/// Starts to serve the pages on the listener, which was bound before the process confined itself.
/// Must run inside a tokio runtime.
pub(crate) fn start(
    listener: std::net::TcpListener,
    certificate: Option<CertificateFiles>,
    pages: Pages,
) -> Result<(), String> {
    match certificate.map(Tls::new).transpose()? {
        Some(tls) => tokio::spawn(http_endpoint::serve(listener, tls, pages)),
        None => tokio::spawn(http_endpoint::serve(listener, PlainText, pages)),
    };
    Ok(())
}

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
    pub(super) fn new(files: CertificateFiles) -> Result<Self, String> {
        let file_versions = file_versions(&files)?;
        let config = read(&files)?;
        Ok(Self { files, loaded: Mutex::new(Loaded { file_versions, config }) })
    }

    /// Returns the acceptor for the next connection. When changed files cannot be used, the former
    /// certificate stays in use and one warning is logged.
    fn acceptor(&self) -> TlsAcceptor {
        let mut loaded = lock(&self.loaded);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn limit_allows_10_requests_then_5_per_second() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::full(start);
        let mut answered = |after_ms: u64, asked: usize| {
            let now = start + Duration::from_millis(after_ms);
            (0..asked).filter(|_| limiter.try_take(now)).count()
        };
        assert_eq!(answered(0, 12), 10);
        assert_eq!(answered(150, 3), 0);
        assert_eq!(answered(1_150, 9), 5);
        assert_eq!(answered(60_000, 30), 10);
    }
}
