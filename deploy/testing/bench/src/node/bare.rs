//! The lower bound of the node's figures: the same loop device, formatted and mounted by bare
//! system calls and programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_policy::format_option::FormatOptions;
use ebs_csi_policy::tool::{Arguments, DISK, ToolId};
use ebs_csi_wire::FsType;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

/// A loop device over a sparse file, outside the simulator; cleared when dropped.
#[derive(Debug)]
pub(super) struct LoopDevice {
    node: PathBuf,
    file: PathBuf,
    point: PathBuf,
    target: PathBuf,
}

/// The identifier does not matter, because nothing looks this file system up.
const UUID: [u8; 16] = *b"bare loop device";

/// strerror(3) of EBUSY.
const BUSY: &str = "Device or resource busy";

/// Makes the block device at `node` read as zeros again, like a new one.
pub(super) fn blank(node: &Path) -> io::Result<()> {
    run(Command::new("blkdiscard").arg("--force").arg(node)).map(drop)
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

fn timed(step: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let began = Instant::now();
    step()?;
    Ok(began.elapsed())
}

impl LoopDevice {
    /// Makes a device of `bytes` bytes with 512-byte sectors and direct I/O, as the simulator does,
    /// with its files in `directory`.
    pub(super) fn make(directory: &Path, name: &str, bytes: u64) -> io::Result<Self> {
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
        // Not every file system that holds the file supports direct I/O.
        let node = losetup("--direct-io=on").or_else(|_| losetup("--direct-io=off"))?;
        Ok(Self {
            node: PathBuf::from(node),
            file,
            point,
            target: directory.join(format!("{name}.target")),
        })
    }

    /// Returns the time of the program that makes a `kind`, with the helper's arguments.
    pub(super) fn format(&self, kind: FsType) -> io::Result<Duration> {
        let options = FormatOptions::default();
        let tool = ToolId::formats(kind)
            .tool()
            .ok_or_else(|| io::Error::other(format!("no tool makes {kind:?}")))?;
        let line = tool.command_line(&Arguments { fs: kind, format: &options, uuid: UUID });
        let (program, arguments) =
            line.split_first().ok_or_else(|| io::Error::other("an empty command line"))?;
        let disk = self.node.to_string_lossy();
        let arguments = arguments.iter().map(|argument| match argument.as_str() {
            DISK => disk.as_ref(),
            other => other,
        });
        let mut command = Command::new(program);
        command.args(arguments);
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let began = Instant::now();
            match run(&mut command) {
                // A process that lost the race for a free loop device claims it for a moment:
                // drivers/block/loop.c, loop_configure.
                Err(e) if e.to_string().contains(BUSY) && Instant::now() < deadline => {}
                result => return result.map(|_| began.elapsed()),
            }
        }
    }

    /// Returns the time of mount(2) alone.
    pub(super) fn mount(&self, kind: FsType) -> io::Result<Duration> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        timed(|| Ok(mount(&self.node, &self.point, kind.as_str(), flags, None)?))
    }

    /// Returns the time to make a target directory and to bind the mounted file system there.
    pub(super) fn bind(&self) -> io::Result<Duration> {
        timed(|| {
            std::fs::create_dir(&self.target)?;
            Ok(mount_bind(&self.point, &self.target)?)
        })
    }

    /// Returns the time to undo [`bind`](Self::bind).
    pub(super) fn unbind(&self) -> io::Result<Duration> {
        timed(|| {
            unmount(&self.target, UnmountFlags::NOFOLLOW)?;
            std::fs::remove_dir(&self.target)
        })
    }

    /// Returns the time of statvfs(3) on the mounted file system.
    pub(super) fn space(&self) -> io::Result<Duration> {
        timed(|| Ok(rustix::fs::statvfs(&self.point).map(drop)?))
    }

    /// Makes the device read as zeros again.
    pub(super) fn blank(&self) -> io::Result<()> {
        blank(&self.node)
    }

    /// Returns the time of umount2(2).
    pub(super) fn unmount(&self) -> io::Result<Duration> {
        timed(|| Ok(unmount(&self.point, UnmountFlags::NOFOLLOW)?))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.unbind();
        let _ = self.unmount();
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.node));
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_dir(&self.point);
    }
}
