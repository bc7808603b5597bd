//! The certificate authorities of `AWS_CA_BUNDLE`, which replace the system's (AWS SDKs and Tools
//! Reference Guide, "General configuration settings"). The SDK for Rust does not read the variable.

use std::fmt;
use std::path::Path;

use aws_smithy_http_client::tls::{TlsContext, TrustStore};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Reads the file. The SDK's client would panic on a certificate that it cannot parse, so each
/// certificate is parsed here first.
pub(crate) fn read(path: &Path) -> Result<TlsContext, String> {
    let unusable = |why: &dyn fmt::Display| {
        let path = path.display();
        format!("{path}: {why}; give a PEM file that the controller's user may read")
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"holds no certificate"));
    }
    TlsContext::builder()
        .with_trust_store(TrustStore::empty().with_pem_certificate(text))
        .build()
        .map_err(|error| unusable(&error))
}
