//! Sizes. EC2 counts in GiB, CSI in bytes; only this module rounds.

use std::fmt;

use crate::csi;
use crate::failure::{Condition, Failure};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A size in GiB (2^30 bytes), as EC2's `Size` parameters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GiB(pub u32);

/// 2^30.
const GIB: u64 = 1 << 30;

impl GiB {
    /// Size of a volume whose request gives none.
    pub const DEFAULT: Self = Self(100);

    /// Returns the same size in bytes.
    pub fn to_bytes(self) -> Bytes {
        Bytes(u64::from(self.0) * GIB)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Display for GiB {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GiB", self.0)
    }
}

/// A checked `CapacityRange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CapacityRange {
    /// At least this much; 0 when not given.
    pub required: Bytes,
    /// At most this much, when given.
    pub limit: Option<Bytes>,
}

impl CapacityRange {
    /// Checks a range.
    ///
    /// # Errors
    /// [`Condition::InvalidField`] for negative numbers; [`Condition::CapacityOutOfRange`] for a
    /// limit below the requirement.
    pub fn parse(wire: &csi::CapacityRange) -> Result<Self, Failure> {
        let read = |field: &str, value: i64| {
            u64::try_from(value)
                .map_err(|_| Failure::invalid(field, format!("{value} is negative; give bytes")))
        };
        let required = Bytes(read("capacity_range.required_bytes", wire.required_bytes)?);
        let limit = match read("capacity_range.limit_bytes", wire.limit_bytes)? {
            0 => None,
            bytes => Some(Bytes(bytes)),
        };
        if let Some(limit) = limit.filter(|limit| *limit < required) {
            let (limit, required) = (limit.0, required.0);
            return Err(Failure::new(
                Condition::CapacityOutOfRange,
                format!("capacity_range: limit_bytes {limit} is below required_bytes {required}"),
            ));
        }
        Ok(Self { required, limit })
    }

    /// Returns the volume size to request from EC2: the requirement rounded up to GiB, or `default`
    /// without a requirement, lowered to the limit.
    ///
    /// # Errors
    /// [`Condition::CapacityOutOfRange`] when no whole number of GiB lies within the range.
    pub fn size_or(self, default: GiB) -> Result<GiB, Failure> {
        let wanted = if self.required.0 == 0 {
            match self.limit {
                Some(limit) => default.min(GiB(u32::try_from(limit.0 / GIB).unwrap_or(u32::MAX))),
                None => default,
            }
        } else {
            // EC2's sizes have 32 bits and a sign.
            let gib = i32::try_from(self.required.0.div_ceil(GIB));
            gib.map(|gib| GiB(gib.unsigned_abs())).map_err(|_| {
                Failure::new(
                    Condition::CapacityOutOfRange,
                    format!(
                        "capacity_range.required_bytes: {} is larger than EC2 can express",
                        self.required
                    ),
                )
            })?
        };
        if wanted.0 == 0 || self.limit.is_some_and(|limit| wanted.to_bytes() > limit) {
            return Err(Failure::new(
                Condition::CapacityOutOfRange,
                format!(
                    "capacity_range: EBS sizes are whole GiB and none lies between required_bytes {} and limit_bytes {}; raise the limit to {}",
                    self.required.0,
                    self.limit.map_or(0, |l| l.0),
                    wanted.max(GiB(1)).to_bytes().0
                ),
            ));
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_gib_within_the_limit() {
        let rows: [(i64, i64, Result<u32, Condition>); 10] = [
            (0, 0, Ok(100)),
            (1, 0, Ok(1)),
            (1 << 30, 0, Ok(1)),
            ((1 << 30) + 1, 0, Ok(2)),
            ((1 << 30) + 1, 1 << 31, Ok(2)),
            ((1 << 30) + 1, (1 << 30) + 2, Err(Condition::CapacityOutOfRange)),
            (0, 1 << 33, Ok(8)),
            (0, 1, Err(Condition::CapacityOutOfRange)),
            (i64::MAX, 0, Err(Condition::CapacityOutOfRange)),
            (-1, 0, Err(Condition::InvalidField)),
        ];
        for (required_bytes, limit_bytes, expected) in rows {
            let found = CapacityRange::parse(&csi::CapacityRange { required_bytes, limit_bytes })
                .and_then(|range| range.size_or(GiB::DEFAULT))
                .map(|gib| gib.0)
                .map_err(|failure| failure.condition());
            assert_eq!(found, expected, "required {required_bytes} limit {limit_bytes}");
        }
    }

    #[test]
    fn limit_below_required_bytes_is_out_of_range() {
        let wire = csi::CapacityRange { required_bytes: 2, limit_bytes: 1 };
        let failure = CapacityRange::parse(&wire).unwrap_err();
        assert_eq!(failure.condition(), Condition::CapacityOutOfRange);
    }
}
