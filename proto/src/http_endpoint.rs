//! `/metrics`, `/healthz` and `/readyz` over plain HTTP/1.1, with one request per connection.
//!
//! The node-agent and node-lifecycle serve few small pages, for which an HTTP library would need
//! too much memory. The controller, which offers TLS, has an endpoint of its own.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::exposition;

/// Most simultaneous connections.
const MAX_CONNECTIONS: usize = 8;
/// Limit for the bytes of a request's head.
const MAX_HEAD_BYTES: usize = 4096;
/// Every connection ends after this time.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of the pages.
pub trait Pages: Clone + Send + Sync + 'static {
    /// Returns `/metrics`, in the format of [`exposition::TEXT`].
    fn metrics(&self) -> impl Future<Output = String> + Send;

    /// Decides `/readyz`.
    ///
    /// # Errors
    /// The reason why the process is not ready, one line.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Serves until the runtime ends. The listener must be in non-blocking mode.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(listener: std::net::TcpListener, pages: impl Pages) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free, or the client has already left.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            // A client that leaves or is slow is not reported.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, answer(stream, &pages)).await;
            drop(slot);
        });
    }
}

async fn answer(mut stream: TcpStream, pages: &impl Pages) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let first = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let path = target.and_then(|t| t.split('?').next()).unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", pages.metrics().await),
        ("GET" | "HEAD", "/healthz") => ("200 OK", "ok\n".to_owned()),
        ("GET" | "HEAD", "/readyz") => match pages.ready().await {
            Ok(()) => ("200 OK", "ok\n".to_owned()),
            Err(reason) => ("503 Service Unavailable", format!("{reason}\n")),
        },
        ("GET" | "HEAD", _) => {
            ("404 Not Found", "/metrics, /healthz and /readyz are here\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "GET only\n".to_owned()),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        exposition::TEXT,
        body.len()
    );
    if method != "HEAD" {
        reply.push_str(&body);
    }
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Fixed(Result<(), &'static str>);

    impl Pages for Fixed {
        async fn metrics(&self) -> String {
            "up 1\n".to_owned()
        }

        async fn ready(&self) -> Result<(), String> {
            self.0.map_err(str::to_owned)
        }
    }

    /// Sends the request to a new server. Returns what comes back; a reset ends it as well.
    async fn reply(request: &str, pages: Fixed) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, pages));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received).await;
        server.abort();
        String::from_utf8(received).unwrap()
    }

    #[tokio::test]
    async fn each_request_gets_its_status_and_body() {
        let ready = Fixed(Ok(()));
        for (line, pages, status, body) in [
            ("GET /metrics", &ready, "200", "up 1\n"),
            ("GET /metrics?x=1", &ready, "200", "up 1\n"),
            ("HEAD /metrics", &ready, "200", ""),
            ("GET /healthz", &ready, "200", "ok\n"),
            ("GET /readyz", &ready, "200", "ok\n"),
            ("GET /readyz", &Fixed(Err("not yet")), "503", "not yet\n"),
            ("GET /other", &ready, "404", "/metrics, /healthz and /readyz are here\n"),
            ("POST /metrics", &ready, "405", "GET only\n"),
        ] {
            let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
            let text = reply(&request, pages.clone()).await;
            let (head, found) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {text}");
            assert_eq!(found, body, "{line}");
        }
    }

    #[tokio::test]
    async fn endless_head_is_closed_without_reply() {
        let request = format!("GET /{}", "x".repeat(2 * MAX_HEAD_BYTES));
        assert_eq!(reply(&request, Fixed(Ok(()))).await, "");
    }
}
