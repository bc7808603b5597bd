//! Reads numbers at fixed offsets of a byte slice. A field outside the slice reads as zero, so that
//! no length has to be trusted.

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slice) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        out.copy_from_slice(slice);
    }
    out
}

/// Reads a little-endian number of 16 bits.
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

/// Reads a little-endian number of 32 bits.
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

/// Reads a big-endian number of 16 bits.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(take(bytes, at))
}

/// Reads a big-endian number of 32 bits.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

/// Reads a big-endian number of 64 bits.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(take(bytes, at))
}

/// Reads sixteen bytes unchanged.
pub(super) fn id(bytes: &[u8], at: usize) -> [u8; 16] {
    take(bytes, at)
}
