//! The durable state: an append-only log with one line per step. A step's line is written before
//! its reply is sent.

use super::ids::Ids;
use super::realm::{Key, Realm};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// A changed record to write.
#[derive(Debug)]
pub(crate) struct Change {
    /// The realm's name.
    pub realm: String,
    /// The key of the record.
    pub key: Key,
    /// The record's content as JSON; `None`: deleted.
    pub value: Option<String>,
}

/// A changed record as read from the log.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Record {
    /// The realm's name.
    #[serde(rename = "r")]
    pub realm: String,
    /// The key of the record.
    #[serde(flatten)]
    pub key: Key,
    /// The record's content; `None`: deleted.
    #[serde(rename = "v")]
    pub value: Option<serde_json::Value>,
}

/// One step in the log.
#[derive(Debug, Deserialize)]
struct Line {
    t: Millis,
    #[serde(default)]
    ids: Option<Ids>,
    #[serde(default)]
    seeded: Vec<String>,
    #[serde(default)]
    changes: Vec<Record>,
}

/// The log file.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    path: PathBuf,
    /// The bytes of the last full copy, and the bytes appended since.
    size: (u64, u64),
}

/// The minimum number of appended bytes before the log is rewritten.
const WORTHWHILE: u64 = 64 << 20;

/// The number of records in a line of a full copy.
const LINE: usize = 1000;

/// The contents of the log.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The latest time in the log.
    pub last: Option<Millis>,
    /// The issuer of ids.
    pub ids: Option<Ids>,
    /// The ids of scenario instances that were created once; they are not created again after they
    /// are gone.
    pub seeded: Vec<String>,
    /// The latest version of each record.
    pub records: Vec<Record>,
}

/// The reason why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("state file {0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file has a line that the simulator did not write.
    #[error(
        "state file {0}, line {1}: {2}; use another state directory, or remove this one with `ec2-sim clean`"
    )]
    Line(PathBuf, usize, String),
}

impl Store {
    /// Opens the log in a directory and reads its contents. Drops an incomplete last line, because
    /// its step was never answered.
    ///
    /// # Errors
    /// Fails if the log cannot be read or written, or was not written by the simulator.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Loaded), StoreError> {
        let path = dir.join("state.jsonl");
        let io = |e| StoreError::Io(path.clone(), e);
        let loaded = if path.exists() {
            read(&path)?
        } else {
            Loaded::default()
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(io)?;
        Ok((
            Self {
                file,
                path,
                size: (0, 0),
            },
            loaded,
        ))
    }

    /// Appends one step.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub(crate) fn append(
        &mut self,
        t: Millis,
        ids: Option<&Ids>,
        seeded: &[String],
        changes: &[Change],
    ) -> Result<(), StoreError> {
        let line = encode(t, ids, seeded, changes);
        self.size.1 += line.len() as u64;
        self.file
            .write_all(&line)
            .map_err(|e| StoreError::Io(self.path.clone(), e))
    }

    /// Returns whether the log is much larger than a full copy of the state.
    pub(crate) fn overgrown(&self) -> bool {
        self.size.1 > WORTHWHILE.max(4 * self.size.0)
    }

    /// Replaces the log with a few lines that hold the full state, so that the log does not grow
    /// across restarts.
    ///
    /// # Errors
    /// Fails if writing fails; the old log then still exists.
    pub(crate) fn rewrite(
        &mut self,
        t: Millis,
        ids: &Ids,
        seeded: &[String],
        realms: &mut [Realm],
    ) -> Result<(), StoreError> {
        let mut changes = Vec::new();
        for realm in realms {
            realm.mark_all_changed();
            let name = realm.name();
            changes.extend(realm.take_changes().into_iter().map(|(key, value)| Change {
                realm: name.clone(),
                key,
                value,
            }));
        }
        let next = self.path.with_extension("next");
        let mut size = 0;
        let mut write = || -> std::io::Result<File> {
            let mut file = BufWriter::new(File::create(&next)?);
            let mut put = |line: &[u8]| {
                size += line.len() as u64;
                file.write_all(line)
            };
            put(&encode(t, Some(ids), seeded, &[]))?;
            for some in changes.chunks(LINE) {
                put(&encode(t, None, &[], some))?;
            }
            file.into_inner()?.sync_all()?;
            std::fs::rename(&next, &self.path)?;
            OpenOptions::new().append(true).open(&self.path)
        };
        self.file = write().map_err(|e| StoreError::Io(self.path.clone(), e))?;
        self.size = (size, 0);
        Ok(())
    }
}

