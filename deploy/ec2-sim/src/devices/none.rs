//! No devices: the control plane alone.

use super::{Devices, Fingerprint, LoopRecord, Release, Source};
use std::io;
use std::path::{Path, PathBuf};

/// Devices without data. Instances still have an empty device directory, so that paths to the
/// directory stay valid.
#[derive(Debug, Default)]
pub struct NoDevices {
    dir: Option<PathBuf>,
}

impl NoDevices {
    /// Creates the parent of the device directories in a state directory.
    ///
    /// # Errors
    /// Fails if the parent directory cannot be created.
    pub fn new(state_dir: &Path) -> io::Result<Self> {
        let dir = state_dir.join("dev");
        std::fs::create_dir_all(&dir)?;
        Ok(Self { dir: Some(dir) })
    }

    /// Creates devices without any directory, for use inside a process.
    pub fn in_memory() -> Self {
        Self::default()
    }
}

impl Devices for NoDevices {
    fn mode(&self) -> &'static str {
        "none"
    }
    fn add_instance(&mut self, instance: &str) -> io::Result<()> {
        match self.dev_dir(instance) {
            Some(dir) => std::fs::create_dir_all(dir),
            None => Ok(()),
        }
    }
    fn dev_dir(&self, instance: &str) -> Option<PathBuf> {
        self.dir.as_ref().map(|d| d.join(instance))
    }
    fn create(&mut self, _: &str, _: u32, _: Source<'_>) -> io::Result<()> {
        Ok(())
    }
    fn delete(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn snapshot(&mut self, _: &str, _: &str) -> io::Result<u64> {
        Ok(0)
    }
    fn delete_snapshot(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn attach(&mut self, _: &str, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn release(&mut self, _: &str, _: &str, _: &str, _: bool) -> io::Result<Release> {
        Ok(Release::Released)
    }
    fn resize(&mut self, _: &str, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn fingerprint(&mut self, _: &str) -> Option<Fingerprint> {
        None
    }
    fn loops(&self) -> Vec<LoopRecord> {
        Vec::new()
    }
}
