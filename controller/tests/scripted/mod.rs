//! A server on the loopback interface whose answers a test defines: EC2, STS, instance metadata, a
//! proxy or a collector, as far as the test needs them.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Returns the path of a file in `tests/certificates`.
pub(crate) fn certificate(name: &str) -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    Path::new(&folder).join("tests/certificates").join(name)
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl RecordedRequest {
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let body = String::from_utf8_lossy(&self.body);
        body.split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
            .map(|value| value.replace("%2F", "/").replace("%3A", ":"))
    }

    pub(crate) fn is_of(&self, action: &str) -> bool {
        self.parameter("Action").as_deref() == Some(action)
    }

    pub(crate) fn key(&self) -> Option<String> {
        let header = self.header("authorization")?;
        let scope = header.split_once("Credential=")?.1;
        Some(scope.split('/').next()?.to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

pub(crate) struct ScriptedResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl ScriptedResponse {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self {
            status: 200,
            headers: vec![("x-amzn-requestid", "request-1".to_owned())],
            body: body.into(),
        }
    }

    pub(crate) fn ec2_error(status: u16, code: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>Refused.</Message></Error></Errors><RequestID>request-2</RequestID></Response>"
            ),
        }
    }
}

type Script = dyn Fn(&RecordedRequest) -> ScriptedResponse + Send + Sync;

/// The server, whose tasks end with the test's runtime.
pub(crate) struct Server {
    address: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    pub(crate) async fn start(
        script: impl Fn(&RecordedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Arc::new(script), None).await
    }

    /// Starts a proxy that tunnels every host to itself and serves that host with the certificate
    /// of `name`.test.
    pub(crate) async fn behind_a_proxy(
        name: &str,
        script: impl Fn(&RecordedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        let chain = CertificateDer::pem_file_iter(certificate(&format!("{name}.crt")))
            .and_then(Iterator::collect)
            .expect("certificates");
        let key = PrivateKeyDer::from_pem_file(certificate(&format!("{name}.key"))).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .expect("a certificate and its key");
        Self::listen(Arc::new(script), Some(Arc::new(config).into())).await
    }

    async fn listen(script: Arc<Script>, tunnelled: Option<TlsAcceptor>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                let tunnelled = tunnelled.clone();
                tokio::spawn(async move {
                    // A client may abort its connection; that error is ignored.
                    match tunnelled {
                        None => serve(stream, script, log).await,
                        Some(acceptor) => {
                            if let Ok(stream) = tunnel(stream, acceptor).await {
                                serve(stream, script, log).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().expect("no panic").clone()
    }

    pub(crate) fn requests_of(&self, action: &str) -> Vec<RecordedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.is_of(action));
        requests
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    script: Arc<Script>,
    log: Arc<Mutex<Vec<RecordedRequest>>>,
) {
    let service = service_fn(move |request| answer(request, Arc::clone(&script), Arc::clone(&log)));
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Answers a CONNECT, whatever host it names, and begins TLS.
async fn tunnel(
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    acceptor.accept(stream).await
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Script>,
    log: Arc<Mutex<Vec<RecordedRequest>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec());
    let recorded = RecordedRequest {
        method: head.method.to_string(),
        uri: head.uri.to_string(),
        headers: head.headers,
        body: body.unwrap_or_default(),
    };
    let answer = script(&recorded);
    log.lock().expect("no panic").push(recorded);
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(*name, value);
    }
    Ok(response.body(Full::new(Bytes::from(answer.body))).expect("a response"))
}

/// Returns the answers of a working EC2 and STS: to the check behind Probe, an empty list of
/// snapshots, the caller's identity, and role credentials. The role's access key is `ASIA` followed
/// by what the token says; its credentials are valid for `seconds` from now.
pub(crate) fn aws(request: &RecordedRequest, seconds: u64) -> ScriptedResponse {
    match request.parameter("Action").as_deref() {
        Some("DescribeAvailabilityZones") => ScriptedResponse::ec2_error(412, "DryRunOperation"),
        Some("DescribeSnapshots") => ScriptedResponse::ok(
            "<DescribeSnapshotsResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId><snapshotSet/></DescribeSnapshotsResponse>",
        ),
        Some("GetCallerIdentity") => ScriptedResponse::ok(
            "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult><Arn>arn:aws:sts::444455556666:assumed-role/ebs/session</Arn><UserId>AROA:session</UserId><Account>444455556666</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
        ),
        Some(action @ ("AssumeRoleWithWebIdentity" | "AssumeRole")) => {
            let who = request.parameter("WebIdentityToken").unwrap_or_else(|| "assumed".to_owned());
            let expiration = time(seconds);
            ScriptedResponse::ok(format!(
                "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials><AccessKeyId>ASIA{who}</AccessKeyId><SecretAccessKey>do-not-print-me</SecretAccessKey><SessionToken>do-not-print-me-either</SessionToken><Expiration>{expiration}</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::444455556666:assumed-role/ebs/session</Arn><AssumedRoleId>AROA:session</AssumedRoleId></AssumedRoleUser></{action}Result></{action}Response>"
            ))
        }
        other => {
            ScriptedResponse::ec2_error(400, &format!("NotScripted.{}", other.unwrap_or("nothing")))
        }
    }
}

pub(crate) fn time(seconds: u64) -> String {
    let until = SystemTime::now() + std::time::Duration::from_secs(seconds);
    aws_smithy_types::DateTime::from(until)
        .fmt(aws_smithy_types::date_time::Format::DateTime)
        .expect("a time")
}

/// Returns credentials as a container endpoint or instance metadata serves them.
pub(crate) fn keys(name: &str, seconds: u64) -> ScriptedResponse {
    ScriptedResponse {
        headers: vec![("content-type", "application/json".to_owned())],
        ..ScriptedResponse::ok(
            serde_json::json!({
                "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": time(0),
                "AccessKeyId": format!("ASIA{name}"), "SecretAccessKey": "do-not-print-me",
                "Token": "do-not-print-me-either", "Expiration": time(seconds),
            })
            .to_string(),
        )
    }
}
