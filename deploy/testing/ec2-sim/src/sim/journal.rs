//! The journal has one entry for each request, the statistics count them.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Clone, Default, Serialize)]
pub struct Entry {
    /// The number of the entry, from 1.
    pub(crate) seq: u64,
    /// The simulated time at which the request arrived.
    pub at: String,
    pub(crate) account: String,
    pub region: String,
    pub action: String,
    /// The access key's id. Never a secret or a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access_key: Option<String>,
    /// The parameters, without credentials, each cut at 300 characters.
    pub parameters: BTreeMap<String, String>,
    pub request_id: String,
    /// The HTTP status of the reply, or the one it would have had if no reply was sent.
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub effects: Vec<String>,
    pub delay_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// `sdk`, `foreign` (the control API or a fault) or `duplicate` (a fault).
    pub origin: &'static str,
}

#[derive(Debug, Default)]
pub struct Journal {
    last: VecDeque<Entry>,
    seq: u64,
}

const MAX_ENTRIES: usize = 50_000;

/// The maximum length of a recorded parameter value, in characters.
const MAX_VALUE_LENGTH: usize = 300;

impl Journal {
    pub fn add(&mut self, mut entry: Entry) {
        self.seq += 1;
        entry.seq = self.seq;
        if self.last.len() == MAX_ENTRIES {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    /// Returns the entries after a number, oldest first, as far as they are kept.
    pub fn after(&self, seq: u64, limit: usize, action: Option<&str>) -> Vec<&Entry> {
        let first = self.last.partition_point(|e| e.seq <= seq);
        self.last
            .range(first..)
            .filter(|e| action.is_none_or(|a| e.action == a))
            .take(limit)
            .collect()
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.seq
    }
}

/// Returns a parameter's value as the journal may show it: truncated, and without credentials.
pub(crate) fn printable(name: &str, value: &str) -> String {
    if name == "WebIdentityToken" {
        return "(hidden)".to_owned();
    }
    match value.char_indices().nth(MAX_VALUE_LENGTH) {
        Some((cut, _)) => format!("{}…", &value[..cut]),
        None => value.to_owned(),
    }
}

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
    fn journal_numbers_entries_and_queries_filter_by_action() {
        let mut j = Journal::default();
        for a in ["A", "B", "A"] {
            j.add(Entry { action: a.to_owned(), ..Entry::default() });
        }
        assert_eq!(j.after(1, 10, None).iter().map(|e| e.seq).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(j.after(0, 10, Some("A")).len(), 2);
        assert_eq!(j.after(0, 1, None).len(), 1);
        assert_eq!(j.last_seq(), 3);
    }

    #[test]
    fn credentials_are_hidden_and_long_values_cut() {
        assert_eq!(printable("WebIdentityToken", "secret"), "(hidden)");
        assert_eq!(printable("Name", &"é".repeat(400)).chars().count(), 301);
        assert_eq!(printable("Name", "short"), "short");
    }
}
