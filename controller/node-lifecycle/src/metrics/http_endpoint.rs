//! `/metrics`, `/healthz` and `/readyz` over plain HTTP/1.1, with one request per connection.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::exposition;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Metrics;

/// Most simultaneous connections.
const AT_ONCE: usize = 8;
/// Limit for the bytes of a request's head.
const HEAD_LIMIT: usize = 4096;
/// Every connection ends after this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the runtime ends. `ready` returns an error with the reason while the process is not
/// ready.
///
/// # Errors
/// When the listener cannot be used.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    metrics: Arc<Metrics>,
    ready: impl Fn() -> Result<(), &'static str> + Clone + Send + Sync + 'static,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free, or the client has already left.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let (metrics, ready) = (Arc::clone(&metrics), ready.clone());
        tokio::spawn(async move {
            // A client that leaves or is slow is not reported.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &metrics, &ready)).await;
            drop(slot);
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    metrics: &Metrics,
    ready: &(impl Fn() -> Result<(), &'static str> + Sync),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > HEAD_LIMIT || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_ascii_whitespace();
    let page = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => Ok(exposition::as_text(&metrics.page())),
        (Some("GET"), Some("/healthz")) => Ok("ok\n".to_owned()),
        (Some("GET"), Some("/readyz")) => match ready() {
            Ok(()) => Ok("ok\n".to_owned()),
            Err(why) => Err(("503 Service Unavailable", why)),
        },
        (Some("GET"), _) => Err(("404 Not Found", "/metrics, /healthz and /readyz are here")),
        _ => Err(("405 Method Not Allowed", "GET only")),
    };
    let (status, body) = match page {
        Ok(body) => ("200 OK", body),
        Err((status, why)) => (status, format!("{why}\n")),
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        exposition::TEXT,
        body.len()
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}
