//! A directory for sparse disks of any size.
use crate::rig::{Rig, copy_sparse, shell, sparse_file, text};
use ebs_csi_wire::VolumeId;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory. It is on its own XFS where the rig's directory cannot hold a file of 80 TiB.
pub(super) struct Space {
    directory: PathBuf,
    mounted: bool,
}

impl Space {
    pub(super) fn new(rig: &Rig, large: bool) -> Self {
        let directory = rig.path("volumes");
        let probe = fs::File::create(directory.join("probe")).expect("create");
        let takes_any = probe.set_len(80 << 40).is_ok();
        fs::remove_file(directory.join("probe")).expect("remove");
        if takes_any || !large {
            return Self { directory, mounted: false };
        }
        let image = rig.path("outside/space");
        sparse_file(&image, 512 << 30);
        shell("mkfs.xfs", &["-q", "-l", "size=64m", text(&image)]);
        let directory = rig.path("space");
        fs::create_dir(&directory).expect("mkdir");
        // Space that a disk no longer needs is freed at once.
        shell("mount", &["-o", "loop,discard", text(&image), text(&directory)]);
        Self { directory, mounted: true }
    }

    pub(super) fn disk(&self, volume: &VolumeId, bytes: u64) -> Result<Image, String> {
        let image = Image(self.directory.join(format!("{volume}.img")));
        let file = fs::File::create(&image.0);
        file.and_then(|file| file.set_len(bytes)).map_err(|e| e.to_string())?;
        Ok(image)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(&self.directory).output();
        }
    }
}

pub(super) struct Image(PathBuf);

impl Image {
    pub(super) fn copy(of: &Path, volume: &VolumeId) -> Self {
        let image = Self(of.with_file_name(format!("{volume}.img")));
        copy_sparse(of, &image.0);
        image
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
