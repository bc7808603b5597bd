//! How an attached volume appears on an instance: not at all, or as a loop device.

mod clean;
mod image;
mod loop_device;
mod statistics_page;
mod sys;

pub(crate) use clean::clean;
pub(crate) use image::Fingerprint;
pub(crate) use loop_device::LoopDevices;

use std::io;
use std::path::Path;

/// The kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceMode {
    /// No data at all.
    None,
    /// Images behind loop devices. Needs root.
    Loop,
}

/// Removes a file. A missing file is no error.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
