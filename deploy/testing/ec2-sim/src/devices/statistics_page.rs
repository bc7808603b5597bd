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
    let Some(page) = page(&stat) else {
        return Err(io::Error::other(format!(
            "/sys/block/loop{number}/stat is not as the kernel documents it: {stat:?}"
        )));
    };
    // A reader of the page need not be in the group `disk`.
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path(node))?;
    file.write_all_at(&page, 0)
}

fn page(stat: &str) -> Option<Vec<u8>> {
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
    histogram(&mut page, READS, reads);
    histogram(&mut page, WRITES, writes);
    Some(page)
}

/// Writes a histogram with a single unbounded bin, because the kernel keeps none; the count of that
/// bin only grows.
fn histogram(page: &mut [u8], at: usize, counted: Counted) {
    put(page, at, 1);
    put(page, at + 16, u64::MAX);
    let count = u32::try_from(counted.operations).unwrap_or(u32::MAX);
    page[at + 24..at + 28].copy_from_slice(&count.to_le_bytes());
}

fn put(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(page: &[u8], at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&page[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn kernel_counters_land_at_their_page_offsets() {
        let stat = "      10        1       80        5       20        2      400       90        3      123      456        0        0        0        0        7        8\n";
        let page = page(stat).expect("a page");
        assert_eq!(page.len(), PAGE);
        assert_eq!(page[..4], MAGIC.to_le_bytes());
        let counters: Vec<u64> = (0..11).map(|index| at(&page, 8 + index * 8)).collect();
        assert_eq!(counters, [10, 20, 40_960, 204_800, 5_000, 90_000, 0, 0, 0, 0, 3]);
        for (start, operations) in [(READS, 10), (WRITES, 20)] {
            let numbers = [0, 8, 16, 24].map(|offset| at(&page, start + offset));
            assert_eq!(numbers, [1, 0, u64::MAX, operations]);
        }
    }

    #[test]
    fn malformed_kernel_stat_makes_no_page() {
        for stat in ["", "1 2 3", "a b c d e f g h i"] {
            assert_eq!(page(stat), None, "{stat:?}");
        }
        assert!(page("0 0 0 0 0 0 0 0 0").is_some());
    }
}
