//! The bound of the node's figures: the same loop device, made and mounted with nothing in between.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A loop device of our own over a sparse file, cleared when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    node: PathBuf,
    file: PathBuf,
    point: PathBuf,
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(io::Error::other(format!(
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

impl LoopDevice {
    /// A device of `bytes` bytes with 512-byte sectors and direct input and output, as the simulator makes them; its files in `directory`.
    ///
    /// # Errors
    /// When losetup(8) fails.
    pub fn make(directory: &Path, name: &str, bytes: u64) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let file = directory.join(format!("{name}.img"));
        std::fs::File::create(&file)?.set_len(bytes)?;
        let point = directory.join(format!("{name}.mnt"));
        std::fs::create_dir_all(&point)?;
        let losetup = |direct: &str| {
            run(Command::new("losetup")
                .args(["--find", "--show", "--sector-size", "512", direct])
                .arg(&file))
        };
        // Not every file system that holds the file can do direct input and output.
        let node = losetup("--direct-io=on").or_else(|_| losetup("--direct-io=off"))?;
        Ok(Self {
            node: PathBuf::from(node),
            file,
            point,
        })
    }

    /// Time of `mke2fs` with the arguments that the helper gives it, or `mkfs.xfs`, then mount(2).
    ///
    /// # Errors
    /// When one of them fails.
    pub fn format_and_mount(&self, kind: &str) -> io::Result<Duration> {
        let began = Instant::now();
        let mut command = match kind {
            "xfs" => {
                let mut command = Command::new("mkfs.xfs");
                command.args(["-f", "-q"]);
                command
            }
            kind => {
                let mut command = Command::new("mke2fs");
                command.args(["-t", kind, "-F", "-q", "-m", "0"]);
                command
            }
        };
        run(command.arg(&self.node))?;
        self.mount(kind)?;
        Ok(began.elapsed())
    }

    /// Time of mount(2) alone.
    ///
    /// # Errors
    /// As mount(2).
    pub fn mount(&self, kind: &str) -> io::Result<Duration> {
        let began = Instant::now();
        mount(
            &self.node,
            &self.point,
            kind,
            MountFlags::NOSUID | MountFlags::NODEV,
            None,
        )?;
        Ok(began.elapsed())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// As umount2(2).
    pub fn unmount(&self) -> io::Result<()> {
        Ok(unmount(&self.point, UnmountFlags::NOFOLLOW)?)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.node));
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_dir(&self.point);
    }
}
