//! A published volume as its pod sees it: data, size, mounts.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::mount_table;

const FILE: &str = "data.bin";
/// Where the data of a raw device begins, in bytes.
const OFFSET: u64 = 64 << 20;

/// Returns a mebibyte of data that depends only on `seed`.
fn bytes(seed: &str) -> Vec<u8> {
    let digest = Sha256::digest(seed.as_bytes());
    let seed = digest.iter().fold(0_u64, |seed, byte| seed << 8 | u64::from(*byte));
    let mut all = vec![0; 1 << 20];
    fastrand::Rng::with_seed(seed).fill(&mut all);
    all
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the data of `seed` to a directory or a raw device and syncs it. Returns a digest.
pub fn write(path: &Path, seed: &str) -> io::Result<String> {
    let bytes = bytes(seed);
    if path.is_dir() {
        let mut file = File::create(path.join(FILE))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        File::open(path)?.sync_all()?;
    } else {
        let device = File::options().write(true).open(path)?;
        device.write_all_at(&bytes, OFFSET)?;
        device.sync_all()?;
    }
    Ok(digest(&bytes))
}

/// Verifies that the data of `seed` is in a directory or on a raw device. Returns the digest.
pub fn find(path: &Path, seed: &str) -> io::Result<String> {
    let found = if path.is_dir() {
        fs::read(path.join(FILE))?
    } else {
        let mut found = vec![0; 1 << 20];
        File::open(path)?.read_exact_at(&mut found, OFFSET)?;
        found
    };
    if found != bytes(seed) {
        return Err(io::Error::other(format!("{} does not hold what was written", path.display())));
    }
    Ok(digest(&found))
}

/// Returns the size of the mounted file system or of the device in bytes.
pub fn size(path: &Path) -> io::Result<i64> {
    let bytes = if path.is_dir() {
        let found = rustix::fs::statvfs(path)?;
        found.f_blocks.saturating_mul(found.f_frsize)
    } else {
        File::open(path)?.seek(SeekFrom::End(0))?
    };
    i64::try_from(bytes).map_err(io::Error::other)
}

/// Returns the type and the source of the file system that is mounted at `path`.
pub fn mounted_at(path: &Path) -> io::Result<(String, String)> {
    let mounts = mount_table::of("self")?;
    let mount = mounts.iter().rev().find(|mount| mount.point == path);
    let nothing = || io::Error::other(format!("nothing is mounted at {}", path.display()));
    let mount = mount.ok_or_else(nothing)?;
    Ok((mount.kind.clone(), mount.source.to_string_lossy().into_owned()))
}

/// Returns the mount points beneath `directory`, without `directory` itself.
pub fn mounts_beneath(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut points: Vec<_> =
        mount_table::beneath(directory)?.into_iter().map(|mount| mount.point).collect();
    points.retain(|point| point != directory);
    Ok(points)
}
