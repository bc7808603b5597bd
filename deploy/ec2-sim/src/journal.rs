//! The journal: one JSON line for each request.

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// One request and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Its number, from 1.
    pub seq: u64,
    /// When it arrived, in simulated time.
    pub at: String,
    /// The account.
    pub account: String,
    /// The region.
    pub region: String,
    /// The action.
    pub action: String,
    /// `amz-sdk-invocation-id`: the same for all attempts of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation: Option<String>,
    /// `amz-sdk-request`, e.g. `attempt=1; max=3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The access key's id. Never a secret or a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key: Option<String>,
    /// The parameters, without credentials, each cut at 300 characters.
    pub parameters: BTreeMap<String, String>,
    /// EC2's request id.
    pub request_id: String,
    /// The status that was answered or, if no reply was sent, would have been.
    pub status: u16,
    /// The error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Ids of what the request made or changed.
    pub effects: Vec<String>,
    /// Tokens left in the bucket.
    pub bucket: f64,
    /// Milliseconds until the reply.
    pub delay_ms: u64,
    /// The fault rules that struck.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// `sdk`, `foreign` (the control API) or `duplicate` (a fault).
    pub origin: &'static str,
}

/// The last entries, and the file with all of them.
#[derive(Debug, Default)]
pub struct Journal {
    last: VecDeque<Entry>,
    seq: u64,
    file: Option<File>,
}

/// How many entries are kept in memory.
const KEPT: usize = 50_000;

/// The longest parameter value that is written.
const VALUE: usize = 300;

impl Journal {
    /// A journal that appends to `journal.jsonl` in a directory.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(dir: &Path) -> std::io::Result<Self> {
        let path = dir.join("journal.jsonl");
        let seq = match std::fs::read(&path) {
            Ok(bytes) => bytes.iter().filter(|b| **b == b'\n').count() as u64,
            Err(_) => 0,
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            last: VecDeque::new(),
            seq,
            file: Some(file),
        })
    }

    /// Writes an entry down and gives it its number.
    pub fn add(&mut self, mut entry: Entry) {
        self.seq += 1;
        entry.seq = self.seq;
        if let Some(file) = &mut self.file
            && let Ok(mut line) = serde_json::to_vec(&entry)
        {
            line.push(b'\n');
            if let Err(error) = file.write_all(&line) {
                tracing::error!(%error, "the journal cannot be written; it goes on in memory alone");
                self.file = None;
            }
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    /// Entries after a number, oldest first.
    pub fn after(&self, seq: u64, limit: usize, action: Option<&str>) -> Vec<&Entry> {
        let first = self.last.partition_point(|e| e.seq <= seq);
        self.last
            .range(first..)
            .filter(|e| action.is_none_or(|a| e.action == a))
            .take(limit)
            .collect()
    }

    /// The number of the last entry.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }
}

/// A parameter's value as it may be written: cut, and without credentials.
pub fn printable(name: &str, value: &str) -> String {
    const SECRET: [&str; 5] = [
        "WebIdentityToken",
        "SAMLAssertion",
        "TokenCode",
        "X-Amz-Security-Token",
        "X-Amz-Signature",
    ];
    if SECRET.contains(&name) {
        return "(hidden)".to_owned();
    }
    match value.char_indices().nth(VALUE) {
        Some((cut, _)) => format!("{}…", &value[..cut]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: &str) -> Entry {
        Entry {
            seq: 0,
            at: String::new(),
            account: String::new(),
            region: String::new(),
            action: action.to_owned(),
            invocation: None,
            attempt: None,
            access_key: None,
            parameters: BTreeMap::new(),
            request_id: String::new(),
            status: 200,
            code: None,
            effects: Vec::new(),
            bucket: 1.0,
            delay_ms: 0,
            faults: Vec::new(),
            origin: "sdk",
        }
    }

    #[test]
    fn numbering_survives_restart_and_queries_filter_by_action() {
        let dir = tempfile::tempdir().expect("dir");
        let mut j = Journal::open(dir.path()).expect("open");
        for a in ["A", "B", "A"] {
            j.add(entry(a));
        }
        assert_eq!(
            j.after(1, 10, None)
                .iter()
                .map(|e| e.seq)
                .collect::<Vec<_>>(),
            [2, 3]
        );
        assert_eq!(j.after(0, 10, Some("A")).len(), 2);
        assert_eq!(j.after(0, 1, None).len(), 1);
        let mut j = Journal::open(dir.path()).expect("open again");
        j.add(entry("C"));
        assert_eq!(j.last_seq(), 4);
    }

    #[test]
    fn credentials_are_hidden_and_long_values_cut() {
        assert_eq!(printable("WebIdentityToken", "secret"), "(hidden)");
        assert_eq!(printable("Name", &"é".repeat(400)).chars().count(), 301);
        assert_eq!(printable("Name", "short"), "short");
    }
}