/// Encodes one line of the log. The records' JSON is inserted unchanged.
fn encode(t: Millis, ids: Option<&Ids>, seeded: &[String], changes: &[Change]) -> Vec<u8> {
    // JSON can represent every value that is written here.
    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap_or_default()
    }
    let mut out = format!("{{\"t\":{}", t.0);
    if let Some(ids) = ids {
        out += ",\"ids\":";
        out += &json(ids);
    }
    if !seeded.is_empty() {
        out += ",\"seeded\":";
        out += &json(&seeded);
    }
    out += ",\"changes\":[";
    for (i, c) in changes.iter().enumerate() {
        let key = json(&c.key);
        out += if i == 0 { "{\"r\":" } else { ",{\"r\":" };
        out += &json(&c.realm);
        out.push(',');
        out += key.trim_start_matches('{').trim_end_matches('}');
        out += ",\"v\":";
        out += c.value.as_deref().unwrap_or("null");
        out.push('}');
    }
    out += "]}\n";
    out.into_bytes()
}

fn read(path: &Path) -> Result<Loaded, StoreError> {
    let io = |e| StoreError::Io(path.to_owned(), e);
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let mut loaded = Loaded::default();
    let mut latest: BTreeMap<(String, Key), Option<serde_json::Value>> = BTreeMap::new();
    let mut text = Vec::new();
    let mut complete = 0_u64;
    for number in 1.. {
        text.clear();
        let n = reader.read_until(b'\n', &mut text).map_err(io)?;
        if n == 0 || text.last() != Some(&b'\n') {
            break;
        }
        complete += n as u64;
        let line: Line = serde_json::from_slice(&text)
            .map_err(|e| StoreError::Line(path.to_owned(), number, e.to_string()))?;
        loaded.last = loaded.last.max(Some(line.t));
        if line.ids.is_some() {
            loaded.ids = line.ids;
        }
        loaded.seeded.extend(line.seeded);
        for record in line.changes {
            latest.insert((record.realm, record.key), record.value);
        }
    }
    // Otherwise the incomplete rest would merge with the next line.
    let file = OpenOptions::new().write(true).open(path).map_err(io)?;
    file.set_len(complete).map_err(io)?;
    loaded.records = latest
        .into_iter()
        .filter(|(_, value)| value.is_some())
        .map(|((realm, key), value)| Record { realm, key, value })
        .collect();
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, value: Option<u32>) -> Change {
        Change {
            realm: "1/r".to_owned(),
            key: Key::Volume(id.to_owned()),
            value: value.map(|v| v.to_string()),
        }
    }

    #[test]
    fn reopen_keeps_last_versions_and_drops_torn_line() {
        let dir = tempfile::tempdir().expect("dir");
        let (mut s, l) = Store::open(dir.path()).expect("open");
        assert!(l.last.is_none());
        s.append(
            Millis(1),
            Some(&Ids::new(1)),
            &["i-1".to_owned()],
            &[record("a", Some(1)), record("b", Some(2))],
        )
        .expect("append");
        s.append(
            Millis(2),
            None,
            &[],
            &[record("a", Some(3)), record("b", None)],
        )
        .expect("append");
        let path = dir.path().join("state.jsonl");
        let mut torn = std::fs::read(&path).expect("read");
        torn.extend_from_slice(b"{\"t\":3,\"chan");
        std::fs::write(&path, torn).expect("write");
        let (mut s, l) = Store::open(dir.path()).expect("open again");
        assert_eq!(l.last, Some(Millis(2)));
        assert_eq!(l.seeded, ["i-1"]);
        assert!(l.ids.is_some());
        assert_eq!(l.records.len(), 1);
        assert_eq!(l.records[0].value, Some(3.into()));
        s.append(Millis(4), None, &[], &[record("c", Some(1))])
            .expect("append after the torn line");
        assert_eq!(Store::open(dir.path()).expect("third").1.records.len(), 2);
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("state.jsonl");
        std::fs::write(&path, "shopping list\n").expect("write");
        let e = Store::open(dir.path()).expect_err("foreign").to_string();
        assert!(e.contains("line 1"), "{e}");
        assert_eq!(
            std::fs::read_to_string(&path).expect("read"),
            "shopping list\n"
        );
    }
}
