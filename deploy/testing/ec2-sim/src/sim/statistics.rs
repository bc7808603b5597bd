//! Counts per action.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Serialize)]
struct ActionCounts {
    calls: u64,
    ok: u64,
    throttled: u64,
    errors: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
pub struct Statistics {
    actions: BTreeMap<String, ActionCounts>,
    imds_credential_reads: u64,
}

impl Statistics {
    /// Counts an answered call: its error code, if it failed, and whether it was throttled.
    pub fn add(&mut self, action: &str, code: Option<&str>, throttled: bool) {
        let counts = self.actions.entry(action.to_owned()).or_default();
        counts.calls += 1;
        counts.throttled += u64::from(throttled);
        match code {
            None => counts.ok += 1,
            Some(code) => *counts.errors.entry(code.to_owned()).or_default() += 1,
        }
    }

    pub(crate) fn add_imds(&mut self, credentials: bool) {
        self.imds_credential_reads += u64::from(credentials);
    }

    /// Returns the statistics as the control API shows them.
    pub fn json(&self) -> Value {
        let sum = |f: fn(&ActionCounts) -> u64| self.actions.values().map(f).sum::<u64>();
        json!({
            "actions": self.actions,
            "totals": {
                "calls": sum(|a| a.calls), "ok": sum(|a| a.ok), "throttled": sum(|a| a.throttled),
            },
            "imds": {"credential_reads": self.imds_credential_reads},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_action_and_error_code() {
        let mut s = Statistics::default();
        s.add("CreateVolume", None, false);
        s.add("CreateVolume", Some("RequestLimitExceeded"), true);
        s.add("DescribeVolumes", Some("InvalidVolume.NotFound"), false);
        let v = s.json();
        assert_eq!(v["actions"]["CreateVolume"]["calls"], 2);
        assert_eq!(v["actions"]["CreateVolume"]["errors"]["RequestLimitExceeded"], 1);
        assert_eq!(v["totals"]["throttled"], 1);
    }
}
