//! Objects by kind and key, with the recent events.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Kind;

/// Number of events kept of each kind; a client that asks for older ones must list again.
const KEPT: usize = 100_000;

/// The reason why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NotFound,
    Conflict,
}

/// A page of a list.
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) items: Vec<Bytes>,
    pub(super) next: Option<String>,
}

/// The server's objects and events.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    uids: u64,
    kinds: HashMap<Kind, Held>,
}

#[derive(Debug, Default)]
struct Held {
    objects: BTreeMap<String, Bytes>,
    /// Keys of pods by the node that they are bound to.
    by_node: HashMap<String, BTreeSet<String>>,
    events: VecDeque<(u64, Bytes)>,
    /// Events up to this version have been dropped.
    forgotten: u64,
}

impl Default for Store {
    fn default() -> Self {
        let inner = Mutex::default();
        let (latest, _) = watch::channel(0);
        Self { inner, latest }
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an object's key: `NAMESPACE/NAME`, or the name alone.
    pub(crate) fn key(namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, kind: Kind, object: Value) {
        let _ = self.change(kind, None, object);
    }

    /// Returns the object.
    pub(crate) fn get(&self, kind: Kind, key: &str) -> Option<Value> {
        let bytes = self.raw(kind, key)?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Applies `change` to an object, if the object exists.
    pub(crate) fn edit(&self, kind: Kind, key: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(kind, key) {
            change(&mut object);
            self.put(kind, object);
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, kind: Kind, key: &str) {
        let _ = self.remove(kind, key, None);
    }

    /// Drops all events, so that every watcher must list again.
    pub(crate) fn expire(&self) {
        let mut inner = self.lock();
        // A watcher that has seen every event becomes outdated, too.
        inner.version += 1;
        let version = inner.version;
        for held in inner.kinds.values_mut() {
            held.events.clear();
            held.forgotten = version;
        }
        drop(inner);
        self.latest.send_replace(version);
    }

    pub(super) fn raw(&self, kind: Kind, key: &str) -> Option<Bytes> {
        self.lock().kinds.get(&kind)?.objects.get(key).cloned()
    }

    /// Returns a receiver that is notified of each change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Returns at most `limit` objects whose key is greater than `after`.
    pub(super) fn page(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        node: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Page {
        let inner = self.lock();
        let version = inner.version;
        let mut items = Vec::new();
        let mut next = None;
        let Some(held) = inner.kinds.get(&kind) else {
            return Page { version, items, next };
        };
        if let Some(node) = node {
            let keys = held.by_node.get(node).into_iter().flatten();
            items.extend(keys.filter_map(|key| held.objects.get(key).cloned()));
            return Page { version, items, next };
        }
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut last = "";
        for (key, object) in held.objects.range::<str, _>((from, std::ops::Bound::Unbounded)) {
            if namespace.is_some_and(|name| key.split('/').next() != Some(name)) {
                continue;
            }
            if items.len() == limit {
                next = Some(last.to_owned());
                break;
            }
            items.push(object.clone());
            last = key;
        }
        Page { version, items, next }
    }

    /// Returns the events after `version` and the resulting version, or `None` when some of those
    /// events have been dropped.
    pub(super) fn events(&self, kind: Kind, version: u64) -> Option<(u64, Vec<Bytes>)> {
        let inner = self.lock();
        let Some(held) = inner.kinds.get(&kind) else {
            return Some((inner.version, Vec::new()));
        };
        if version < held.forgotten {
            return None;
        }
        let first = held.events.partition_point(|(at, _)| *at <= version);
        let lines = held.events.range(first..).map(|(_, line)| line.clone());
        Some((inner.version, lines.collect()))
    }

    /// Writes an object. With `expected`, replaces only that version (0: writes only if there is no
    /// object).
    pub(super) fn change(
        &self,
        kind: Kind,
        expected: Option<u64>,
        mut object: Value,
    ) -> Result<Bytes, Refused> {
        let meta = &object["metadata"];
        let key = Self::key(meta["namespace"].as_str(), meta["name"].as_str().unwrap_or_default());
        let mut inner = self.lock();
        let held = inner.kinds.entry(kind).or_default();
        let old = held.objects.get(&key);
        if let Some(expected) = expected {
            let there = old.map_or(0, version_of);
            if there != expected {
                return Err(if old.is_none() { Refused::NotFound } else { Refused::Conflict });
            }
        }
        let kind_of_event = if old.is_some() { "MODIFIED" } else { "ADDED" };
        inner.version += 1;
        inner.uids += 1;
        let (version, uid) = (inner.version, inner.uids);
        let (api, name) = kind.types();
        object["apiVersion"] = json!(api);
        object["kind"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{uid:012x}"));
        }
        let bytes = Bytes::from(object.to_string());
        let node = object["spec"]["nodeName"].as_str().map(str::to_owned);
        let held = inner.kinds.entry(kind).or_default();
        if let Some(node) = node.filter(|_| kind == Kind::Pods) {
            held.by_node.entry(node).or_default().insert(key.clone());
        }
        held.objects.insert(key, bytes.clone());
        held.record(version, kind_of_event, &bytes);
        drop(inner);
        self.latest.send_replace(version);
        Ok(bytes)
    }

    pub(super) fn remove(
        &self,
        kind: Kind,
        key: &str,
        uid: Option<&str>,
    ) -> Result<Bytes, Refused> {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        let held = inner.kinds.entry(kind).or_default();
        let Some(object) = held.objects.get(key).cloned() else {
            return Err(Refused::NotFound);
        };
        let value: Value = serde_json::from_slice(&object).unwrap_or_default();
        if uid.is_some_and(|uid| value["metadata"]["uid"] != uid) {
            return Err(Refused::Conflict);
        }
        held.objects.remove(key);
        if let Some(node) = value["spec"]["nodeName"].as_str()
            && let Some(keys) = held.by_node.get_mut(node)
        {
            keys.remove(key);
        }
        let mut last = value;
        last["metadata"]["resourceVersion"] = json!(version.to_string());
        held.record(version, "DELETED", &Bytes::from(last.to_string()));
        drop(inner);
        self.latest.send_replace(version);
        Ok(object)
    }
}

impl Held {
    fn record(&mut self, version: u64, what: &str, object: &Bytes) {
        let mut line = Vec::with_capacity(object.len() + 40);
        line.extend_from_slice(format!("{{\"type\":\"{what}\",\"object\":").as_bytes());
        line.extend_from_slice(object);
        line.extend_from_slice(b"}\n");
        self.events.push_back((version, Bytes::from(line)));
        while self.events.len() > KEPT {
            let gone = self.events.pop_front();
            self.forgotten = gone.map_or(self.forgotten, |(version, _)| version);
        }
    }
}

fn version_of(object: &Bytes) -> u64 {
    let value: Value = serde_json::from_slice(object).unwrap_or_default();
    let version = value["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Value {
        json!({"metadata": {"namespace": "a", "name": name}, "spec": {"nodeName": "n"}})
    }

    #[test]
    fn pages_cover_all_objects_and_events_all_changes() {
        let store = Store::default();
        for number in 0..5 {
            store.put(Kind::Pods, named(&format!("p{number}")));
        }
        let first = store.page(Kind::Pods, None, None, None, 2);
        assert_eq!(first.items.len(), 2);
        let next = first.next.expect("more");
        let rest = store.page(Kind::Pods, None, None, Some(&next), 10);
        assert_eq!((rest.items.len(), rest.next), (3, None));
        assert_eq!(store.page(Kind::Pods, None, Some("n"), None, 10).items.len(), 5);

        store.delete(Kind::Pods, "a/p0");
        store.edit(Kind::Pods, "a/p1", |pod| pod["x"] = json!(1));
        let (version, lines) = store.events(Kind::Pods, rest.version).expect("known");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with(b"{\"type\":\"DELETED\""));
        let (_, lines) = store.events(Kind::Pods, version).expect("known");
        assert!(lines.is_empty());
        store.expire();
        assert!(store.events(Kind::Pods, version).is_none());
        assert_eq!(store.page(Kind::Pods, None, Some("n"), None, 10).items.len(), 4);
    }

    #[test]
    fn change_with_mismatched_resource_version_conflicts() {
        let store = Store::default();
        let made = store.change(Kind::Pods, Some(0), named("p")).expect("there is none");
        assert_eq!(store.change(Kind::Pods, Some(0), named("p")), Err(Refused::Conflict));
        let (version, made) = (version_of(&made), serde_json::from_slice(&made).expect("JSON"));
        assert!(store.change(Kind::Pods, Some(version), made).is_ok());
        assert_eq!(store.remove(Kind::Pods, "a/p", Some("another")), Err(Refused::Conflict));
    }
}
