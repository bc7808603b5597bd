//! Test data that is written in one place and must be found in another.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{DemoError, ensure};
use crate::procfs::mount_table;

/// Name of the file that is written into each file system.
const FILE: &str = "data.bin";

/// Returns a mebibyte of data that depends only on `seed`.
fn bytes(seed: &str) -> Vec<u8> {
    let start = Sha256::digest(seed.as_bytes());
    let mut state =
        start.iter().fold(1_u64, |state, byte| state.wrapping_mul(257) ^ u64::from(*byte)) | 1;
    let mut all = Vec::with_capacity(1 << 20);
    while all.len() < 1 << 20 {
        // xorshift64: the data differs for each seed, and generating it takes no time compared with
        // the disk.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes test data into the directory of a mounted volume and syncs it. Returns a digest.
pub(super) fn write_file(directory: &Path, seed: &str) -> Result<String, DemoError> {
    let bytes = bytes(seed);
    let path = directory.join(FILE);
    let mut file = File::create(&path)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(digest(&bytes))
}

/// Verifies that the data of `seed` is there. Returns the digest.
pub(super) fn find_file(directory: &Path, seed: &str) -> Result<String, DemoError> {
    let found = fs::read(directory.join(FILE))?;
    ensure(found == bytes(seed), || {
        format!("{} does not hold what was written", directory.join(FILE).display())
    })?;
    Ok(digest(&found))
}

/// Where the data of a raw device begins, in bytes.
const OFFSET: u64 = 64 << 20;

/// Writes test data to a raw device and syncs it. Returns a digest.
pub(super) fn write_device(device: &Path, seed: &str) -> Result<String, DemoError> {
    let bytes = bytes(seed);
    let file = File::options().write(true).open(device)?;
    file.write_all_at(&bytes, OFFSET)?;
    file.sync_all()?;
    Ok(digest(&bytes))
}

/// Verifies that the data of `seed` is on a raw device. Returns the digest.
pub(super) fn find_device(device: &Path, seed: &str) -> Result<String, DemoError> {
    let mut found = vec![0; 1 << 20];
    File::open(device)?.read_exact_at(&mut found, OFFSET)?;
    ensure(found == bytes(seed), || {
        format!("{} does not hold what was written", device.display())
    })?;
    Ok(digest(&found))
}

/// Verifies that `path` is a block device of `size` bytes.
pub(super) fn is_device(path: &Path, size: i64) -> Result<(), DemoError> {
    let kind = fs::metadata(path)?.file_type();
    ensure(kind.is_block_device(), || format!("{} is not a block device", path.display()))?;
    let end = File::open(path)?.seek(SeekFrom::End(0))?;
    ensure(i64::try_from(end) == Ok(size), || {
        format!("{} has {end} bytes, not {size}", path.display())
    })
}

/// Verifies that a file system of `kind` is mounted at `path`. Returns the source of the mount.
pub(super) fn is_mounted(path: &Path, kind: &str) -> Result<String, DemoError> {
    let nothing = || DemoError::Unverified(format!("nothing is mounted at {}", path.display()));
    let mounts = mount_table::of("self")?;
    let mount = mounts.iter().rev().find(|mount| mount.point == path).ok_or_else(nothing)?;
    ensure(mount.kind == kind, || format!("{} is {}, not {kind}", path.display(), mount.kind))?;
    Ok(mount.source.to_string_lossy().into_owned())
}

/// Verifies that nothing is mounted beneath `directory` except `directory` itself.
pub(super) fn nothing_mounted(directory: &Path) -> Result<(), DemoError> {
    let left: Vec<_> = mount_table::beneath(directory)?
        .into_iter()
        .filter(|mount| mount.point != directory)
        .map(|mount| mount.point.display().to_string())
        .collect();
    ensure(left.is_empty(), || format!("still mounted: {}", left.join(", ")))
}

/// Returns the size of the mounted file system in bytes.
pub(super) fn capacity(path: &Path) -> Result<i64, DemoError> {
    let found = rustix::fs::statvfs(path).map_err(std::io::Error::from)?;
    Ok(i64::try_from(found.f_blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}
