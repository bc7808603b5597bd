//! A helper process, and a second one beside the rig's.
use super::{LONG, Rig};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Rig {
    /// Starts a helper in the rig's mount namespace, and collects the lines of its journal.
    pub(super) fn launched(
        &self,
        socket: &Path,
        extra: &[&str],
    ) -> (Child, Arc<Mutex<Vec<String>>>) {
        let mut child = Command::new("nsenter")
            .args(["--mount", "--target", &self.holder.id().to_string()])
            .arg(env!("CARGO_BIN_EXE_ebs-csi-mount-helper"))
            .arg("--listen")
            .arg(format!("unix://{}", socket.display()))
            .arg("--kubelet-root")
            .arg(self.path("kubelet"))
            .args(if self.sandbox {
                &["--sandbox"][..]
            } else {
                &["--paths", "any"][..]
            })
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
        (child, lines)
    }

    /// Starts another helper for the same kubelet root, with its socket in the rig's directory.
    pub(crate) fn second(&self, socket: &str, extra: &[&str]) -> Second {
        let (child, lines) = self.launched(&self.path(socket), extra);
        Second { child, lines }
    }
}

/// A helper beside the rig's own.
pub(crate) struct Second {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Second {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn journal(&self) -> String {
        self.lines.lock().expect("lines").join("\n")
    }

    pub(crate) fn wait_for(&self, text: &str) {
        let end = Instant::now() + LONG;
        while !self.journal().contains(text) {
            assert!(Instant::now() < end, "no {text:?} in\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the helper has ended, and returns its exit status.
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
}

impl Drop for Second {
    fn drop(&mut self) {
        // The other processes of this helper end with its supervisor.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("second:\n{}", self.journal());
        }
    }
}
