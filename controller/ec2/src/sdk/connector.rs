//! The HTTP client, which sets up TLS when the first `https` request needs it.
//!
//! The SDK's own client reads all root certificates before the first request, also when the
//! endpoint is plain HTTP. Reading them takes longer than everything else before the first answer.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::{fmt, fs};

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, ConnectorBuilder};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// The hosts that serve instance metadata and the credentials of containers (EC2 User Guide,
/// "Instance metadata service"; EKS User Guide, "Pod Identity"; ECS Developer Guide, "Task IAM
/// role"). They are link-local, so no proxy can reach them for this host.
const LINK_LOCAL: [&str; 5] =
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "[fd00:ec2::254]", "[fd00:ec2::23]"];

/// Chooses the client by the scheme and host of each request.
#[derive(Debug)]
pub(crate) struct ByScheme {
    direct: SharedHttpClient,
    plain: SharedHttpClient,
    tls: Arc<OnceLock<SharedHttpClient>>,
    trusted: TlsContext,
}

impl ByScheme {
    /// Creates the client with these certificate authorities for `https`.
    pub(crate) fn new(trusted: TlsContext) -> Self {
        Self {
            direct: client(None, ProxyConfig::disabled),
            plain: client(None, ProxyConfig::from_env),
            tls: Arc::default(),
            trusted,
        }
    }
}

impl HttpClient for ByScheme {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Choice {
            direct: self.direct.http_connector(settings, components),
            plain: self.plain.http_connector(settings, components),
            tls: Arc::clone(&self.tls),
            trusted: self.trusted.clone(),
            settings: settings.clone(),
            components: components.clone(),
        })
    }
}

#[derive(Debug)]
struct Choice {
    direct: SharedHttpConnector,
    plain: SharedHttpConnector,
    tls: Arc<OnceLock<SharedHttpClient>>,
    trusted: TlsContext,
    settings: HttpConnectorSettings,
    components: RuntimeComponents,
}

impl HttpConnector for Choice {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if is_link_local(request.uri()) {
            return self.direct.call(request);
        }
        if request.uri().starts_with("http://") {
            return self.plain.call(request);
        }
        let tls =
            self.tls.get_or_init(|| client(Some(self.trusted.clone()), ProxyConfig::from_env));
        tls.http_connector(&self.settings, &self.components).call(request)
    }
}

fn is_link_local(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://") else {
        return false;
    };
    LINK_LOCAL.iter().any(|host| {
        let after = rest.strip_prefix(host);
        after.is_some_and(|after| after.is_empty() || after.starts_with(['/', ':', '?']))
    })
}

/// The cryptographic module of TLS.
#[cfg(feature = "fips")]
const CRYPTO: CryptoMode = CryptoMode::AwsLcFips;
#[cfg(not(feature = "fips"))]
const CRYPTO: CryptoMode = CryptoMode::AwsLc;

/// Builds a client; without a TLS context, one of plain HTTP.
fn client(tls: Option<TlsContext>, proxies: fn() -> ProxyConfig) -> SharedHttpClient {
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = ConnectorBuilder::default();
        connector.set_connector_settings(settings.cloned());
        connector.set_proxy_config(Some(proxies()));
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        match &tls {
            Some(context) => connector
                .tls_provider(Provider::Rustls(CRYPTO))
                .tls_context(context.clone())
                .build(),
            None => connector.build_http(),
        }
    })
}

/// Reads the certificate authorities of `AWS_CA_BUNDLE`, which replace the system's (AWS SDKs and
/// Tools Reference Guide, "General configuration settings"); the SDK for Rust does not read the
/// variable. The SDK's client would panic on a certificate that it cannot parse, so each
/// certificate is parsed here first.
pub(crate) fn read_ca_bundle(path: &Path) -> Result<TlsContext, String> {
    let unusable = |why: &dyn fmt::Display| {
        let path = path.display();
        format!("{path}: {why}; give a PEM file that the controller's user may read")
    };
    let text = fs::read(path).map_err(|error| unusable(&error))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_container_credential_addresses_bypass_proxy() {
        for (uri, direct) in [
            ("http://169.254.169.254/latest/api/token", true),
            ("http://169.254.170.2:80/v2/credentials", true),
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::254]/latest", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://169.254.169.2540/", false),
            ("http://169.254.169.254.example.com/", false),
            ("http://127.0.0.1:4566/", false),
            ("https://ec2.us-east-1.amazonaws.com/", false),
        ] {
            assert_eq!(is_link_local(uri), direct, "{uri}");
        }
    }
}
