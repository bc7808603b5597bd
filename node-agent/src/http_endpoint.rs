//! `/metrics`, `/healthz` and `/readyz` over plain HTTP/1.1, with one request per connection.
//!
//! The listener is bound before the process confines itself; afterwards the process can bind no
//! other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::deadline::Deadline;
use crate::helper::Helper;
use crate::metrics::Metrics;
use crate::node::READY_WITHIN;
use crate::registration::RegistrationState;

mod nvme_metrics;

pub use nvme_metrics::Collector;

/// Most simultaneous connections.
const AT_ONCE: usize = 8;
/// Limit for the bytes of a request's head.
const HEAD_LIMIT: usize = 4096;
/// Every connection ends after this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sources of the pages.
#[derive(Clone, Debug)]
pub(crate) struct PageSources {
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The mount-helper.
    pub(crate) helper: Arc<Helper>,
    /// The volumes' statistics.
    pub(crate) collector: Arc<Collector>,
    /// The state of the registration with kubelet.
    pub(crate) standing: Arc<RegistrationState>,
}

/// Serves until the runtime ends.
///
/// # Errors
/// When the listener cannot be used.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    asked: PageSources,
) -> std::io::Result<()> {
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
        let asked = asked.clone();
        tokio::spawn(async move {
            // A client that leaves or is slow is not reported.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &asked)).await;
            drop(slot);
        });
    }
}

async fn answer(mut stream: TcpStream, asked: &PageSources) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > HEAD_LIMIT || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let first = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let path = target.and_then(|t| t.split('?').next()).unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            // Collecting asks the helper for its inventory, which also updates the counters.
            let volumes = asked.collector.page().await;
            let mut page = asked.metrics.page();
            page.push_str(&volumes);
            ("200 OK", page)
        }
        ("GET" | "HEAD", "/healthz") => ("200 OK", "ok\n".to_owned()),
        ("GET" | "HEAD", "/readyz") => asked.ready().await,
        ("GET" | "HEAD", _) => (
            "404 Not Found",
            "/metrics, /healthz and /readyz are here\n".to_owned(),
        ),
        _ => ("405 Method Not Allowed", "GET only\n".to_owned()),
    };
    let length = body.len();
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        reply.push_str(&body);
    }
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

impl PageSources {
    async fn ready(&self) -> (&'static str, String) {
        let fault = match self.standing.fault(Instant::now()) {
            Some(fault) => fault,
            None => match self.helper.greet(Deadline::after(READY_WITHIN)).await {
                Ok(_) => return ("200 OK", "ok\n".to_owned()),
                Err(error) => error.to_string(),
            },
        };
        ("503 Service Unavailable", format!("{fault}\n"))
    }
}
