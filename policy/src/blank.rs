//! What must be zero before a disk counts as blank.

/// Where an area begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaStart {
    /// Offset from the start of the disk.
    Start,
    /// Offset back from the end of the disk.
    End,
    /// Offset back from each of the three inner quarters of the disk.
    Quarter,
    /// Offset back from the middle of each of this many equal parts of the disk.
    Part(u32),
}

/// A row of `mounts.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The point from which `offset` is measured.
    pub from: AreaStart,
    /// Distance from that point, in bytes; a multiple of 4096.
    pub offset: u64,
    /// Length in bytes; a multiple of 4096.
    pub length: u64,
    /// The data that would be in this area.
    pub why: &'static str,
}

mod compiled {
    use super::{Area, AreaStart};
    include!(concat!(env!("OUT_DIR"), "/blank.rs"));
}

/// Every row.
pub const AREAS: &[Area] = compiled::AREAS;

/// Returns the parts of a disk of `size` bytes that must be zero: start and length in bytes, in
/// ascending order, without overlap. The parts are aligned to 4096 bytes, except for a last part
/// that ends with the disk.
#[must_use]
pub fn ranges(size: u64) -> Vec<(u64, u64)> {
    const ALIGNMENT: u64 = 4096;
    let mut parts: Vec<(u64, u64)> = AREAS
        .iter()
        .flat_map(|area| {
            let starts = match area.from {
                AreaStart::Start => vec![area.offset],
                AreaStart::End => vec![size.saturating_sub(area.offset)],
                AreaStart::Quarter => {
                    (1..4).map(|quarter| (size / 4 * quarter).saturating_sub(area.offset)).collect()
                }
                AreaStart::Part(parts) => (0..u64::from(parts))
                    .map(|part| size / (2 * u64::from(parts)) * (2 * part + 1))
                    .map(|middle| middle.saturating_sub(area.offset))
                    .collect(),
            };
            starts.into_iter().map(|start| {
                let start = start / ALIGNMENT * ALIGNMENT;
                // The end of the disk may lie beyond the last whole block.
                let end = start.saturating_add(area.length + ALIGNMENT).min(size);
                (start, end)
            })
        })
        .filter(|(start, end)| start < end)
        .collect();
    parts.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in parts {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = (*last).max(end),
            _ => merged.push((start, end)),
        }
    }
    merged.into_iter().map(|(start, end)| (start, end - start)).collect()
}
