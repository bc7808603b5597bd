//! Disks and places that somebody else holds.
mod others_disks;
mod others_files;
mod others_mounts;
mod others_places;

use crate::rig::shell;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// A file system that is mounted in a mount namespace of its own, where no helper sees it.
struct Elsewhere {
    process: Child,
    directory: tempfile::TempDir,
}

impl Elsewhere {
    /// Mount the device at `path`, as its file system, until this is dropped.
    fn mount(path: &str, options: &str) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let script = "mount -o \"$2\" \"$0\" \"$1\" && echo there && exec sleep infinity";
        let mut process = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .args(["/bin/sh", "-c", script, path])
            .arg(directory.path())
            .arg(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("read");
        assert_eq!(line, "there\n", "{path}");
        Self { process, directory }
    }

    /// Its root.
    fn root(&self) -> PathBuf {
        let inside = self.directory.path().display();
        PathBuf::from(format!("/proc/{}/root{inside}", self.process.id()))
    }

    /// Its owner still writes to it, and reads what was written from the disk.
    fn lives(&self) {
        let file = self.root().join("kept");
        std::fs::write(&file, "kept").expect("write");
        shell("sync", &["-f", file.to_str().expect("utf-8")]);
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "kept");
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The kernel refuses writes to the disk of this name.
fn is_read_only(name: &str) -> bool {
    let file = format!("/sys/class/block/{name}/ro");
    std::fs::read_to_string(file).expect("ro").trim() == "1"
}
