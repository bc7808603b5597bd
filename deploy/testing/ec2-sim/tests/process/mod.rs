//! The real binary, as a child process of the test.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use ec2_sim::ControlClient;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub const NODE_A: &str = "i-0aaaaaaaaaaaaaaa1";

pub struct Process {
    child: Child,
    pub ready: Value,
    pub control: ControlClient,
}

pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ec2-sim"))
}

impl Process {
    pub fn serve(state_dir: &Path, more: &[&str]) -> Self {
        let mut child = binary()
            .args(["serve", "--log-level", "warn", "--state-dir"])
            .arg(state_dir)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("the ready line");
        let control = ControlClient::new(ready["control"].as_str().expect("control"));
        Self { child, ready, control }
    }

    /// Kills the process, like kill -9.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
        self.child.wait().expect("wait").code()
    }

    pub fn url(&self) -> &str {
        self.ready["ec2"].as_str().expect("ec2")
    }

    /// Sends one EC2 request and returns the body of the reply.
    pub fn call(&self, form: &str) -> String {
        let form = format!("{form}&Version=2016-11-15");
        let (reply, _) = http(self.url(), "POST /", &signature(Duration::ZERO), &form);
        reply.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned())
    }

    /// Describes a volume until the reply contains a text.
    pub fn wait_for(&self, volume: &str, wanted: &str) {
        let mut last = String::new();
        for _ in 0..1000 {
            last = self.call(&format!("Action=DescribeVolumes&VolumeId.1={volume}"));
            if last.contains(wanted) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{volume} never showed {wanted}: {last}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.trim_start_matches("http://")).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
    stream
}

/// Sends one request, whose first line is `line`, and reads until the connection ends. Returns the
/// bytes and how the connection ended.
pub fn http(url: &str, line: &str, headers: &str, body: &str) -> (String, Option<ErrorKind>) {
    let mut stream = connect(url);
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .expect("write");
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes).err().map(|e| e.kind());
    (String::from_utf8_lossy(&bytes).into_owned(), ended)
}

/// Returns the text of the first element of this name.
pub fn text(body: &str, element: &str) -> String {
    body.split(&format!("<{element}>"))
        .nth(1)
        .and_then(|t| t.split('<').next())
        .unwrap_or_else(|| panic!("no {element} in {body}"))
        .to_owned()
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

pub fn signature(age: Duration) -> String {
    let date = (jiff::Timestamp::now() - age).strftime("%Y%m%dT%H%M%SZ").to_string();
    format!(
        "authorization: AWS4-HMAC-SHA256 Credential=AKID/{}/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date, Signature={}\r\nx-amz-date: {date}\r\n",
        &date[..8],
        "0".repeat(64)
    )
}
