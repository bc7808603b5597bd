//! Marks an offline growth of ext on the disk itself, so that any node that finds the growth
//! unfinished can recognise it (`deploy/docs/adr/0017-growth-cut-short.md`).
//!
//! The full check right before the growth records a future time instead of the present one: the
//! next second whose lowest bits are derived from the file system's identifier. `resize2fs` leaves
//! that time as it is, every other check overwrites it, and a mount for writing increments the
//! mount count.

use crate::facts::ExtFacts;

/// Bits of a time that hold the mark: they span less than a day, the clock difference that e2fsck
/// tolerates.
const BITS: u32 = 16;

/// Returns the mark of the file system with this identifier.
fn mark(uuid: [u8; 16]) -> u16 {
    // FNV-1a, folded to 16 bits: two file systems rarely have the same mark.
    let hash = uuid
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_le_bytes();
    u16::from_le_bytes([a ^ c, b ^ d])
}

/// Returns the time that a check before a growth of the file system records: `now` or up to 18
/// hours later. Both are in seconds since 1970.
#[must_use]
pub fn time(uuid: [u8; 16], now: u64) -> u64 {
    let period = 1_u64 << BITS;
    let marked = now / period * period + u64::from(mark(uuid));
    if marked < now { marked + period } else { marked }
}

/// Returns whether a growth of this file system, which was fully sound before, began and never
/// finished, and nobody has mounted the file system for writing or checked it since.
#[must_use]
pub fn was_cut_short(facts: &ExtFacts) -> bool {
    let low = facts.last_check & ((1 << BITS) - 1);
    !facts.clean && !facts.mounted && !facts.needs_recovery && low == u64::from(mark(facts.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_check_time_is_near_and_carries_mark() {
        for now in [0, 7, 0xffff, 1_763_800_000, 1 << 33] {
            let time = time([5; 16], now);
            assert!((now..now + (1 << BITS)).contains(&time), "{now}");
            assert_eq!(time & 0xffff, u64::from(mark([5; 16])));
        }
        let marked = time([5; 16], 0);
        assert_eq!(time([5; 16], marked), marked, "the present time has the mark");
    }

    /// Another release of the driver may find the growth unfinished.
    #[test]
    fn growth_mark_of_identifier_never_changes() {
        assert_eq!(mark([5; 16]), 0x24d5);
        let counting = std::array::from_fn(|index| index as u8);
        assert_eq!(mark(counting), 0x3aea);
    }

    #[test]
    fn growth_marks_rarely_collide_across_file_systems() {
        let of = |n: u8| mark([n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, n]);
        let marks: std::collections::BTreeSet<_> = (0..200).map(of).collect();
        assert!(marks.len() > 190, "{}", marks.len());
    }

    #[test]
    fn only_own_mark_shows_unfinished_growth() {
        let cut = ExtFacts {
            uuid: [5; 16],
            last_check: time([5; 16], 1_763_800_000),
            ..ExtFacts::default()
        };
        assert!(was_cut_short(&cut));
        type Change = fn(&mut ExtFacts);
        let changes: [Change; 5] = [
            |facts| facts.clean = true,
            |facts| facts.mounted = true,
            |facts| facts.needs_recovery = true,
            |facts| facts.uuid[15] = 6,
            |facts| facts.last_check += 1,
        ];
        for change in changes {
            let mut other = cut.clone();
            change(&mut other);
            assert!(!was_cut_short(&other), "{other:?}");
        }
    }
}
