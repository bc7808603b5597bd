//! The HTTP client: TLS is set up when the first `https` request needs it.
//!
//! The SDK's own client reads all root certificates before the first request, also when the endpoint is plain HTTP. Reading them takes
//! longer than everything else before the first answer.

use std::sync::{Arc, OnceLock};

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, ConnectorBuilder};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// Chooses by the scheme of each request.
#[derive(Debug)]
pub(super) struct ByScheme {
    plain: SharedHttpClient,
    tls: Arc<OnceLock<SharedHttpClient>>,
}

impl Default for ByScheme {
    fn default() -> Self {
        Self {
            plain: client(false),
            tls: Arc::default(),
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
            plain: self.plain.http_connector(settings, components),
            tls: Arc::clone(&self.tls),
            settings: settings.clone(),
            components: components.clone(),
        })
    }
}

#[derive(Debug)]
struct Choice {
    plain: SharedHttpConnector,
    tls: Arc<OnceLock<SharedHttpClient>>,
    settings: HttpConnectorSettings,
    components: RuntimeComponents,
}

impl HttpConnector for Choice {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if request.uri().starts_with("http://") {
            return self.plain.call(request);
        }
        let tls = self.tls.get_or_init(|| client(true));
        tls.http_connector(&self.settings, &self.components)
            .call(request)
    }
}

/// A client that, like the SDK's own, takes proxies from the environment.
fn client(tls: bool) -> SharedHttpClient {
    Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = ConnectorBuilder::default();
        connector.set_connector_settings(settings.cloned());
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        if tls {
            connector
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .build()
        } else {
            connector.build_http()
        }
    })
}
