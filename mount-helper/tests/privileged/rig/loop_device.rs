//! A disk of the rig.
use super::shell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A loop device over `<volume>.img`, with its node in the rig's device directory.
pub(crate) struct Attached {
    pub(crate) image: PathBuf,
    /// Kernel's name, `loopN`.
    pub(crate) name: String,
    pub(super) node: PathBuf,
}

impl Attached {
    pub(crate) fn detach(self) {}

    /// The kernel's own node, outside of the rig.
    pub(crate) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Make the disk larger, as EC2 does.
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
        // Partitions keep a loop device from being given back whole.
        let _ = Command::new("partx").args(["-d", &self.path()]).output();
        for part in 1..=2 {
            let _ = fs::remove_file(format!("{}p{part}", self.node.display()));
        }
        let _ = Command::new("losetup").args(["-d", &self.path()]).output();
    }
}
