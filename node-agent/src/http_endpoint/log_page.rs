//! EBS statistics of NVMe disks: log page 0xD0, which EC2 provides on each volume's controller. All
//! numbers are little endian.

/// Size of the page, in bytes.
const PAGE: usize = 4096;
/// The first bytes of the page.
const MAGIC: u32 = 0x3c23_b510;
/// Offset of the counters.
const COUNTERS: usize = 8;
/// Offset of the histograms.
const READ_HISTOGRAM: usize = 512;
const WRITE_HISTOGRAM: usize = 2056;
/// Most bins in a histogram.
const BINS: usize = 64;
/// Bytes of a bin: lower bound, upper bound, count, padding.
const BIN: usize = 24;

/// The counts of a volume's controller since the volume was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// The counters in the order of the page, which `NUMBERS` of the metrics explains.
    pub(crate) counters: [u64; 11],
    /// The reads, then the writes, by their latency.
    pub(crate) latency: [Vec<Bin>; 2],
}

/// The number of operations whose latency was between two bounds, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) upper_us: u64,
    /// Operations above the lower and up to the upper bound.
    pub(crate) count: u32,
}

/// A page that is not a valid statistics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a statistics page has 4096 bytes, this one {0}")]
    Length(usize),
    #[error("a statistics page begins with 0x3c23b510, this one with {0:#010x}")]
    Magic(u32),
    #[error("a histogram has at most 64 bins, this one {0}")]
    Bins(u64),
}

impl Statistics {
    pub(crate) fn parse(page: &[u8]) -> Result<Self, Malformed> {
        let page: &[u8; PAGE] = page.try_into().map_err(|_| Malformed::Length(page.len()))?;
        let magic = u32_at(page, 0);
        if magic != MAGIC {
            return Err(Malformed::Magic(magic));
        }
        Ok(Self {
            counters: std::array::from_fn(|index| u64_at(page, COUNTERS + index * 8)),
            latency: [histogram(page, READ_HISTOGRAM)?, histogram(page, WRITE_HISTOGRAM)?],
        })
    }
}

fn histogram(page: &[u8; PAGE], at: usize) -> Result<Vec<Bin>, Malformed> {
    let stated = u64_at(page, at);
    let bins =
        usize::try_from(stated).ok().filter(|bins| *bins <= BINS).ok_or(Malformed::Bins(stated))?;
    Ok((0..bins)
        .map(|index| {
            let bin = at + 8 + index * BIN;
            Bin { upper_us: u64_at(page, bin + 8), count: u32_at(page, bin + 16) }
        })
        .collect())
}

fn u64_at(page: &[u8; PAGE], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| page[at + index]))
}

fn u32_at(page: &[u8; PAGE], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| page[at + index]))
}

/// Returns a page for tests: counters 1 to 11, two bins for reads, none for writes.
#[cfg(test)]
pub(crate) fn example() -> Vec<u8> {
    let bins = [(500, 7), (2_000_000, 3)].map(|(upper_us, count)| Bin { upper_us, count });
    let counters = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    crate::fuzz_inputs::page(&Statistics { counters, latency: [bins.to_vec(), Vec::new()] })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_nvme_statistics_field_is_parsed() {
        let read = Statistics::parse(&example()).unwrap();
        assert_eq!(read.counters, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let bins = [(500, 7), (2_000_000, 3)].map(|(upper_us, count)| Bin { upper_us, count });
        assert_eq!(read.latency, [bins.to_vec(), Vec::new()]);
    }

    #[test]
    fn wrong_length_magic_or_bin_count_is_refused() {
        assert_eq!(Statistics::parse(&[]), Err(Malformed::Length(0)));
        assert_eq!(Statistics::parse(&example()[..4095]), Err(Malformed::Length(4095)));
        assert_eq!(Statistics::parse(&[0; PAGE]), Err(Malformed::Magic(0)));
        let mut page = example();
        page[WRITE_HISTOGRAM] = 65;
        assert_eq!(Statistics::parse(&page), Err(Malformed::Bins(65)));
        page[WRITE_HISTOGRAM] = 64;
        assert_eq!(Statistics::parse(&page).unwrap().latency[1].len(), 64);
    }

    proptest! {
        #[test]
        fn arbitrary_page_with_valid_magic_never_panics(noise in proptest::collection::vec(any::<u8>(), PAGE - 4)) {
            let page = [&MAGIC.to_le_bytes()[..], &noise].concat();
            let _ = Statistics::parse(&page);
        }
    }
}
