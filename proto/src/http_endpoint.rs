//! `/metrics`, `/healthz` and `/readyz` over HTTP/1.1, with one request per connection.
//!
//! Health is answered however often others connect: [`MAX_CONNECTIONS`] connections are kept. The
//! idlest connection of the client address with most connections yields to a new one.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

mod connections;
mod exposition;

pub use connections::Connection;
use connections::Connections;

/// Most simultaneous connections. With those for CSI calls, the node-agent's questions to the
/// mount-helper stay below the connections that the helper keeps.
pub const MAX_CONNECTIONS: usize = 32;
/// Connections that may wait in the kernel while the process does something else. The kernel drops
/// further ones, and their clients try again a second later.
const BACKLOG: i32 = 1024;
/// Limit for the bytes of a request's head.
const MAX_HEAD_BYTES: usize = 8192;
/// Pause between two looks whether the client has received everything.
const RECEIPT_PAUSE: Duration = Duration::from_millis(10);

const PLAIN: &str = "text/plain; charset=utf-8";

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// For the TLS handshake, and for the head of the request.
    head: Duration,
    /// For the whole connection, until the client has received the answer.
    connection: Duration,
}

const TIMEOUTS: Timeouts =
    Timeouts { head: Duration::from_secs(3), connection: Duration::from_secs(10) };

/// The content of the pages.
pub trait Pages: Send + Sync + 'static {
    /// Returns `/metrics`, as OpenMetrics.
    ///
    /// # Errors
    /// The status that is answered instead.
    fn metrics(&self) -> impl Future<Output = Result<String, StatusCode>> + Send;

    /// Decides `/readyz`.
    ///
    /// # Errors
    /// The reason why the process is not ready, one line.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// Returns another page, with its status; `None` where there is none.
    fn other(
        &self,
        _path: &str,
        _query: &str,
    ) -> impl Future<Output = Option<(StatusCode, String)>> + Send {
        std::future::ready(None)
    }
}

/// What lies between TCP and HTTP.
pub trait Transport: Send + Sync + 'static {
    /// Carries HTTP.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin;

    /// Performs the handshake.
    fn accept(
        &self,
        connection: Connection,
    ) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Returns the connection beneath a stream.
    fn connection(stream: &Self::Stream) -> &Connection;
}

/// HTTP without TLS.
#[derive(Debug)]
pub struct PlainText;

impl Transport for PlainText {
    type Stream = Connection;

    async fn accept(&self, connection: Connection) -> io::Result<Connection> {
        Ok(connection)
    }

    fn connection(stream: &Connection) -> &Connection {
        stream
    }
}

/// Serves until the future is dropped. Returns, after a log line, when the listener cannot be used.
pub async fn serve(listener: std::net::TcpListener, transport: impl Transport, pages: impl Pages) {
    if let Err(error) = serve_within(listener, transport, pages, TIMEOUTS).await {
        tracing::error!(%error, "metrics and health are not served");
    }
}

async fn serve_within(
    listener: std::net::TcpListener,
    transport: impl Transport,
    pages: impl Pages,
    timeouts: Timeouts,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let listener = TcpListener::from_std(listener)?;
    let server = Arc::new(Server { transport, pages, timeouts });
    let mut connections = Connections::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = connections.ended() => continue,
        };
        match accepted {
            Ok((stream, client)) => {
                let server = Arc::clone(&server);
                connections.add(stream, client.ip(), async move |connection| {
                    let serving = server.serve_connection(connection);
                    match timeout(server.timeouts.connection, serving).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection failed"),
                        Err(_) => tracing::debug!("an HTTP connection took too long"),
                    }
                });
            }
            Err(error) => {
                // No descriptor is free, or the client has already left.
                tracing::warn!(%error, "the HTTP endpoint could not accept a connection");
                connections.close_idlest();
                sleep(Duration::from_millis(100)).await;
            }
        }
        // Before a further connection can displace this one, what the client has sent is read.
        tokio::task::yield_now().await;
    }
}

struct Server<T, P> {
    transport: T,
    pages: P,
    timeouts: Timeouts,
}

impl<T: Transport, P: Pages> Server<T, P> {
    /// Answers the one request of a connection, and waits until the client has the answer.
    async fn serve_connection(&self, connection: Connection) -> io::Result<()> {
        let stream = timeout(self.timeouts.head, self.transport.accept(connection)).await??;
        let service = service_fn(|request| Box::pin(self.answer(request)));
        let mut http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.head)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(false)
            // A client may end its side after the request.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        let served = poll_fn(|cx| http.poll_without_shutdown(cx)).await;
        if let Err(error) = served
            && !error.is_parse()
        {
            return Err(io::Error::other(error));
        }
        let mut stream = http.into_parts().io.into_inner();
        // To close a connection with bytes that were not read would discard the answer.
        stream.shutdown().await?;
        let mut rest = [0; 512];
        while stream.read(&mut rest).await? != 0 {}
        while T::connection(&stream).is_connected() {
            sleep(RECEIPT_PAUSE).await;
        }
        Ok(())
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let (status, kind, text) = match request.uri().path() {
            _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET only\n".to_owned()),
            "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
            "/readyz" => match self.pages.ready().await {
                Ok(()) => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{reason}\n")),
            },
            "/metrics" => match self.pages.metrics().await {
                Ok(page) => {
                    let (kind, text) = exposition::for_client(page, accept(request.headers()));
                    (StatusCode::OK, kind, text)
                }
                Err(status) => {
                    (status, PLAIN, format!("{}\n", status.canonical_reason().unwrap_or_default()))
                }
            },
            path => {
                let query = request.uri().query().unwrap_or_default();
                let (status, text) = self.pages.other(path, query).await.unwrap_or_else(|| {
                    let text = "/metrics, /healthz and /readyz are here\n".to_owned();
                    (StatusCode::NOT_FOUND, text)
                });
                (status, PLAIN, text)
            }
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if !is_read {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        Ok(response)
    }
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
