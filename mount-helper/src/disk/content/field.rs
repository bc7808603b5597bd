//! Numbers at fixed offsets of a byte slice, and the checksum over it. A field outside the slice
//! reads as zero, so that no length has to be trusted.

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slice) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        out.copy_from_slice(slice);
    }
    out
}

pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(take(bytes, at))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(take(bytes, at))
}

pub(super) fn id(bytes: &[u8], at: usize) -> [u8; 16] {
    take(bytes, at)
}

/// Continues the CRC-32C (polynomial 0x1EDC6F41, reflected) `seed` over `bytes`, as ext4 and XFS
/// use it, without any inversion. A superblock has about a
/// kilobyte, too little for a look-up table to be worth its code.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = seed;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc >>= 1;
            if low == 1 {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_published_check_value() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }
}
