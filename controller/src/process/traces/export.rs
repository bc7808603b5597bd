//! Sends records to the collector.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;

use super::record::{Export, KeyValue, Record, Resource, ResourceSpans, Scope, ScopeSpans};
use super::{Protocol, TraceSettings};
use crate::VERSION;

/// How often records are sent, and how many are sent at once when they come faster.
const EXPORT_INTERVAL: Duration = Duration::from_secs(5);
const BATCH_SIZE: usize = 512;

/// The receiving end of the queue.
#[derive(Debug)]
pub struct Exporter {
    settings: TraceSettings,
    queue: mpsc::Receiver<Record>,
}

type Sender = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Exporter {
    pub(super) fn new(settings: TraceSettings, queue: mpsc::Receiver<Record>) -> Self {
        Self { settings, queue }
    }

    /// Sends records until `stop` resolves, then the remaining ones.
    ///
    /// # Errors
    /// When the system's certificates cannot be read.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), std::io::Error> {
        let client = client(&self.settings)?;
        tokio::pin!(stop);
        let mut batch = Vec::new();
        let mut is_working = true;
        loop {
            let is_ending = tokio::select! {
                () = &mut stop => true,
                () = fill_batch(&mut self.queue, &mut batch) => false,
            };
            while let Ok(record) = self.queue.try_recv() {
                batch.push(record);
            }
            if !batch.is_empty() {
                let sent = tokio::time::timeout(
                    self.settings.timeout,
                    send(&client, &self.settings, std::mem::take(&mut batch)),
                );
                let outcome = sent.await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                match &outcome {
                    Ok(()) if !is_working => tracing::info!("traces are exported again"),
                    Err(why) if is_working => {
                        tracing::warn!(
                            address = self.settings.address,
                            why,
                            "traces could not be exported and are lost; check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL"
                        );
                    }
                    Err(why) => tracing::debug!(why, "traces could not be exported"),
                    Ok(()) => {}
                }
                is_working = outcome.is_ok();
            }
            if is_ending {
                return Ok(());
            }
        }
    }
}

/// Waits for a record, then until the batch is full or the time has passed.
async fn fill_batch(queue: &mut mpsc::Receiver<Record>, batch: &mut Vec<Record>) {
    let Some(first) = queue.recv().await else {
        // All senders are gone.
        return std::future::pending().await;
    };
    batch.push(first);
    let fill = async {
        while batch.len() < BATCH_SIZE
            && let Some(record) = queue.recv().await
        {
            batch.push(record);
        }
    };
    // When the time has passed, the batch is sent as it is.
    let _ = tokio::time::timeout(EXPORT_INTERVAL, fill).await;
}

fn client(settings: &TraceSettings) -> Result<Sender, std::io::Error> {
    let provider = aws_lc_rs::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let builder = if settings.address.starts_with("https://") {
        builder.with_provider_and_native_roots(provider)?
    } else {
        // The system's certificates are read only where they are needed.
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        builder.with_tls_config(config)
    };
    let grpc = settings.protocol == Protocol::Grpc;
    let connector = if grpc {
        builder.https_or_http().enable_http2().build()
    } else {
        builder.https_or_http().enable_http1().build()
    };
    Ok(Client::builder(TokioExecutor::new()).http2_only(grpc).build(connector))
}

fn message(settings: &TraceSettings, spans: Vec<Record>) -> Export {
    let attributes =
        settings.resource.iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    Export {
        resources: vec![ResourceSpans {
            resource: Some(Resource { attributes }),
            scopes: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "ebs-csi-controller".to_owned(),
                    version: VERSION.to_owned(),
                }),
                spans,
            }],
        }],
    }
}

async fn send(client: &Sender, settings: &TraceSettings, spans: Vec<Record>) -> Result<(), String> {
    let message = message(settings, spans);
    let mut body = BytesMut::with_capacity(message.encoded_len() + 5);
    let kind = match settings.protocol {
        Protocol::HttpProtobuf => "application/x-protobuf",
        Protocol::Grpc => {
            // gRPC over HTTP/2, "Length-Prefixed-Message": not compressed, and the length.
            body.put_u8(0);
            body.put_u32(u32::try_from(message.encoded_len()).map_err(|e| e.to_string())?);
            "application/grpc"
        }
    };
    message.encode(&mut body).map_err(|e| e.to_string())?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&settings.address)
        .header(header::CONTENT_TYPE, kind);
    if settings.protocol == Protocol::Grpc {
        request = request.header(header::TE, "trailers");
    }
    for (name, value) in &settings.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body.freeze())).map_err(|e| e.to_string())?;
    let answer = client.request(request).await.map_err(|e| ebs_csi_ec2::innermost(&e))?;
    let (head, body) = answer.into_parts();
    if !head.status.is_success() {
        return Err(format!("HTTP status {}", head.status));
    }
    let body = body.collect().await.map_err(|e| e.to_string())?;
    if settings.protocol == Protocol::Grpc {
        // An error without a message has its status in the headers.
        let status = body
            .trailers()
            .and_then(grpc_status)
            .or_else(|| grpc_status(&head.headers))
            .unwrap_or_default();
        if status != "0" {
            return Err(format!("gRPC status {status:?}"));
        }
    }
    Ok(())
}

fn grpc_status(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("grpc-status")?.to_str().ok()?.to_owned())
}
