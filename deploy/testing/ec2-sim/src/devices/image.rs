//! Volume and snapshot images: sparse files under the state directory.

use super::{remove, sys};
use crate::state::resources::Origin;
use rustix::fs::{SeekFrom, seek};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;

#[derive(Debug, Clone)]
pub(crate) struct Images {
    volumes: PathBuf,
    snapshots: PathBuf,
    /// Whether the volumes' directory is a subvolume of btrfs.
    pub(super) is_subvolume: bool,
}

/// The identity of the file system in an image, which changes when the file system is made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// `ext4`, `xfs` or `btrfs`.
    pub kind: &'static str,
    /// The file system's id, plus the creation time if the format records one.
    pub identity: String,
}

impl Images {
    pub(super) fn new(state_dir: &Path) -> io::Result<Self> {
        let snapshots = state_dir.join("snapshots");
        std::fs::create_dir_all(&snapshots)?;
        let volumes = state_dir.join("volumes");
        let is_subvolume = sys::create_subvolume(&File::open(state_dir)?, "volumes").is_ok();
        std::fs::create_dir_all(&volumes)?;
        Ok(Self { volumes, snapshots, is_subvolume })
    }

    pub(super) fn volume(&self, id: &str) -> PathBuf {
        self.volumes.join(format!("{id}.img"))
    }

    fn snapshot_path(&self, id: &str) -> PathBuf {
        self.snapshots.join(format!("{id}.img"))
    }

    /// Creates a volume's image. Replaces an existing image, which belongs to a request that was
    /// never answered.
    pub(crate) fn create(&self, volume: &str, gib: u32, origin: &Origin) -> io::Result<()> {
        self.check_size(gib)?;
        let file = create(&self.volume(volume))?;
        match origin {
            Origin::Blank => {}
            Origin::Snapshot(id) => copy(&self.snapshot_path(id), &file)?,
            Origin::Volume(id) => copy(&self.volume(id), &file)?,
        }
        file.set_len(u64::from(gib) * GIB)
    }

    /// Checks that the file system of the images can hold one of this size: ext4 with blocks of
    /// 4 KiB holds files of less than 16 TiB.
    pub(crate) fn check_size(&self, gib: u32) -> io::Result<()> {
        let path = self.volumes.join("size-check");
        let checked = create(&path)?.set_len(u64::from(gib) * GIB);
        remove(&path)?;
        checked.map_err(|error| {
            let place = self.volumes.display();
            let what = format!("the file system of {place} holds no file of {gib} GiB: {error}");
            io::Error::new(error.kind(), what)
        })
    }

    /// Copies the current bytes of volumes, each to its snapshot. A root volume has no bytes. On
    /// btrfs the bytes of several volumes are those of one moment, as far as the writers had
    /// flushed them.
    pub(super) fn snapshot(&self, members: &[(String, String)]) -> io::Result<()> {
        let cut = if self.is_subvolume && members.len() > 1 { Some(self.cut()?) } else { None };
        for (volume, snapshot) in members {
            let from = match &cut {
                Some(cut) => cut.directory.join(CUT).join(format!("{volume}.img")),
                None => self.volume(volume),
            };
            if from.exists() {
                copy(&from, &create(&self.snapshot_path(snapshot))?)?;
            }
        }
        Ok(())
    }

    /// Keeps the images of all volumes as they are now.
    fn cut(&self) -> io::Result<Cut<'_>> {
        let directory = &self.snapshots;
        remove_cut(directory)?;
        sys::snapshot_subvolume(&File::open(directory)?, CUT, &File::open(&self.volumes)?)?;
        Ok(Cut { directory })
    }

    pub(crate) fn delete(&self, volume: &str) -> io::Result<()> {
        remove(&self.volume(volume))
    }

    pub(crate) fn delete_snapshot(&self, snapshot: &str) -> io::Result<()> {
        remove(&self.snapshot_path(snapshot))
    }

    /// Makes a volume's image larger; ModifyVolume refuses a smaller size.
    pub(super) fn resize(&self, volume: &str, gib: u32) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.volume(volume))?;
        file.set_len(u64::from(gib) * GIB)
    }

    pub(crate) fn fingerprint(&self, volume: &str) -> Option<Fingerprint> {
        let file = File::open(self.volume(volume)).ok()?;
        let read = |offset: u64, n: usize| {
            let mut bytes = vec![0; n];
            file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
        };
        let hex = |b: &[u8]| b.iter().map(|x| format!("{x:02x}")).collect::<String>();
        // ext4: superblock at 1024, magic at 0x38, time of mkfs at 0x108, UUID at 0x68.
        let ext = read(1024, 0x110)?;
        if ext[0x38..0x3a] == [0x53, 0xef] {
            return Some(Fingerprint {
                kind: "ext4",
                identity: format!("{}@{}", hex(&ext[0x68..0x78]), hex(&ext[0x108..0x10c])),
            });
        }
        // xfs: magic at 0, UUID at 32.
        let xfs = read(0, 48)?;
        if &xfs[..4] == b"XFSB" {
            return Some(Fingerprint { kind: "xfs", identity: hex(&xfs[32..48]) });
        }
        // btrfs: superblock at 64 KiB, file system id at 0x20, magic at 0x40.
        let btrfs = read(65_536, 0x48)?;
        (&btrfs[0x40..0x48] == b"_BHRfS_M")
            .then(|| Fingerprint { kind: "btrfs", identity: hex(&btrfs[0x20..0x30]) })
    }
}

