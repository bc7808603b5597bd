//! Points in simulated time, the clock, and the durations of operations.

use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

/// Milliseconds since the Unix epoch, in simulated time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    /// Returns the time `ms` milliseconds later, or the last time that can be printed.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)).min(LAST))
    }

    /// Returns the milliseconds from `earlier` to `self`, or 0 if `self` is earlier.
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Returns the time with the milliseconds cut off, as in replies to create calls.
    pub(crate) fn whole_second(self) -> Self {
        Self(self.0 - self.0.rem_euclid(1000))
    }

    /// Returns the time in ISO 8601 with milliseconds, as EC2 writes it:
    /// `2026-09-25T19:46:13.000Z`.
    pub fn iso(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => t.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            Err(_) => "9999-12-30T22:00:00.000Z".to_owned(),
        }
    }

    /// Parses an ISO 8601 time.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }
}

/// 9999-12-30: up to here, ISO 8601 with a four-digit year can represent the time in every time
/// zone.
const LAST: i64 = 253_402_207_200_000;

pub(crate) const DAY_MS: u64 = 24 * 3600 * 1000;

/// The clock of a running server: the machine's time at the start, then a clock that never goes
/// back.
#[derive(Debug)]
pub(crate) struct Clock {
    base: Millis,
    since: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Millis(jiff::Timestamp::now().as_millisecond()), since: Instant::now() }
    }

    pub(crate) fn now(&self) -> Millis {
        let passed = self.since.elapsed().as_millis();
        self.base.plus(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

/// A distribution of durations in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Distribution {
    Fixed {
        fixed_ms: u64,
    },
    Uniform {
        uniform_ms: [u64; 2],
    },
    /// A log-normal distribution, given by its median and its 99th percentile.
    LogNormal {
        p50_ms: u64,
        p99_ms: u64,
    },
}

/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874;

impl Distribution {
    /// Returns the longest duration that can be drawn, in milliseconds.
    pub(crate) fn most(&self) -> u64 {
        match *self {
            Self::Fixed { fixed_ms } => fixed_ms,
            Self::Uniform { uniform_ms: [a, b] } => a.max(b),
            Self::LogNormal { p50_ms, p99_ms } => p50_ms.max(p99_ms).saturating_mul(3),
        }
    }

    pub(crate) fn sample(&self, random: &mut Random) -> u64 {
        match *self {
            Self::Fixed { fixed_ms } => fixed_ms,
            Self::Uniform { uniform_ms: [a, b] } => {
                let (low, high) = (a.min(b), a.max(b));
                low + random.bits() % (high - low).saturating_add(1).max(1)
            }
            Self::LogNormal { p50_ms, p99_ms } => {
                if p50_ms == 0 {
                    return 0;
                }
                let median = p50_ms as f64;
                let sigma = (p99_ms.max(p50_ms) as f64 / median).ln() / Z99;
                // The value is positive, and the cast saturates.
                let ms = (median * (sigma * random.normal()).exp()).round() as u64;
                // A tail beyond three times the 99th percentile would only make a run look stuck.
                ms.min(self.most())
            }
        }
    }
}

const fn fixed(fixed_ms: u64) -> Distribution {
    Distribution::Fixed { fixed_ms }
}

const fn spread(p50_ms: u64, p99_ms: u64) -> Distribution {
    Distribution::LogNormal { p50_ms, p99_ms }
}

/// The items of the model, each with its value in profile `fast` and in profile `real`. The values
/// of `real` were measured or documented for the real service, except those of the copy and of the
/// archive tier, which are guesses.
const ITEMS: &[(&str, Distribution, Distribution)] = &[
    ("api_read", fixed(2), spread(400, 1_500)),
    ("api_write", fixed(2), spread(400, 1_500)),
    ("volume_create", fixed(30), spread(1_000, 4_000)),
    ("volume_create_from_snapshot", fixed(50), spread(3_000, 10_000)),
    ("volume_copy", fixed(80), spread(5_000, 60_000)),
    ("volume_delete", fixed(20), spread(1_000, 5_000)),
    ("attach", fixed(50), spread(1_500, 5_000)),
    ("detach", fixed(50), spread(2_000, 8_000)),
    ("modify", fixed(40), spread(1_000, 10_000)),
    ("modify_complete", fixed(60), fixed(1_000)),
    ("modify_complete_per_tib", fixed(0), fixed(6 * 3_600_000)),
    ("snapshot", fixed(100), spread(45_000, 120_000)),
    ("snapshot_archive", fixed(100), fixed(24 * 3_600_000)),
    ("snapshot_restore", fixed(100), fixed(72 * 3_600_000)),
    // 300 MiB/s: 1 GiB in 3.4 s.
    ("initialize_per_gib", fixed(5), fixed(3_413)),
    ("instance_start", fixed(50), spread(15_000, 40_000)),
    ("instance_stop", fixed(50), spread(20_000, 60_000)),
    ("instance_terminate", fixed(50), spread(20_000, 60_000)),
];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default)]
    pub(crate) api: BTreeMap<String, Distribution>,
    #[serde(flatten)]
    pub(crate) items: BTreeMap<String, Distribution>,
}

