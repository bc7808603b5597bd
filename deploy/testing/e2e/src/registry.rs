//! A registry of images and charts on loopback, and the tools that `deploy/install/images/prepare`
//! installs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::repository::{prepared, root};

/// Returns whether these tools are there or can be installed, and says what is missing.
pub fn has(tools: &[&str]) -> bool {
    let prepare = root().join("deploy/install/images/prepare");
    let prepare = Command::new(prepare).args(tools).output().expect("the script");
    if !prepare.status.success() {
        let error = String::from_utf8_lossy(&prepare.stderr);
        let why = error.lines().last().unwrap_or("unknown");
        println!("skipped: no {}: {why}", tools.join(", "));
    }
    prepare.status.success()
}

/// A registry that ends with the test.
pub struct Registry {
    process: Child,
    /// The host and the port.
    pub address: String,
}

impl Registry {
    /// Returns a registry on a free port of loopback, with its content in memory. Prints the reason
    /// and returns `None` where its program cannot be installed.
    pub fn start() -> Option<Self> {
        let program = has(&["crane"]).then(|| prepared("crane"))??;
        let mut command = Command::new(program);
        command.args(["registry", "serve", "--address", "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut process = command.spawn().expect("a registry");
        let mut said = BufReader::new(process.stderr.take().expect("its log"));
        let mut line = String::new();
        said.read_line(&mut line).expect("its port");
        // It writes a line for each request.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let port = line.trim().rsplit(' ').next().expect("a port");
        Some(Self { process, address: format!("127.0.0.1:{port}") })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
