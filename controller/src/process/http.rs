//! `/metrics`, `/healthz` and `/readyz` over HTTP/1.1, with TLS where a certificate is given.

mod tls;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ebs_csi_proto::exposition::{self, accepts_openmetrics, as_text};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

pub(crate) use tls::CertificateFiles;
use tls::Tls;

use crate::ec2::Ec2;
use crate::metrics::{LaneLevel, Metrics};
use crate::process::probe::Probe;

/// Requests per second that are answered, and how many at once; further requests get status 429.
const RATE: f64 = 5.0;
const BURST: f64 = 10.0;
/// How long a client may take for the TLS handshake or for the head of a request before its
/// connection is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// The pages of the endpoint.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The EC2 layer, whose lanes `/metrics` shows.
    pub ec2: Ec2,
    /// The metrics of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The checks behind `/readyz`.
    pub probe: Arc<Probe>,
    limiter: Mutex<RequestLimiter>,
}

impl Pages {
    /// Creates the pages.
    pub(crate) fn new(ec2: Ec2, metrics: Arc<Metrics>, probe: Arc<Probe>) -> Self {
        Self { ec2, metrics, probe, limiter: Mutex::new(RequestLimiter::full(Instant::now())) }
    }

    fn try_allow(&self) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.try_take(Instant::now())
    }

    /// Returns the lanes, each under the name of its action.
    fn lanes(&self) -> Vec<(&'static str, LaneLevel)> {
        let levels = self.ec2.lane_levels().into_iter();
        levels.map(|(action, level)| (action.name(), level)).collect()
    }

    fn page(
        &self,
        method: &Method,
        path: &str,
        accept: &str,
    ) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        if method != Method::GET && method != Method::HEAD {
            return (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        }
        match path {
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => match self.probe.unready() {
                None => (StatusCode::OK, TEXT, "ok\n".to_owned()),
                Some(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            },
            "/metrics" if !self.try_allow() => {
                (StatusCode::TOO_MANY_REQUESTS, TEXT, "too many requests\n".to_owned())
            }
            "/metrics" => match self.metrics.encode(&self.lanes()) {
                Ok(text) if accepts_openmetrics(accept) => {
                    (StatusCode::OK, exposition::OPENMETRICS, text)
                }
                Ok(text) => (StatusCode::OK, exposition::TEXT, as_text(&text)),
                Err(_) => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    TEXT,
                    "the metrics could not be written\n".to_owned(),
                ),
            },
            _ => (
                StatusCode::NOT_FOUND,
                TEXT,
                "there is /metrics, /healthz and /readyz\n".to_owned(),
            ),
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        let accept = accept.unwrap_or_default();
        let (status, kind, text) = self.page(request.method(), request.uri().path(), accept);
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        response
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

/// The endpoint's listener, bound before the process confined itself.
#[derive(Debug)]
pub(crate) struct Server {
    listener: tokio::net::TcpListener,
    tls: Option<Arc<Tls>>,
}

impl Server {
    /// Creates the server, with TLS when certificate files are given. Must run inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// A text that says why the listener or a file cannot be used.
    pub(crate) fn new(
        listener: std::net::TcpListener,
        certificate: Option<CertificateFiles>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the HTTP endpoint: {error}");
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            listener: tokio::net::TcpListener::from_std(listener).map_err(failed)?,
            tls: certificate.map(Tls::new).transpose()?.map(Arc::new),
        })
    }

    /// Serves until `stop` resolves.
    pub(crate) async fn run(self, pages: Pages, stop: impl Future<Output = ()>) {
        let pages = Arc::new(pages);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process is out of descriptors, or the client left: neither may end the
                    // process.
                    tracing::warn!(%error, "the HTTP endpoint could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (pages, tls) = (Arc::clone(&pages), self.tls.clone());
            tokio::spawn(async move {
                let Some(tls) = tls else {
                    return serve_connection(stream, &pages).await;
                };
                match tokio::time::timeout(HEADER_TIMEOUT, tls.acceptor().accept(stream)).await {
                    Ok(Ok(stream)) => serve_connection(stream, &pages).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            });
        }
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, pages: &Pages) {
    let service = service_fn(|request| {
        let response = pages.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

#[cfg(test)]
mod tests {
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
