//! The IOPS to ask EC2 for. StorageClasses name rates that not every size allows, and EC2 refuses
//! rates that it does not allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, IopsQuestion, MaxIops};
use ebs_csi_proto::GiB;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::request::tags::TagSettings;
use crate::request::topology::Placement;

/// How long EC2's answer about a zone's maximum stays valid.
const ANSWER_TTL: Duration = Duration::from_secs(12 * 3600);
/// How long a question without an answer is not asked again.
const NO_ANSWER_TTL: Duration = Duration::from_secs(300);

/// The limits of EC2 for one volume type. Zero means no limit of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IopsLimits {
    /// The least IOPS that may be requested.
    pub minimum: u32,
    /// The most IOPS that may be requested, whatever the size.
    pub maximum: u32,
    /// The most IOPS for each GiB.
    pub per_gib: u32,
}

impl IopsLimits {
    /// No limits, for types that take no IOPS: EC2's own error is the clearest there.
    pub(crate) const NONE: Self = Self { minimum: 0, maximum: 0, per_gib: 0 };

    /// Returns the documented limits of a type (EBS volume types page), which are so conservative
    /// that every zone allows them. A zone may allow more: a look-up may replace `maximum` in what
    /// [`IopsLimits::of`] returns.
    pub(crate) fn of(volume_type: &str) -> Self {
        let (minimum, maximum, per_gib) = match volume_type.to_ascii_lowercase().as_str() {
            "io1" => (100, 64_000, 50),
            "io2" => (100, 256_000, 1_000),
            "gp3" => (3_000, 16_000, 500),
            _ => return Self::NONE,
        };
        Self { minimum, maximum, per_gib }
    }

    /// Returns whether a request for `wanted` IOPS depends on a maximum that differs between zones.
    fn needs_zone_maximum(self, wanted: u32) -> bool {
        self.maximum > 0 && wanted > self.maximum
    }

    /// Returns the IOPS to ask EC2 for.
    ///
    /// A rate below the minimum is raised only when `raise` is set (`allowAutoIOPSPerGBIncrease`);
    /// a rate above a maximum is lowered. The limit by size is never below the minimum: gp3 gives
    /// its 3,000 to the smallest volume.
    pub(crate) fn fit(self, wanted: u32, size: GiB, raise: bool) -> u32 {
        let mut iops = wanted;
        if raise && iops < self.minimum {
            iops = self.minimum;
        }
        if self.maximum > 0 && iops > self.maximum {
            iops = self.maximum;
        }
        if self.per_gib > 0 {
            iops = iops.min(self.per_gib.saturating_mul(size.0).max(self.minimum));
        }
        iops
    }
}

/// The zones' maxima. EC2 is asked only when a request exceeds what every zone allows, and once for
/// all callers.
#[derive(Clone, Debug)]
pub(crate) struct IopsCeilings {
    ec2: Ec2,
    tags: Arc<TagSettings>,
    answers: Arc<Mutex<HashMap<IopsQuestion, (MaxIops, Instant)>>>,
}

impl IopsCeilings {
    pub(crate) fn new(ec2: Ec2, tags: Arc<TagSettings>) -> Self {
        Self { ec2, tags, answers: Arc::default() }
    }

    /// Returns the limits for a request of `wanted` IOPS of a volume of this type and place.
    pub(crate) async fn limits(
        &self,
        call: &Call,
        kind: &str,
        placement: &Placement,
        wanted: u32,
    ) -> IopsLimits {
        let documented = IopsLimits::of(kind);
        if !documented.needs_zone_maximum(wanted) {
            return documented;
        }
        let question = IopsQuestion {
            kind: kind.to_owned(),
            zone: placement.zone.clone(),
            zone_id: placement.zone_id.clone(),
            outpost_arn: placement.outpost.clone(),
            tags: self.tags.identity(),
        };
        // Held while EC2 is asked, so that callers that come meanwhile use the answer.
        let mut answers = self.answers.lock().await;
        let now = Instant::now();
        answers.retain(|_, (_, until)| *until > now);
        self.ec2.count_cache_lookup("iops_maximum", answers.contains_key(&question));
        let answer = match answers.get(&question) {
            Some((answer, _)) => *answer,
            None => {
                let answer = self.ec2.max_iops(call, &question).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "the most IOPS of a zone were not learnt; the documented maximum is used");
                    MaxIops::NotSaid
                });
                let ttl = match answer {
                    MaxIops::NotSaid => NO_ANSWER_TTL,
                    MaxIops::AtMost(_) | MaxIops::NotSettable => ANSWER_TTL,
                };
                answers.insert(question, (answer, now + ttl));
                answer
            }
        };
        match answer {
            MaxIops::AtMost(maximum) => IopsLimits { maximum, ..documented },
            MaxIops::NotSettable => IopsLimits::NONE,
            MaxIops::NotSaid => documented,
        }
    }
}

/// Returns the IOPS of `iopsPerGB` for a size; `None` beyond EC2's 32-bit numbers.
pub(crate) fn per_gib(rate: u32, size: GiB) -> Option<u32> {
    rate.checked_mul(size.0).filter(|iops| i32::try_from(*iops).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn iops_are_fitted_as_in_go_driver() {
        // type, wanted, GiB, raise, result
        let rows = [
            ("gp3", 3_000, 4, false, 3_000),
            ("gp3", 5_000, 4, false, 3_000),
            ("gp3", 3_001, 1, false, 3_000),
            ("gp3", 5_000, 6, false, 3_000),
            ("gp3", 5_000, 8, false, 4_000),
            ("gp3", 100, 100, false, 100),
            ("gp3", 100, 100, true, 3_000),
            ("gp3", 20_000, 100, false, 16_000),
            ("io1", 50, 4, true, 100),
            ("io1", 10_000, 10, false, 500),
            ("io1", 1_000, 1, false, 100),
            ("io2", 300_000, 1_000, false, 256_000),
            ("IO2", 300_000, 10, false, 10_000),
            ("gp2", 9, 1, true, 9),
            ("st1", 1_000_000, 1, true, 1_000_000),
        ];
        for (kind, wanted, size, raise, want) in rows {
            assert_eq!(
                IopsLimits::of(kind).fit(wanted, GiB(size), raise),
                want,
                "{kind} {wanted} at {size} GiB"
            );
        }
    }

    #[test]
    fn only_iops_above_documented_maximum_need_zone_maximum() {
        assert!(!IopsLimits::of("gp3").needs_zone_maximum(16_000));
        assert!(IopsLimits::of("gp3").needs_zone_maximum(16_001));
        assert!(!IopsLimits::of("gp2").needs_zone_maximum(1_000_000));
    }

    #[test]
    fn overflowing_iops_product_is_none() {
        assert_eq!(per_gib(3, GiB(100)), Some(300));
        assert_eq!(per_gib(u32::MAX, GiB(2)), None);
        assert_eq!(per_gib(1 << 16, GiB(1 << 15)), None);
    }

    proptest! {
        #[test]
        fn fitting_twice_changes_nothing(wanted in 0u32..2_000_000, size in 1u32..65_536, raise: bool, kind in "io1|io2|gp3|gp2") {
            let limits = IopsLimits::of(&kind);
            let once = limits.fit(wanted, GiB(size), raise);
            prop_assert_eq!(limits.fit(once, GiB(size), raise), once);
            prop_assert!(limits.maximum == 0 || once <= limits.maximum.max(limits.minimum));
        }
    }
}
