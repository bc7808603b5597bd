//! Numbers at fixed places of a byte slice. A place outside the slice reads as zero: no length is trusted.

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slice) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        out.copy_from_slice(slice);
    }
    out
}

/// Little-endian, 16 bits.
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

/// Little-endian, 32 bits.
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

/// Big-endian, 16 bits.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(take(bytes, at))
}

/// Big-endian, 32 bits.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

/// Big-endian, 64 bits.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(take(bytes, at))
}

/// Sixteen bytes as they stand.
pub(super) fn id(bytes: &[u8], at: usize) -> [u8; 16] {
    take(bytes, at)
}
