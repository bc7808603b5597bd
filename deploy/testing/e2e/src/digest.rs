//! A digest of a whole disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Returns a digest of a whole file or device. Skips the holes of a sparse file.
pub fn of_disk(path: &Path) -> String {
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
        let empty = of_disk(file.path());
        disk.write_all_at(&[0; 4096], 8 << 20).unwrap();
        assert_eq!(of_disk(file.path()), empty, "zeros are no content");
        for at in [0, 511, 3000, 33 << 20, (64 << 20) - 1] {
            disk.write_all_at(b"x", at).unwrap();
            assert_ne!(of_disk(file.path()), empty, "byte {at}");
            disk.write_all_at(b"\0", at).unwrap();
            assert_eq!(of_disk(file.path()), empty, "byte {at}");
        }
        disk.set_len(65 << 20).unwrap();
        assert_ne!(of_disk(file.path()), empty, "the size counts");
    }
}
