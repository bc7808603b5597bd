//! The part of HTTP/1.1 that the metadata service needs: one request, one answer of limited size,
//! then the connection ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// An answer's status and body.
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
    /// The connection broke, or took longer than its limit.
    #[error("the connection ended before the answer")]
    Broken(#[source] std::io::Error),
    /// The whole exchange took longer than its limit.
    #[error("no answer within {} ms", .0.as_millis())]
    Slow(Duration),
    /// The answer is not what the metadata service sends.
    #[error("the answer is not HTTP as the metadata service speaks it: {0}")]
    Foreign(&'static str),
}

/// Limit for the bytes of an answer, head and body.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) exchange: Duration,
}

/// Sends one request and reads the answer. `headers` must hold no line breaks.
pub(super) fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    limits: Limits,
) -> Result<HttpResponse, HttpError> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, limits.connect)
        .map_err(|e| HttpError::Connect(address, e))?;
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "PUT" {
        request.push_str("Content-Length: 0\r\n");
    }
    request.push_str("\r\n");
    let left = || -> Result<Duration, HttpError> {
        let left = limits.exchange.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(HttpError::Slow(limits.exchange));
        }
        Ok(left)
    };
    let slow_or_broken = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            HttpError::Slow(limits.exchange)
        }
        _ => HttpError::Broken(e),
    };
    stream.set_write_timeout(Some(left()?)).map_err(HttpError::Broken)?;
    stream.write_all(request.as_bytes()).map_err(slow_or_broken)?;
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(answer) = parse(&received, false)? {
            return Ok(answer);
        }
        stream.set_read_timeout(Some(left()?)).map_err(HttpError::Broken)?;
        match stream.read(&mut chunk) {
            Ok(0) => {
                return parse(&received, true)?
                    .ok_or(HttpError::Foreign("it ended inside its head or body"));
            }
            Ok(count) => received.extend_from_slice(&chunk[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(slow_or_broken(e)),
        }
        if received.len() > ANSWER_LIMIT {
            return Err(HttpError::Foreign("it is longer than 64 KiB"));
        }
    }
}

/// Parses the answer once it is complete. `ended` means that no more bytes follow.
fn parse(received: &[u8], ended: bool) -> Result<Option<HttpResponse>, HttpError> {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&received[..end])
        .map_err(|_| HttpError::Foreign("its head is not text"))?;
    let body = &received[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1."))
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|code| code.parse::<u16>().ok())
        .ok_or(HttpError::Foreign("it has no status line"))?;
    let mut length = None;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(HttpError::Foreign("a header has no colon"));
        };
        if name.eq_ignore_ascii_case("content-length") {
            let given = value.trim().parse::<usize>();
            length = Some(given.map_err(|_| HttpError::Foreign("its length is not a number"))?);
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(HttpError::Foreign("it is sent in chunks"));
        }
    }
    let whole = match length {
        Some(length) if body.len() >= length => &body[..length],
        None if ended => body,
        _ => return Ok(None),
    };
    let body = String::from_utf8(whole.to_vec())
        .map_err(|_| HttpError::Foreign("its body is not text"))?;
    Ok(Some(HttpResponse { status, body }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn response_completes_at_content_length_or_stream_end() {
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc";
        let answer = parse(sized, false).unwrap().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "ab"));
        for cut in 0..sized.len() - 1 {
            assert_eq!(parse(&sized[..cut], false).unwrap(), None, "{cut}");
        }
        let open = b"HTTP/1.0 404 Not Found\r\n\r\nnothing";
        assert_eq!(parse(open, false).unwrap(), None);
        assert_eq!(parse(open, true).unwrap().unwrap().status, 404);
    }

    #[test]
    fn malformed_or_chunked_http_response_is_error() {
        for bad in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes(), true).is_err(), "{bad}");
        }
    }

    proptest! {
        /// A parsed body is never longer than the received bytes.
        #[test]
        fn arbitrary_bytes_never_panic_http_parser(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "HTTP/1.[01] [0-9]{1,5}[ -~]{0,10}\r\n(Content-Length: ?-?[0-9]{0,25}\r\n)?\r\n.{0,20}"
                    .prop_map(String::into_bytes),
            ],
            ended in any::<bool>(),
        ) {
            if let Ok(Some(answer)) = parse(&bytes, ended) {
                prop_assert!(answer.body.len() <= bytes.len());
            }
        }
    }
}
