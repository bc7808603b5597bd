//! Resource ids, derived from the seed, and the checks of their form.

use crate::random::Random;

#[derive(Debug, Clone)]
pub(crate) struct Ids {
    seed: u64,
    random: Random,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, random: Random::new(seed, "ids") }
    }

    /// Issues an id: the prefix, a hyphen and 17 lower-case hexadecimal digits, of which the first
    /// is 0, as in EC2's ids in practice, and the last four are a check.
    pub(crate) fn issue(&mut self, prefix: &str) -> String {
        let body = format!("{prefix}-0{}", self.random.hex(12));
        let check = Random::new(self.seed, &body).hex(4);
        body + &check
    }

    /// Returns a request id in the form of a UUID. A request id is not a resource id, so it does
    /// not advance the issuer.
    pub(crate) fn request_id(random: &mut Random) -> String {
        let h = random.hex(32);
        format!("{}-{}-4{}-a{}-{}", &h[..8], &h[8..12], &h[13..16], &h[17..20], &h[20..32])
    }
}

/// Returns whether `id` has the form of an EC2 id with this prefix: 8 or 17 lower-case hexadecimal
/// digits.
///
/// EC2's own ids have an unpublished check structure. One case is known, and refused here too: all
/// zeros.
pub(crate) fn well_formed(id: &str, prefix: &str) -> bool {
    let Some(digits) = id.strip_prefix(prefix).and_then(|r| r.strip_prefix('-')) else {
        return false;
    };
    matches!(digits.len(), 8 | 17)
        && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        && digits.bytes().any(|b| b != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_ids_are_valid_unique_and_seeded() {
        let mut a = Ids::new(9);
        let mut b = Ids::new(9);
        let first: Vec<String> = (0..1000).map(|_| a.issue("vol")).collect();
        assert!(first.iter().all(|id| well_formed(id, "vol")));
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 1000);
        assert_eq!(first[0], b.issue("vol"));
    }

    #[test]
    fn malformed_or_all_zero_ids_are_rejected() {
        for (id, good) in [
            ("vol-0123456789abcdef0", true),
            ("vol-1a2b3c4d", true),
            ("vol-00000000000000000", false),
            ("vol-0123456789ABCDEF0", false),
            ("vol-012345", false),
            ("snap-0123456789abcdef0", false),
            ("bad", false),
            ("vol-", false),
            ("", false),
        ] {
            assert_eq!(well_formed(id, "vol"), good, "{id}");
        }
    }
}
