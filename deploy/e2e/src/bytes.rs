//! Test data that is written in one place and must be found in another.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

const LENGTH: usize = 256 << 10;
/// The offset of the data on a raw device.
const OFFSET: u64 = 8 << 20;

/// Returns a quarter of a mebibyte of data that depends only on `seed`.
pub fn of(seed: &str) -> Vec<u8> {
    let mut block = Sha256::digest(seed.as_bytes()).to_vec();
    let mut all = Vec::with_capacity(LENGTH);
    while all.len() < LENGTH {
        block = Sha256::digest(&block).to_vec();
        all.extend_from_slice(&block);
    }
    all
}

/// Writes the data of `seed` to a published volume and syncs it.
pub fn write(target: &Path, block: bool, seed: &str) {
    let mut file = if block {
        let mut device =
            File::options().write(true).open(target).expect("the device can be opened");
        device.seek(SeekFrom::Start(OFFSET)).expect("seek");
        device
    } else {
        File::create(target.join("data.bin")).expect("a file can be made")
    };
    file.write_all(&of(seed)).expect("written");
    file.sync_all().expect("synced");
}

/// Verifies that the data of `seed` is on a published volume.
pub fn verify(target: &Path, block: bool, seed: &str) {
    let found = if block {
        let mut device = File::open(target).expect("the device can be opened");
        device.seek(SeekFrom::Start(OFFSET)).expect("seek");
        let mut found = vec![0; LENGTH];
        device.read_exact(&mut found).expect("read");
        found
    } else {
        std::fs::read(target.join("data.bin")).expect("the file is there")
    };
    assert!(found == of(seed), "{} does not hold what was written", target.display());
}

/// Returns a digest of a whole file or device. Skips the holes of a sparse file.
pub fn digest(path: &Path) -> String {
    use rustix::fs::{SeekFrom as Where, seek};
    let mut file = File::open(path).expect("the image can be opened");
    let mut digest = Sha256::new();
    let end = file.seek(SeekFrom::End(0)).expect("seek");
    digest.update(end.to_le_bytes());
    let mut at = 0;
    let mut buffer = vec![0; 1 << 20];
    // Only blocks that were written and are not zero count: an image may gain or lose holes without
    // a change of its content.
    while let Ok(data) = seek(&file, Where::Data(at)) {
        let hole = seek(&file, Where::Hole(data)).unwrap_or(end);
        file.seek(SeekFrom::Start(data)).expect("seek");
        at = data;
        while at < hole {
            let want = usize::try_from((hole - at).min(1 << 20)).expect("small");
            let got = file.read(&mut buffer[..want]).expect("read");
            if got == 0 {
                break;
            }
            for (index, block) in buffer[..got].chunks(512).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    digest.update((at + 512 * index as u64).to_le_bytes());
                    digest.update(block);
                }
            }
            at += got as u64;
        }
        if at >= end {
            break;
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn digest_covers_nonzero_bytes_and_size_not_holes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk = file.as_file();
        disk.set_len(64 << 20).unwrap();
        let empty = digest(file.path());
        disk.write_all_at(&[0; 4096], 8 << 20).unwrap();
        assert_eq!(digest(file.path()), empty, "zeros are no content");
        for at in [0, 511, 3000, 33 << 20, (64 << 20) - 1] {
            disk.write_all_at(b"x", at).unwrap();
            assert_ne!(digest(file.path()), empty, "byte {at}");
            disk.write_all_at(b"\0", at).unwrap();
            assert_eq!(digest(file.path()), empty, "byte {at}");
        }
        disk.set_len(65 << 20).unwrap();
        assert_ne!(digest(file.path()), empty, "the size counts");
    }
}
