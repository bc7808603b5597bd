//! What an attachment makes appear on an instance: nothing, a file, or a loop device.

mod clean;
mod file;
mod image;
mod loop_device;
mod loop_record;
mod none;
mod statistics_page;
mod sys;

pub use clean::{Cleaned, clean};
pub use file::FileDevices;
pub use image::Fingerprint;
pub use loop_device::LoopDevices;
pub use loop_record::LoopRecord;
pub use none::NoDevices;

use std::io;
use std::path::{Path, PathBuf};

/// What a new volume's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// Zeros.
    Blank,
    /// A snapshot's.
    Snapshot(&'a str),
    /// Another volume's, now.
    Volume(&'a str),
}

/// Whether an instance let go of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It is gone.
    Released,
    /// The instance holds it: mounted, or open.
    Held,
}

/// The world's devices. Every method may be repeated: after a crash the simulator asks again.
pub trait Devices: Send {
    /// `none`, `file` or `loop`.
    fn mode(&self) -> &'static str;

    /// Makes an instance's device directory.
    ///
    /// # Errors
    /// From the file system.
    fn add_instance(&mut self, instance: &str) -> io::Result<()>;

    /// An instance's device directory.
    fn dev_dir(&self, instance: &str) -> Option<PathBuf>;

    /// Makes a volume's image.
    ///
    /// # Errors
    /// From the file system.
    fn create(&mut self, volume: &str, gib: u32, source: Source<'_>) -> io::Result<()>;

    /// Removes a volume's image.
    ///
    /// # Errors
    /// From the file system.
    fn delete(&mut self, volume: &str) -> io::Result<()>;

    /// Takes a snapshot of a volume's bytes as they are now. Answers how many bytes are not zero.
    ///
    /// # Errors
    /// From the file system.
    fn snapshot(&mut self, volume: &str, snapshot: &str) -> io::Result<u64>;

    /// Removes a snapshot's image.
    ///
    /// # Errors
    /// From the file system.
    fn delete_snapshot(&mut self, snapshot: &str) -> io::Result<()>;

    /// Makes a volume appear on an instance.
    ///
    /// # Errors
    /// From the file system or the kernel.
    fn attach(&mut self, volume: &str, instance: &str, name: &str) -> io::Result<()>;

    /// Takes a volume from an instance, unless it is held and `force` is false.
    ///
    /// # Errors
    /// From the file system or the kernel.
    fn release(
        &mut self,
        volume: &str,
        instance: &str,
        name: &str,
        force: bool,
    ) -> io::Result<Release>;

    /// Makes a volume larger, also while it is attached.
    ///
    /// # Errors
    /// From the file system or the kernel.
    fn resize(&mut self, volume: &str, gib: u32) -> io::Result<()>;

    /// What file system a volume holds, if any.
    fn fingerprint(&mut self, volume: &str) -> Option<Fingerprint>;

    /// Writes anew what the controller of each attached volume counts, where a node can ask for it.
    ///
    /// # Errors
    /// From the file system.
    fn tell_statistics(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The loop devices in use.
    fn loops(&self) -> Vec<LoopRecord>;
}

/// The kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// No bytes at all.
    None,
    /// Images, and a link to the image as device.
    File,
    /// Images behind loop devices. Needs root.
    Loop,
}

/// The devices of a mode in a state directory.
///
/// # Errors
/// When the directory cannot hold them.
pub fn open(mode: Mode, state_dir: &Path) -> io::Result<Box<dyn Devices>> {
    Ok(match mode {
        Mode::None => Box::new(NoDevices::new(state_dir)?),
        Mode::File => Box::new(FileDevices::new(state_dir)?),
        Mode::Loop => Box::new(LoopDevices::new(state_dir)?),
    })
}

/// The name without `/dev/`, which is a single path component.
fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    name.rsplit('/').next().unwrap_or(name)
}

/// Removes a file; its absence is no error.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