/// The durations of operations: a distribution per API action and per state change.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    profile: String,
    api: BTreeMap<String, Distribution>,
    #[serde(flatten)]
    items: BTreeMap<String, Distribution>,
    #[serde(skip)]
    random: Random,
}

impl Latency {
    pub fn new(profile: &str, seed: u64) -> Result<Self, String> {
        let mut model = Self {
            profile: String::new(),
            api: BTreeMap::new(),
            items: BTreeMap::new(),
            random: Random::new(seed, "latency"),
        };
        model.change(&LatencyChange {
            profile: Some(profile.to_owned()),
            ..LatencyChange::default()
        })?;
        Ok(model)
    }

    /// Applies a change. A refused change changes nothing; the error says why.
    pub fn change(&mut self, change: &LatencyChange) -> Result<(), String> {
        if let Some(bad) = change.items.keys().find(|k| ITEMS.iter().all(|(n, ..)| n != k)) {
            return Err(format!(
                "there is no latency item {bad:?}; the items are listed in README.md, as api_read or attach"
            ));
        }
        if let Some(profile) = &change.profile {
            for (item, fast, real) in ITEMS {
                let value = match profile.as_str() {
                    "instant" => fixed(0),
                    "fast" => *fast,
                    "real" => *real,
                    _ => {
                        return Err(format!(
                            "there is no latency profile {profile:?}; the profiles are instant, fast and real"
                        ));
                    }
                };
                self.items.insert((*item).to_owned(), value);
            }
            self.api.clear();
            self.profile.clone_from(profile);
        }
        self.items.extend(change.items.iter().map(|(k, v)| (k.clone(), *v)));
        self.api.extend(change.api.iter().map(|(k, v)| (k.clone(), *v)));
        Ok(())
    }

    /// Draws a duration for an item, in milliseconds.
    pub(crate) fn sample(&mut self, item: &str) -> u64 {
        match self.items.get(item) {
            Some(d) => d.sample(&mut self.random),
            None => 0,
        }
    }

    /// Draws the time to an action's reply, in milliseconds.
    pub(crate) fn api(&mut self, action: &str) -> u64 {
        if let Some(d) = self.api.get(action) {
            return d.sample(&mut self.random);
        }
        let read = action.starts_with("Describe") || action.starts_with("Get");
        self.sample(if read { "api_read" } else { "api_write" })
    }

    /// Draws a duration that grows with the size: `item` per TiB.
    pub(crate) fn per_tib(&mut self, item: &str, gib: u32) -> u64 {
        self.sample(item).saturating_mul(u64::from(gib)) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_timestamps_parse_and_print_with_milliseconds() {
        let t = Millis::parse("2026-09-25T19:46:13Z").expect("parse");
        assert_eq!(t.iso(), "2026-09-25T19:46:13.000Z");
        assert_eq!(t.plus(5).iso(), "2026-09-25T19:46:13.005Z");
        assert_eq!(t.plus(5).whole_second(), t);
        assert_eq!(Millis::parse("yesterday"), None);
    }

    #[test]
    fn adding_never_overflows() {
        let end = Millis(0).plus(u64::MAX);
        assert_eq!(end.plus(u64::MAX), end);
        assert!(end.iso().starts_with("9999-"));
        assert_eq!(Millis(5).since(Millis(9)), 0);
    }

    #[test]
    fn log_normal_samples_match_median_and_p99() {
        let d = spread(1_000, 4_000);
        let mut r = Random::new(5, "t");
        let mut v: Vec<u64> = (0..20_000).map(|_| d.sample(&mut r)).collect();
        v.sort_unstable();
        assert!((950..1_050).contains(&v[10_000]), "{}", v[10_000]);
        assert!((3_600..4_400).contains(&v[19_800]), "{}", v[19_800]);
    }

    #[test]
    fn uniform_stays_in_its_bounds_whatever_their_order() {
        let mut r = Random::new(5, "t");
        for bounds in [[3, 7], [7, 3], [4, 4], [0, u64::MAX]] {
            let d = Distribution::Uniform { uniform_ms: bounds };
            for _ in 0..100 {
                let v = d.sample(&mut r);
                assert!(bounds.iter().min() <= Some(&v) && Some(&v) <= bounds.iter().max());
            }
        }
    }

    #[test]
    fn latency_profiles_and_items_reject_unknown_names() {
        let mut l = Latency::new("instant", 1).expect("instant");
        assert_eq!((l.sample("attach"), l.api("CreateVolume")), (0, 0));
        let change: LatencyChange = serde_json::from_str(
            r#"{"attach":{"fixed_ms":7},"api":{"CreateVolume":{"fixed_ms":9}}}"#,
        )
        .expect("json");
        l.change(&change).expect("change");
        assert_eq!((l.sample("attach"), l.api("CreateVolume"), l.api("DeleteVolume")), (7, 9, 0));
        let bad: LatencyChange = serde_json::from_str(r#"{"atach":{"fixed_ms":7}}"#).expect("json");
        assert!(l.change(&bad).is_err());
        assert!(Latency::new("slow", 1).is_err());
    }
}
