//! How an attached volume appears on an instance: not at all, as a file, or as a loop device.

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

/// The initial bytes of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// Zeros.
    Blank,
    /// The bytes of a snapshot.
    Snapshot(&'a str),
    /// The current bytes of another volume.
    Volume(&'a str),
}

/// Whether an instance has released a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The device is gone.
    Released,
    /// The instance holds the device: mounted, or open.
    Held,
}

/// The simulated devices. Every method can be repeated: after an error the simulator calls the
/// method again.
pub trait Devices: Send {
    /// Returns `none`, `file` or `loop`.
    fn mode(&self) -> &'static str;

    /// Creates an instance's device directory.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn add_instance(&mut self, instance: &str) -> io::Result<()>;

    /// Returns an instance's device directory.
    fn dev_dir(&self, instance: &str) -> Option<PathBuf>;

    /// Creates a volume's image.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn create(&mut self, volume: &str, gib: u32, source: Source<'_>) -> io::Result<()>;

    /// Removes a volume's image.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn delete(&mut self, volume: &str) -> io::Result<()>;

    /// Takes a snapshot of a volume's current bytes. Returns how many bytes are not zero.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn snapshot(&mut self, volume: &str, snapshot: &str) -> io::Result<u64>;

    /// Removes a snapshot's image.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn delete_snapshot(&mut self, snapshot: &str) -> io::Result<()>;

    /// Makes a volume appear on an instance.
    ///
    /// # Errors
    /// I/O errors of the file system or the kernel.
    fn attach(&mut self, volume: &str, instance: &str, name: &str) -> io::Result<()>;

    /// Removes a volume from an instance, unless the instance holds the volume and `force` is
    /// false.
    ///
    /// # Errors
    /// I/O errors of the file system or the kernel.
    fn release(
        &mut self,
        volume: &str,
        instance: &str,
        name: &str,
        force: bool,
    ) -> io::Result<Release>;

    /// Makes a volume larger, even while the volume is attached.
    ///
    /// # Errors
    /// I/O errors of the file system or the kernel.
    fn resize(&mut self, volume: &str, gib: u32) -> io::Result<()>;

    /// Returns which file system a volume holds, if any.
    fn fingerprint(&mut self, volume: &str) -> Option<Fingerprint>;

    /// Rewrites the statistics page of each attached volume, where a node reads it as if from the
    /// volume's NVMe controller.
    ///
    /// # Errors
    /// I/O errors of the file system.
    fn tell_statistics(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the loop devices in use.
    fn loops(&self) -> Vec<LoopRecord>;
}

/// The kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// No data at all.
    None,
    /// Images; a symbolic link to the image serves as the device.
    File,
    /// Images behind loop devices. Needs root.
    Loop,
}

/// Opens the devices of a mode in a state directory.
///
/// # Errors
/// Fails if the state directory cannot hold the devices.
pub fn open(mode: Mode, state_dir: &Path) -> io::Result<Box<dyn Devices>> {
    Ok(match mode {
        Mode::None => Box::new(NoDevices::new(state_dir)?),
        Mode::File => Box::new(FileDevices::new(state_dir)?),
        Mode::Loop => Box::new(LoopDevices::new(state_dir)?),
    })
}

/// Returns a device name without `/dev/`, as a single path component.
fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    name.rsplit('/').next().unwrap_or(name)
}

/// Removes a file. A missing file is no error.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
