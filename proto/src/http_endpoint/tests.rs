use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::*;

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
/// The longest wait for what a test expects.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each page answers.
#[derive(Clone)]
struct Fixed {
    metrics: Result<String, StatusCode>,
    ready: Result<(), &'static str>,
}

impl Default for Fixed {
    fn default() -> Self {
        Self { metrics: Ok("up 1\n".to_owned()), ready: Ok(()) }
    }
}

impl Pages for Fixed {
    async fn metrics(&self) -> Result<String, StatusCode> {
        self.metrics.clone()
    }

    async fn ready(&self) -> Result<(), String> {
        self.ready.map_err(str::to_owned)
    }
}

/// A server, which ends with the test.
struct Served {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    fn start(pages: Fixed, timeouts: Timeouts) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve_within(listener, PlainText, pages, timeouts));
        Self { address, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Opens as many connections as the server keeps.
    async fn fill(&self) -> Vec<TcpStream> {
        let mut open = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            open.push(self.connect().await);
        }
        open
    }
}

/// Returns what is still received, when the server ends its side rather than resets the connection.
async fn rest(stream: &mut TcpStream) -> io::Result<String> {
    let mut received = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut received)).await??;
    Ok(String::from_utf8(received).unwrap())
}

/// Returns the answer to a request.
async fn answer(pages: Fixed, request: &str) -> String {
    let server = Served::start(pages, TIMEOUTS);
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await.unwrap()
}

#[tokio::test]
async fn each_request_gets_its_status_and_body() {
    let ready = Fixed::default();
    let unready = Fixed { ready: Err("not yet"), ..Fixed::default() };
    let crowded = Fixed { metrics: Err(StatusCode::TOO_MANY_REQUESTS), ..Fixed::default() };
    for (line, pages, status, body) in [
        ("GET /metrics", &ready, "200", "up 1\n"),
        ("GET /metrics?x=1", &ready, "200", "up 1\n"),
        ("HEAD /metrics", &ready, "200", ""),
        ("GET /metrics", &crowded, "429", "Too Many Requests\n"),
        ("GET /healthz", &ready, "200", "ok\n"),
        ("GET /healthz", &unready, "200", "ok\n"),
        ("GET /readyz", &ready, "200", "ok\n"),
        ("GET /readyz", &unready, "503", "not yet\n"),
        ("GET /other", &ready, "404", "/metrics, /healthz and /readyz are here\n"),
        ("POST /metrics", &ready, "405", "GET only\n"),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
        let text = answer(pages.clone(), &request).await;
        let (head, found) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {text}");
        assert_eq!(found, body, "{line}");
        assert!(head.contains("connection: close"), "{line}: {text}");
        assert_eq!(head.contains("allow: GET, HEAD"), status == "405", "{line}: {text}");
    }
}

#[tokio::test]
async fn openmetrics_is_converted_for_older_clients() {
    let page = "# TYPE calls counter\ncalls_total 3\n# EOF\n";
    let pages = Fixed { metrics: Ok(page.to_owned()), ..Fixed::default() };
    for (accept, kind, first) in [
        ("application/openmetrics-text", "application/openmetrics-text;", "# TYPE calls counter"),
        ("*/*", "text/plain; version=0.0.4;", "# TYPE calls_total counter"),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        let text = answer(pages.clone(), &request).await;
        assert!(text.contains(&format!("content-type: {kind}")), "{text}");
        assert!(text.contains(&format!("\r\n\r\n{first}\n")), "{text}");
    }
}

#[tokio::test]
async fn oversized_head_gets_431() {
    let long = "x".repeat(2 * MAX_HEAD_BYTES);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n");
    let text = answer(Fixed::default(), &request).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
}

#[tokio::test]
async fn unread_body_does_not_discard_the_answer() {
    let body = "x".repeat(1 << 20);
    let length = body.len();
    let head = format!("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let text = answer(Fixed::default(), &(head + &body)).await;
    assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
}

#[tokio::test]
async fn pipelined_requests_get_1_answer() {
    let text = answer(Fixed::default(), &SCRAPE.repeat(3)).await;
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
}

#[tokio::test]
async fn half_closed_client_gets_the_answer() {
    let server = Served::start(Fixed::default(), TIMEOUTS);
    let mut stream = server.connect().await;
    stream.write_all(SCRAPE.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let text = rest(&mut stream).await.unwrap();
    assert!(text.ends_with("\r\n\r\nup 1\n"), "{text}");
}

#[tokio::test]
async fn head_sent_byte_by_byte_ends_at_deadline() {
    let timeouts = Timeouts { head: Duration::from_millis(200), connection: PATIENCE };
    let server = Served::start(Fixed::default(), timeouts);
    let mut stream = server.connect().await;
    let sending = async {
        while stream.write_all(b"G").await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, sending).await.expect("the connection ends");
}

#[tokio::test]
async fn unread_page_ends_at_its_deadline() {
    let timeouts = Timeouts { head: PATIENCE, connection: Duration::from_millis(200) };
    let page = "x".repeat(64 << 20);
    let pages = Fixed { metrics: Ok(page), ..Fixed::default() };
    let server = Served::start(pages, timeouts);
    let mut stream = server.connect().await;
    stream.write_all(SCRAPE.as_bytes()).await.unwrap();
    // A reset shows as an error before anything is read.
    let ended = async {
        while stream.take_error().unwrap().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the connection is reset");
}

#[tokio::test]
async fn idlest_connection_yields_to_a_new_one() {
    let server = Served::start(Fixed::default(), Timeouts { head: PATIENCE, connection: PATIENCE });
    let mut silent = server.fill().await;
    // The first is no longer the idlest once the server has read a byte of it.
    let (scrape_begin, scrape_rest) = SCRAPE.split_at(1);
    let mut first = silent.remove(0);
    first.write_all(scrape_begin.as_bytes()).await.unwrap();
    let mut probe = server.connect().await;
    probe.write_all(SCRAPE.as_bytes()).await.unwrap();
    assert!(rest(&mut probe).await.unwrap().ends_with("up 1\n"));
    assert!(rest(&mut silent[0]).await.is_err(), "the idlest is reset");
    first.write_all(scrape_rest.as_bytes()).await.unwrap();
    assert!(rest(&mut first).await.unwrap().ends_with("up 1\n"));
}

#[tokio::test]
async fn client_with_many_connections_displaces_no_other() {
    let server = Served::start(Fixed::default(), Timeouts { head: PATIENCE, connection: PATIENCE });
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    let mut first = server.fill().await;
    let _second = server.fill().await;
    for stream in &mut first {
        assert!(rest(stream).await.is_err(), "an idle connection is reset");
    }
    other.write_all(SCRAPE.as_bytes()).await.unwrap();
    assert!(rest(&mut other).await.unwrap().ends_with("up 1\n"));
}
