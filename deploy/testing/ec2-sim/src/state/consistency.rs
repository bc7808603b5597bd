//! Stale reads: several replicas, each of which learns of a change after its own delay.

use crate::random::Random;
use crate::time::{Distribution, Millis};
use crate::wire::Params;
use serde::{Deserialize, Serialize};

/// The consistency setting. Changes always act on the current state; only Describe calls are stale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsistencySetting {
    /// The number of replicas, one of which answers each read at random; 0: reads show the current
    /// state.
    pub(crate) replicas: u32,
    /// The delay until a replica shows a change.
    pub(crate) lag: Distribution,
    /// The same delay, for the volumes in DescribeInstances.
    pub(crate) mapping_lag: Distribution,
    /// The additional delay for a call that filters by tags.
    pub(crate) tag_lag: Distribution,
}

impl Default for ConsistencySetting {
    fn default() -> Self {
        let fixed = |fixed_ms| Distribution::Fixed { fixed_ms };
        Self { replicas: 0, lag: fixed(500), mapping_lag: fixed(500), tag_lag: fixed(500) }
    }
}

/// The chooser of each read's view.
#[derive(Debug)]
pub(crate) struct Consistency {
    pub setting: ConsistencySetting,
    seed: u64,
    random: Random,
}

/// The state that one read sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    seed: u64,
    setting: ConsistencySetting,
    mapping: bool,
    tags: bool,
    least_ms: u64,
}

impl Consistency {
    pub(crate) fn new(setting: ConsistencySetting, seed: u64) -> Self {
        Self { setting, seed, random: Random::new(seed, "replicas") }
    }

    /// Returns how long old versions stay visible, in milliseconds; 0: never.
    pub(crate) fn keep_ms(&self, stale_ms: u64) -> u64 {
        let s = &self.setting;
        let lag = if s.replicas == 0 {
            0
        } else {
            s.lag.most().max(s.mapping_lag.most()) + s.tag_lag.most()
        };
        lag.max(stale_ms)
    }

    /// Returns the view of a Describe call, or `None` for the current state. `stale_ms` is the
    /// minimum age that a fault demands.
    pub(crate) fn view(&mut self, action: &str, params: &Params, stale_ms: u64) -> Option<View> {
        if self.setting.replicas == 0 && stale_ms == 0 {
            return None;
        }
        let replica = match self.setting.replicas {
            0 => 0,
            n => self.random.bits() % u64::from(n),
        };
        Some(View {
            seed: self.seed ^ replica.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            setting: self.setting,
            mapping: action == "DescribeInstances",
            tags: params
                .pairs()
                .any(|(k, v)| k.ends_with(".Name") && (v.starts_with("tag:") || v == "tag-key")),
            least_ms: stale_ms,
        })
    }
}

impl View {
    /// Returns how many milliseconds after `at` this view shows a change that a resource had at
    /// `at`.
    pub(crate) fn lag(&self, id: &str, at: Millis) -> u64 {
        if self.setting.replicas == 0 {
            return self.least_ms;
        }
        // A replica learns of a change once, so every read of the change makes the same draw.
        let mut random = Random::new(self.seed ^ at.0.cast_unsigned(), id);
        let main = if self.mapping && id.starts_with("vol-") {
            self.setting.mapping_lag
        } else {
            self.setting.lag
        };
        let more = if self.tags { self.setting.tag_lag.sample(&mut random) } else { 0 };
        (main.sample(&mut random) + more).max(self.least_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_lag_is_stable_and_differs_per_replica() {
        let setting: ConsistencySetting = serde_json::from_str(
            r#"{"replicas":8,"lag":{"uniform_ms":[0,1000]},"tag_lag":{"fixed_ms":5000}}"#,
        )
        .expect("setting");
        let mut c = Consistency::new(setting, 1);
        assert_eq!(c.keep_ms(0), 6_000);
        let none = Params::parse(b"");
        let lags: std::collections::BTreeSet<u64> = (0..100)
            .map(|_| c.view("DescribeVolumes", &none, 0).expect("view"))
            .inspect(|v| assert_eq!(v.lag("vol-1", Millis(7)), v.lag("vol-1", Millis(7))))
            .map(|v| v.lag("vol-1", Millis(7)))
            .collect();
        assert!(lags.len() > 4 && lags.iter().all(|l| *l <= 1000), "{lags:?}");
        let tags = Params::parse(b"Filter.1.Name=tag:a&Filter.1.Value.1=b");
        let view = c.view("DescribeVolumes", &tags, 0).expect("view");
        assert!(view.lag("vol-1", Millis(7)) >= 5_000);
    }
}
