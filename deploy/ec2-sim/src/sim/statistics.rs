//! Counts and durations per action.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A histogram with eight buckets per doubling: exact enough for a median, and without memory per
/// value.
#[derive(Debug, Clone, Default)]
struct Histogram {
    counts: BTreeMap<u32, u64>,
    total: u64,
}

/// The number of buckets per doubling.
const STEPS: f64 = 8.0;

impl Histogram {
    fn add(&mut self, value: f64) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates, and the value is not negative"
        )]
        let bucket = ((value.max(0.0) + 1.0).log2() * STEPS).round() as u32;
        *self.counts.entry(bucket).or_default() += 1;
        self.total += 1;
    }

    fn median(&self) -> f64 {
        let wanted = self.total.div_ceil(2);
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= wanted {
                let value = (f64::from(*bucket) / STEPS).exp2() - 1.0;
                return (value * 100.0).round() / 100.0;
            }
        }
        0.0
    }
}

#[derive(Debug, Clone, Default)]
struct Action {
    calls: u64,
    ok: u64,
    throttled: u64,
    faulted: u64,
    errors: BTreeMap<String, u64>,
    server_ms: Histogram,
}

#[derive(Debug, Clone, Serialize)]
pub struct Ended<'a> {
    /// The error code; `None`: success.
    pub code: Option<&'a str>,
    pub throttled: bool,
    pub faulted: bool,
    /// The milliseconds until the reply: the latency model's delay plus the simulator's own work.
    pub server_ms: f64,
}

#[derive(Debug, Default)]
pub struct Statistics {
    actions: BTreeMap<String, Action>,
    imds_credential_reads: u64,
}

impl Statistics {
    pub fn add(&mut self, action: &str, ended: &Ended<'_>) {
        let a = self.actions.entry(action.to_owned()).or_default();
        a.calls += 1;
        a.throttled += u64::from(ended.throttled);
        a.faulted += u64::from(ended.faulted);
        match ended.code {
            None => a.ok += 1,
            Some(code) => *a.errors.entry(code.to_owned()).or_default() += 1,
        }
        a.server_ms.add(ended.server_ms);
    }

    pub fn add_imds(&mut self, credentials: bool) {
        self.imds_credential_reads += u64::from(credentials);
    }

    /// Returns the statistics as the control API shows them.
    pub fn json(&self) -> Value {
        let actions: BTreeMap<&str, Value> = self
            .actions
            .iter()
            .map(|(name, a)| {
                let v = json!({
                    "calls": a.calls, "ok": a.ok, "throttled": a.throttled, "faulted": a.faulted,
                    "errors": a.errors, "server_ms": {"p50": a.server_ms.median()},
                });
                (name.as_str(), v)
            })
            .collect();
        let sum = |f: fn(&Action) -> u64| self.actions.values().map(f).sum::<u64>();
        json!({
            "actions": actions,
            "totals": {
                "calls": sum(|a| a.calls), "ok": sum(|a| a.ok), "throttled": sum(|a| a.throttled),
                "faulted": sum(|a| a.faulted),
            },
            "imds": {"credential_reads": self.imds_credential_reads},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_median_is_within_12_percent() {
        let mut h = Histogram::default();
        for v in 1..=1000 {
            h.add(f64::from(v));
        }
        let median = h.median();
        assert!((450.0..560.0).contains(&median), "{median}");
        assert!(Histogram::default().median().abs() < f64::EPSILON);
    }

    #[test]
    fn calls_are_counted_by_action_and_error_code() {
        let mut s = Statistics::default();
        let end = |code, throttled| Ended {
            code,
            throttled,
            faulted: false,
            server_ms: 2.0,
        };
        s.add("CreateVolume", &end(None, false));
        s.add("CreateVolume", &end(Some("RequestLimitExceeded"), true));
        s.add(
            "DescribeVolumes",
            &end(Some("InvalidVolume.NotFound"), false),
        );
        let v = s.json();
        assert_eq!(v["actions"]["CreateVolume"]["calls"], 2);
        assert_eq!(
            v["actions"]["CreateVolume"]["errors"]["RequestLimitExceeded"],
            1
        );
        assert_eq!(v["totals"]["throttled"], 1);
    }
}