const CUT: &str = "cut";

/// The images of all volumes as they were at one moment.
struct Cut<'a> {
    directory: &'a Path,
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_cut(self.directory) {
            tracing::error!(%error, "the copies of all volumes could not be removed");
        }
    }
}

/// Removes the cut that is in the directory of the snapshots, if there is one.
pub(super) fn remove_cut(snapshots: &Path) -> io::Result<()> {
    if !snapshots.join(CUT).exists() {
        return Ok(());
    }
    sys::delete_subvolume(&File::open(snapshots)?, CUT)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Copies `from` to the empty file `to`: shares blocks if the file system can, otherwise copies the
/// data and leaves out the holes.
fn copy(from: &Path, to: &File) -> io::Result<()> {
    let from = File::open(from)?;
    if rustix::fs::ioctl_ficlone(to, &from).is_ok() {
        return Ok(());
    }
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut buffer = vec![0_u8; 1 << 20];
    let mut at = 0;
    while at < length {
        at = match seek(&from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // There is no data after `at`.
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let n = from.read_at(&mut buffer, at)?;
        // A written block of zeros stays a hole.
        if buffer[..n].iter().any(|b| *b != 0) {
            to.write_all_at(&buffer[..n], at)?;
        }
        at += (n as u64).max(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn images() -> (tempfile::TempDir, Images) {
        let dir = tempfile::tempdir().expect("dir");
        let images = Images::new(dir.path()).expect("images");
        (dir, images)
    }

    fn pair(volume: &str, snapshot: &str) -> (String, String) {
        (volume.to_owned(), snapshot.to_owned())
    }

    #[test]
    fn restored_snapshot_keeps_old_bytes_and_stays_sparse() {
        let (_dir, images) = images();
        images.create("vol-1", 1, &Origin::Blank).expect("create");
        let file = OpenOptions::new().write(true).open(images.volume("vol-1")).expect("open");
        file.write_all_at(b"before", 5 << 20).expect("write");
        images.snapshot(&[pair("vol-1", "snap-1")]).expect("snapshot");
        file.write_all_at(b"after!", 5 << 20).expect("write");
        images.create("vol-2", 2, &Origin::Snapshot("snap-1".to_owned())).expect("restore");
        let restored = File::open(images.volume("vol-2")).expect("open");
        let meta = restored.metadata().expect("metadata");
        assert_eq!(meta.len(), 2 << 30);
        assert!(meta.blocks() * 512 < 8 << 20, "sparse: {} blocks", meta.blocks());
        let mut bytes = [0; 6];
        restored.read_exact_at(&mut bytes, 5 << 20).expect("read");
        assert_eq!(&bytes, b"before");
        images.create("vol-3", 1, &Origin::Volume("vol-1".to_owned())).expect("copy");
        File::open(images.volume("vol-3"))
            .expect("open")
            .read_exact_at(&mut bytes, 5 << 20)
            .expect("read");
        assert_eq!(&bytes, b"after!");
    }

    #[test]
    fn file_system_fingerprint_changes_with_its_uuid() {
        let (_dir, images) = images();
        images.create("vol-1", 1, &Origin::Blank).expect("create");
        assert_eq!(images.fingerprint("vol-1"), None);
        let file = OpenOptions::new().write(true).open(images.volume("vol-1")).expect("open");
        file.write_all_at(b"XFSB", 0).expect("write");
        let first = images.fingerprint("vol-1").expect("xfs");
        file.write_all_at(b"another id", 32).expect("write");
        let second = images.fingerprint("vol-1").expect("xfs");
        assert_eq!(first.kind, "xfs");
        assert_ne!(first, second);
    }
}
