//! A disk of the rig.
use super::shell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A loop device over `<volume>.img`, with its node in the rig's device directory.
pub(crate) struct Attached {
    pub(crate) image: PathBuf,
    /// The kernel's name, `loopN`.
    pub(crate) name: String,
    pub(super) node: PathBuf,
}

impl Attached {
    pub(crate) fn detach(self) {}

    /// Returns the path of the kernel's own device node, outside of the rig.
    pub(crate) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Enlarges the disk, as EC2 does.
    pub(crate) fn resize(&self, bytes: u64) {
        fs::File::options()
            .write(true)
            .open(&self.image)
            .expect("image")
            .set_len(bytes)
            .expect("set_len");
        shell("losetup", &["-c", &self.path()]);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.node);
        // The kernel does not release a loop device completely while it has partitions.
        let _ = Command::new("partx").args(["-d", &self.path()]).output();
        for part in 1..=2 {
            let _ = fs::remove_file(format!("{}p{part}", self.node.display()));
        }
        let _ = Command::new("losetup").args(["-d", &self.path()]).output();
    }
}
