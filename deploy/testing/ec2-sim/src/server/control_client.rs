//! A blocking client of the control socket.

use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A client of a simulator's control socket. Each call opens a connection.
#[derive(Debug, Clone)]
pub struct ControlClient {
    socket: PathBuf,
}

impl ControlClient {
    /// Creates a client for a socket path, as the ready line names it.
    pub fn new(socket: impl AsRef<Path>) -> Self {
        Self { socket: socket.as_ref().to_owned() }
    }

    /// Sends `GET path`.
    ///
    /// # Errors
    /// Fails if the socket does not answer, or answers with a status other than 200.
    pub fn get(&self, path: &str) -> io::Result<Value> {
        self.call("GET", path, None)
    }

    /// Sends `POST path` with a body.
    pub fn post(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.call("POST", path, Some(body))
    }

    /// Sends `PUT path` with a body.
    pub fn put(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.call("PUT", path, Some(body))
    }

    /// Sends `DELETE path`.
    pub fn delete(&self, path: &str) -> io::Result<Value> {
        self.call("DELETE", path, None)
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer).map_err(io::Error::other)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| io::Error::other("the control socket closed without an answer"))?;
        let status = head.split(' ').nth(1).unwrap_or("");
        if status != "200" {
            return Err(io::Error::other(format!("{method} {path}: {status} {}", body.trim())));
        }
        serde_json::from_str(body).map_err(io::Error::other)
    }
}
