//! Recognises a file system whose first superblock is gone, by a backup superblock at the place
//! where the tools put the first backup.
use super::{ext, xfs};
use crate::disk::direct_read::{ALIGNMENT, Reader};
use ebs_csi_policy::blank;
use ebs_csi_wire::Signature;
use rustix::fd::AsFd;
use rustix::io::Errno;

/// First ext backup for blocks of 1, 2 and 4 KiB: offset of an aligned read, in bytes, and offset
/// of the backup within that read.
const EXT_BACKUPS: [(u64, usize); 3] = [(8 << 20, 1024), (32 << 20, 0), (128 << 20, 0)];

/// Searches for a backup on a disk of `size` bytes that is neither blank nor recognised.
pub(super) fn find(
    reader: &mut Reader<'_, impl AsFd>,
    size: u64,
) -> Result<Option<Signature>, Errno> {
    for (at, into) in EXT_BACKUPS {
        if at + ALIGNMENT as u64 > size {
            continue;
        }
        let block = reader.read(at, ALIGNMENT as u64)?;
        if let Some(level) = block.get(into..).and_then(ext::first_backup) {
            return Ok(Some(level.signature()));
        }
    }
    // XFS puts a whole superblock at the start of each allocation group, and the areas of a blank
    // disk include these places.
    let is_superblock = |block: &[u8]| xfs::read(block).is_some_and(|facts| facts.sound);
    for (start, length) in blank::ranges(size) {
        let found = reader.find(start, length, |_, piece| {
            piece.chunks(ALIGNMENT).any(is_superblock).then_some(Signature::Xfs)
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
