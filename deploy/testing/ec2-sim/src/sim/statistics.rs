//! Counts and durations per action.

use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// How many durations of an action are kept for the median.
const KEPT: usize = 10_000;

#[derive(Debug, Clone, Default)]
struct Action {
    calls: u64,
    ok: u64,
    throttled: u64,
    faulted: u64,
    errors: BTreeMap<String, u64>,
    /// The durations of the last calls, in milliseconds.
    server_ms: VecDeque<f64>,
}

/// What is counted of an answered call.
#[derive(Debug)]
pub struct EndedCall<'a> {
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
    pub fn add(&mut self, action: &str, ended: &EndedCall<'_>) {
        let a = self.actions.entry(action.to_owned()).or_default();
        a.calls += 1;
        a.throttled += u64::from(ended.throttled);
        a.faulted += u64::from(ended.faulted);
        match ended.code {
            None => a.ok += 1,
            Some(code) => *a.errors.entry(code.to_owned()).or_default() += 1,
        }
        if a.server_ms.len() == KEPT {
            a.server_ms.pop_front();
        }
        a.server_ms.push_back(ended.server_ms);
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
                    "errors": a.errors, "server_ms": {"p50": median(&a.server_ms)},
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

/// Returns the median, rounded to hundredths.
fn median(values: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    (middle * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_of_the_last_10000() {
        let mut s = Statistics::default();
        for server_ms in [5.0, 1.0, 3.0].repeat(KEPT).into_iter().chain([7.126; KEPT / 2 + 1]) {
            let ended = EndedCall { code: None, throttled: false, faulted: false, server_ms };
            s.add("CreateVolume", &ended);
        }
        let shown = s.json()["actions"]["CreateVolume"]["server_ms"]["p50"].clone();
        assert_eq!(shown, 7.13);
    }

    #[test]
    fn calls_are_counted_by_action_and_error_code() {
        let mut s = Statistics::default();
        let end = |code, throttled| EndedCall { code, throttled, faulted: false, server_ms: 2.0 };
        s.add("CreateVolume", &end(None, false));
        s.add("CreateVolume", &end(Some("RequestLimitExceeded"), true));
        s.add("DescribeVolumes", &end(Some("InvalidVolume.NotFound"), false));
        let v = s.json();
        assert_eq!(v["actions"]["CreateVolume"]["calls"], 2);
        assert_eq!(v["actions"]["CreateVolume"]["errors"]["RequestLimitExceeded"], 1);
        assert_eq!(v["totals"]["throttled"], 1);
    }
}
