//! How an attached volume appears on an instance: not at all, or as a loop device.

mod clean;
mod image;
mod loop_device;
mod statistics_page;
mod sys;

pub(crate) use clean::clean;
pub(crate) use image::Fingerprint;
pub(crate) use loop_device::LoopRecord;

use image::Images;
use loop_device::LoopDevices;
use std::io;
use std::path::{Path, PathBuf};

/// The initial bytes of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    Blank,
    Snapshot(&'a str),
    Volume(&'a str),
}

/// Whether an instance has released a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    Released,
    /// The instance holds the device: mounted, or open.
    Held,
}

/// The simulated devices. Every method can be repeated: after an error the simulator calls the
/// method again. The default methods are those of volumes without data.
pub(crate) trait Devices: Send {
    fn images(&self) -> Option<&Images> {
        None
    }

    fn add_instance(&mut self, _instance: &str) -> io::Result<()> {
        Ok(())
    }

    fn dev_dir(&self, _instance: &str) -> Option<PathBuf> {
        None
    }

    fn create(&mut self, volume: &str, gib: u32, source: Source<'_>) -> io::Result<()> {
        self.images().map_or(Ok(()), |images| images.create(volume, gib, source))
    }

    fn delete(&mut self, volume: &str) -> io::Result<()> {
        self.images().map_or(Ok(()), |images| images.delete(volume))
    }

    /// Copies the bytes of volumes, each to its snapshot: pairs of a volume and a snapshot.
    fn snapshot(&mut self, members: &[(String, String)]) -> io::Result<()> {
        self.images().map_or(Ok(()), |images| images.snapshot(members))
    }

    fn delete_snapshot(&mut self, snapshot: &str) -> io::Result<()> {
        self.images().map_or(Ok(()), |images| images.delete_snapshot(snapshot))
    }

    fn attach(&mut self, _volume: &str, _instance: &str, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Removes a volume from an instance, unless the instance holds the volume and `force` is
    /// false.
    fn release(
        &mut self,
        _volume: &str,
        _instance: &str,
        _name: &str,
        _force: bool,
    ) -> io::Result<Release> {
        Ok(Release::Released)
    }

    fn check_size(&self, gib: u32) -> io::Result<()> {
        self.images().map_or(Ok(()), |images| images.check_size(gib))
    }

    /// Makes a volume larger, even while the volume is attached.
    fn resize(&mut self, _volume: &str, _gib: u32) -> io::Result<()> {
        Ok(())
    }

    /// Returns which file system a volume holds, if any.
    fn fingerprint(&self, volume: &str) -> Option<Fingerprint> {
        self.images()?.fingerprint(volume)
    }

    /// Rewrites the statistics page of each attached volume, where a node reads it as if from the
    /// volume's NVMe controller.
    fn write_statistics_pages(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn loops(&self) -> Vec<LoopRecord> {
        Vec::new()
    }
}

/// Volumes without data: the control plane alone.
pub(crate) struct NoDevices;

impl Devices for NoDevices {}

/// The kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceMode {
    /// No data at all.
    None,
    /// Images behind loop devices. Needs root.
    Loop,
}

pub(crate) fn open(mode: DeviceMode, state_dir: &Path) -> io::Result<Box<dyn Devices>> {
    Ok(match mode {
        DeviceMode::None => Box::new(NoDevices),
        DeviceMode::Loop => Box::new(LoopDevices::new(state_dir)?),
    })
}

/// Removes a file. A missing file is no error.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
