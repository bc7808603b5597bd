//! Files as devices. They need no root, but nothing can be mounted.

use super::image::Images;
use super::{Devices, Fingerprint, LoopRecord, Release, Source, remove, short_name};
use std::io;
use std::path::{Path, PathBuf};

/// Devices whose attachments are symbolic links in the instance's device directory to the volume's
/// image.
#[derive(Debug)]
pub struct FileDevices {
    images: Images,
    dev: PathBuf,
}

impl FileDevices {
    /// Opens the devices of a state directory.
    ///
    /// # Errors
    /// Fails if the directories cannot be created.
    pub fn new(state_dir: &Path) -> io::Result<Self> {
        let dev = state_dir.join("dev");
        std::fs::create_dir_all(&dev)?;
        Ok(Self {
            images: Images::new(state_dir)?,
            dev,
        })
    }
}

impl Devices for FileDevices {
    fn mode(&self) -> &'static str {
        "file"
    }
    fn add_instance(&mut self, instance: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.dev.join(instance))
    }
    fn dev_dir(&self, instance: &str) -> Option<PathBuf> {
        Some(self.dev.join(instance))
    }
    fn create(&mut self, volume: &str, gib: u32, source: Source<'_>) -> io::Result<()> {
        self.images.create(volume, gib, source)
    }
    fn delete(&mut self, volume: &str) -> io::Result<()> {
        self.images.delete(volume)
    }
    fn snapshot(&mut self, volume: &str, snapshot: &str) -> io::Result<u64> {
        self.images.snapshot(volume, snapshot)
    }
    fn delete_snapshot(&mut self, snapshot: &str) -> io::Result<()> {
        self.images.delete_snapshot(snapshot)
    }
    fn attach(&mut self, volume: &str, instance: &str, name: &str) -> io::Result<()> {
        self.add_instance(instance)?;
        let link = self.dev.join(instance).join(short_name(name));
        remove(&link)?;
        std::os::unix::fs::symlink(format!("../../volumes/{volume}.img"), link)
    }
    fn release(&mut self, _: &str, instance: &str, name: &str, _: bool) -> io::Result<Release> {
        remove(&self.dev.join(instance).join(short_name(name)))?;
        Ok(Release::Released)
    }
    fn resize(&mut self, volume: &str, gib: u32) -> io::Result<()> {
        self.images.resize(volume, gib)
    }
    fn fingerprint(&mut self, volume: &str) -> Option<Fingerprint> {
        self.images.fingerprint(volume)
    }
    fn loops(&self) -> Vec<LoopRecord> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated attach and release calls succeed.
    #[test]
    fn device_link_exists_only_while_attached() {
        let dir = tempfile::tempdir().expect("dir");
        let mut d = FileDevices::new(dir.path()).expect("devices");
        d.create("vol-1", 1, Source::Blank).expect("create");
        for _ in 0..2 {
            d.attach("vol-1", "i-1", "/dev/xvdba").expect("attach");
        }
        let link = dir.path().join("dev/i-1/xvdba");
        assert_eq!(
            std::fs::metadata(&link).expect("through the link").len(),
            1 << 30
        );
        for _ in 0..2 {
            assert_eq!(
                d.release("vol-1", "i-1", "/dev/xvdba", false)
                    .expect("release"),
                Release::Released
            );
        }
        assert!(!link.exists());
    }
}
