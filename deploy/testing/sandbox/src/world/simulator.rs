//! The EC2 simulator as a process, and its control socket.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::ChildStdout;

use super::process::Process;
use crate::binaries::Binaries;
use crate::sys::{self, ChildSettings};

/// The line of JSON that the simulator prints when it is ready.
#[derive(Clone, Debug, Deserialize)]
struct Ready {
    ec2: String,
    #[serde(default)]
    imds: BTreeMap<String, String>,
    #[serde(default)]
    dev_dirs: BTreeMap<String, PathBuf>,
}

/// A running `ec2-sim`.
pub struct Simulator {
    pub(crate) process: Process,
    ready: Ready,
    // Stays open, because writing a later line to a closed pipe would end the simulator.
    _stdout: BufReader<ChildStdout>,
}

impl Simulator {
    /// Starts the simulator on `state_dir/ec2` with `scenario` (TOML); `devices` is `none` or
    /// `loop`.
    pub(crate) async fn start(
        binaries: &Binaries,
        state_dir: &Path,
        scenario: &str,
        devices: &str,
    ) -> io::Result<Self> {
        let directory = state_dir.join("ec2");
        std::fs::create_dir_all(&directory)?;
        let scenario_file = state_dir.join("scenario.toml");
        std::fs::write(&scenario_file, scenario)?;
        let program = binaries.path("ec2-sim")?;
        let devices = devices.to_owned();
        let control = directory.join("control.sock");
        let mut process = Process::new("ec2-sim", state_dir, control, move || {
            let mut command = Command::new(&program);
            command.arg("serve").arg("--state-dir").arg(&directory);
            command.arg("--scenario").arg(&scenario_file).arg("--devices").arg(&devices);
            sys::apply_child_settings(&mut command, ChildSettings::default());
            Ok(command)
        });
        let mut stdout = BufReader::new(process.start_with_piped_output()?);
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stdout.read_line(&mut line)).await;
        let failed = |why: String| {
            io::Error::other(format!("ec2-sim did not get ready: {why}\n{}", process.log_tail(10)))
        };
        read.map_err(|_| failed("no line on its standard output in 30 s".to_owned()))?
            .map_err(|e| failed(e.to_string()))?;
        let ready = serde_json::from_str(&line).map_err(|e| failed(format!("{e} in {line:?}")))?;
        Ok(Self { process, ready, _stdout: stdout })
    }

    /// Returns the URL of the EC2 and STS endpoint.
    pub fn ec2(&self) -> &str {
        &self.ready.ec2
    }

    /// Returns the URL of an instance's metadata service.
    pub fn imds(&self, instance: &str) -> Option<&str> {
        self.ready.imds.get(instance).map(String::as_str)
    }

    /// Returns the directory in which an instance's block devices appear.
    pub fn dev_dir(&self, instance: &str) -> Option<&Path> {
        self.ready.dev_dirs.get(instance).map(PathBuf::as_path)
    }

    /// Returns the simulator's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends a GET to the control API.
    pub async fn get(&self, path: &str) -> io::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a POST to the control API.
    pub async fn post(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Sends a PUT to the control API.
    pub async fn put(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Sends a DELETE to the control API.
    pub async fn delete(&self, path: &str) -> io::Result<Value> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let what = format!("{method} {path} of the simulator");
        self.exchange(method, path, body)
            .await
            .map_err(|why| io::Error::other(format!("{what}: {why}")))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let stream = UnixStream::connect(self.process.socket()).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driving = tokio::spawn(connection);
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "simulator")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let reply = sender.send_request(request).await?;
        let status = reply.status();
        let bytes = reply.into_body().collect().await?.to_bytes();
        driving.abort();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&bytes)).into());
        }
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}
