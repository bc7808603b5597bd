//! CRC-32C (polynomial 0x1EDC6F41, reflected), as ext4 and XFS use it.

/// Continues the checksum `seed` over `bytes`, without any inversion. A superblock has about a
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
