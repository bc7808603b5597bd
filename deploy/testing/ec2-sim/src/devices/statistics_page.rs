//! The statistics that a volume's NVMe controller would return (EBS log page 0xD0), built from the
//! kernel's counters of the loop device.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The size of the page, in bytes.
const PAGE: usize = 4096;
const MAGIC: u32 = 0x3c23_b510;
const COUNTERS: usize = 8;
const READS: usize = 512;
const WRITES: usize = 2056;
/// Upper bounds of a histogram's bins, in microseconds.
const BINS: [u64; 5] = [100, 1_000, 10_000, 100_000, u64::MAX];

/// The kernel's counters of a disk (`Documentation/block/stat.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    operations: u64,
    sectors: u64,
    milliseconds: u64,
}

/// Returns the path of the page: beside the node in an instance's device directory, where a node
/// looks for the controller of a simulated disk.
pub(super) fn path(node: &Path) -> PathBuf {
    let mut path = node.as_os_str().to_owned();
    path.push(".0xd0");
    path.into()
}

/// Writes the page of the loop device of this number in place, so that a reader finds the old page
/// or the new one.
pub(super) fn write(node: &Path, number: u32) -> io::Result<()> {
    // The device was unbound meanwhile, so there is nothing to report.
    let Ok(stat) = std::fs::read_to_string(format!("/sys/block/loop{number}/stat")) else {
        return Ok(());
    };
    let mut options = OpenOptions::new();
    // A reader of the page need not be in the group `disk`.
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o644).open(path(node))?;
    let mut before = vec![0; PAGE];
    if file.metadata()?.len() > 0 {
        file.read_exact_at(&mut before, 0)?;
    }
    let Some(page) = page(&stat, &before) else {
        return Err(io::Error::other(format!(
            "/sys/block/loop{number}/stat is not as the kernel documents it: {stat:?}"
        )));
    };
    file.write_all_at(&page, 0)
}

/// Returns the page that follows the page `before`, which is zero at first.
fn page(stat: &str, before: &[u8]) -> Option<Vec<u8>> {
    let numbers: Vec<u64> =
        stat.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let of = |at: usize| {
        Some(Counted {
            operations: *numbers.get(at)?,
            sectors: *numbers.get(at + 2)?,
            milliseconds: *numbers.get(at + 3)?,
        })
    };
    let (reads, writes, waiting) = (of(0)?, of(4)?, *numbers.get(8)?);
    let mut page = vec![0; PAGE];
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    // The simulator has no performance limits of volumes or instances, so none was ever exceeded.
    let counters = [
        reads.operations,
        writes.operations,
        reads.sectors * 512,
        writes.sectors * 512,
        reads.milliseconds * 1000,
        writes.milliseconds * 1000,
        0,
        0,
        0,
        0,
        waiting,
    ];
    for (index, value) in counters.into_iter().enumerate() {
        put(&mut page, COUNTERS + index * 8, value);
    }
    for (at, index, counted) in [(READS, 0, reads), (WRITES, 1, writes)] {
        let earlier = |index: usize| get(before, COUNTERS + index * 8);
        let operations = counted.operations.saturating_sub(earlier(index));
        let microseconds = (counted.milliseconds * 1000).saturating_sub(earlier(index + 4));
        histogram(&mut page, before, at, operations, microseconds);
    }
    Some(page)
}

/// Adds operations to the histogram of the page before: the kernel keeps none, so that all new ones
/// count as having taken their mean.
fn histogram(page: &mut [u8], before: &[u8], at: usize, operations: u64, microseconds: u64) {
    put(page, at, BINS.len() as u64);
    let mean = microseconds / operations.max(1);
    let (mut lower, mut bin) = (0, at + 8);
    for upper in BINS {
        let is_theirs = mean < upper && mean >= lower;
        let more = if is_theirs { operations } else { 0 };
        put(page, bin, lower);
        put(page, bin + 8, upper);
        put(page, bin + 16, get(before, bin + 16) + more);
        (lower, bin) = (upper, bin + 24);
    }
}

fn put(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| page[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_land_at_their_page_offsets() {
        let stat = "      10        1       80        5       20        2      400       90        3      123      456        0        0        0        0        7        8\n";
        let page = page(stat, &[0; PAGE]).expect("a page");
        assert_eq!(page.len(), PAGE);
        assert_eq!(page[..4], MAGIC.to_le_bytes());
        let counters: Vec<u64> = (0..11).map(|index| get(&page, 8 + index * 8)).collect();
        assert_eq!(counters, [10, 20, 40_960, 204_800, 5_000, 90_000, 0, 0, 0, 0, 3]);
        // The reads took half a millisecond, the writes 4.5.
        for (start, filled, operations) in [(READS, 1, 10), (WRITES, 2, 20)] {
            let bin = start + 8 + filled * 24;
            let numbers = [start, bin, bin + 8, bin + 16].map(|offset| get(&page, offset));
            assert_eq!(numbers, [5, BINS[filled - 1], BINS[filled], operations]);
            assert_eq!(counts(&page, start).iter().sum::<u64>(), operations);
        }
    }

    fn counts(page: &[u8], start: usize) -> [u64; 5] {
        std::array::from_fn(|index| get(page, start + 24 + index * 24))
    }

    #[test]
    fn new_operations_are_added_to_their_bin() {
        let mut now = vec![0; PAGE];
        for (operations, milliseconds, want) in [
            (10, 5, [0, 10, 0, 0, 0]),
            (10, 5, [0, 10, 0, 0, 0]),
            (12, 45, [0, 10, 0, 2, 0]),
            (13, 10_045, [0, 10, 0, 2, 1]),
            (20, 10_045, [7, 10, 0, 2, 1]),
        ] {
            let stat = format!("{operations} 0 0 {milliseconds} 0 0 0 0 0");
            now = page(&stat, &now).expect("a page");
            assert_eq!(counts(&now, READS), want);
            assert_eq!(counts(&now, WRITES), [0; 5]);
        }
    }

    #[test]
    fn malformed_kernel_stat_makes_no_page() {
        for stat in ["", "1 2 3", "a b c d e f g h i"] {
            assert_eq!(page(stat, &[0; PAGE]), None, "{stat:?}");
        }
        assert!(page("0 0 0 0 0 0 0 0 0", &[0; PAGE]).is_some());
    }
}
