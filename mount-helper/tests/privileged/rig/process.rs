//! A helper's process: the rig's own, or one beside it.
use super::{HELPER, LONG, Rig, try_signal, wait_until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Rig {
    /// Starts a helper in the rig's mount namespace, and collects the lines of its journal.
    pub(super) fn launched(&self, socket: &Path, extra: &[&str]) -> Process {
        let mut child = Command::new("nsenter")
            .args(["--mount", "--target", &self.namespace.pid().to_string()])
            .arg(HELPER)
            .arg("--listen")
            .arg(format!("unix://{}", socket.display()))
            .arg("--kubelet-root")
            .arg(self.path("kubelet"))
            .args(if self.sandbox { &["--sandbox"][..] } else { &["--paths", "any"][..] })
            .args(extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("helper");
        let stderr = child.stderr.take().expect("stderr");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().expect("lines").push(line);
            }
        });
        Process { child, lines }
    }

    /// Starts another helper for the same kubelet root, with its socket in the rig's directory.
    pub(crate) fn second(&self, socket: &str, extra: &[&str]) -> Process {
        self.launched(&self.path(socket), extra)
    }
}

pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn journal(&self) -> String {
        self.lines.lock().expect("lines").join("\n")
    }

    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_for_more(text, 0);
    }

    pub(super) fn wait_for_more(&self, text: &str, times: usize) {
        let what = || format!("no {text:?} in\n{}", self.journal());
        wait_until(what, || self.journal().matches(text).count() > times);
    }

    pub(crate) fn ended(&mut self) -> Option<i32> {
        let end = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status.code();
            }
            assert!(Instant::now() < end, "still running\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the helper with SIGTERM, and with SIGKILL after 40 s.
    pub(super) fn stop_or_kill(&mut self) {
        let end = Instant::now() + Duration::from_secs(40);
        if matches!(self.child.try_wait(), Ok(None)) {
            try_signal(self.pid(), Signal::TERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The other processes of this helper end with its supervisor.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() || std::env::var_os("RIG_JOURNAL").is_some() {
            println!("helper {}:\n{}", self.pid(), self.journal());
        }
    }
}
