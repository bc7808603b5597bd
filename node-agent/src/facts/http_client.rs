//! One HTTP request to the metadata service, and its answer of limited size.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection failed.
    #[error("connecting to {0} failed")]
    Connect(SocketAddr, #[source] std::io::Error),
    /// The connection broke.
    #[error("the connection ended before the answer")]
    Broken(#[source] hyper::Error),
    /// The whole exchange took longer than its limit.
    #[error("no answer within {} ms", .0.as_millis())]
    Slow(Duration),
    /// The answer is not what the metadata service sends.
    #[error("the answer is not HTTP as the metadata service speaks it: {0}")]
    Foreign(String),
}

/// Limit for the bytes of an answer's body.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) exchange: Duration,
}

/// Sends one request and reads the answer. Must run inside a tokio runtime.
pub(super) async fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    (name, value): (&str, &str),
    limits: Limits,
) -> Result<HttpResponse, HttpError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .header(CONTENT_LENGTH, 0)
        .header(name, value)
        .body(Empty::<Bytes>::new())
        .map_err(|error| HttpError::Foreign(error.to_string()))?;
    let connect = timeout(limits.connect, TcpStream::connect(address)).await;
    let stream = connect
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(|error| HttpError::Connect(address, error))?;
    let answer = async {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken_or_foreign)?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken_or_foreign)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => broken_or_foreign(*error),
            Err(_) => HttpError::Foreign("it is longer than 64 KiB".to_owned()),
        })?;
        let body = String::from_utf8(body.to_bytes().to_vec())
            .map_err(|_| HttpError::Foreign("its body is not text".to_owned()))?;
        Ok(HttpResponse { status, body })
    };
    timeout(limits.exchange, answer).await.unwrap_or(Err(HttpError::Slow(limits.exchange)))
}

/// An answer that is no HTTP will be none at the next attempt, either.
fn broken_or_foreign(error: hyper::Error) -> HttpError {
    match error.is_parse() {
        true => HttpError::Foreign(error.to_string()),
        false => HttpError::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::io::{Read, Write};

    use super::*;

    /// Returns what `exchange` makes of a server that answers with these bytes and hangs up.
    fn answered(answer: &[u8]) -> Result<HttpResponse, HttpError> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer.to_owned();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            // The client may have read enough.
            let _ = stream.write_all(&answer);
            String::from_utf8(head).unwrap()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_secs(10);
        let limits = Limits { connect: limit, exchange: limit };
        let result = runtime.block_on(exchange(address, "PUT", "/token", ("x-ttl", "60"), limits));
        let head = server.join().unwrap().to_ascii_lowercase();
        assert!(head.starts_with("put /token http/1.1\r\n"), "{head}");
        for line in ["x-ttl: 60", "connection: close", "content-length: 0"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
        result
    }

    #[test]
    fn response_completes_at_content_length_or_stream_end() {
        let sized = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc").unwrap();
        assert_eq!((sized.status, sized.body.as_str()), (200, "ab"));
        let open = answered(b"HTTP/1.0 404 Not Found\r\n\r\nnothing").unwrap();
        assert_eq!((open.status, open.body.as_str()), (404, "nothing"));
        let cut = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
        assert!(matches!(cut, Err(HttpError::Broken(_))), "{cut:?}");
    }

    #[test]
    fn malformed_or_overlong_answer_is_foreign() {
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(ANSWER_LIMIT + 1));
        for bad in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            &long,
        ] {
            let answer = answered(bad.as_bytes());
            assert!(matches!(answer, Err(HttpError::Foreign(_))), "{answer:?}");
        }
        assert!(answered(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A parsed body is never longer than the received bytes.
        #[test]
        fn arbitrary_answers_never_panic(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "HTTP/1.[01] [0-9]{1,5}[ -~]{0,10}\r\n(Content-Length: ?-?[0-9]{0,25}\r\n)?\r\n.{0,20}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            if let Ok(answer) = answered(&bytes) {
                prop_assert!(answer.body.len() <= bytes.len());
            }
        }
    }
}
