//! Objects by kind and key, with the recent events and what the clients did.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;
use std::ops::Bound;
use std::sync::Mutex;

use bytes::Bytes;
use ebs_csi_proto::lock;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::kind::PODS;

/// Number of events kept of each kind; a client that asks for older ones must list again.
const KEPT: usize = 100_000;

#[derive(Default)]
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) items: Vec<Bytes>,
    pub(super) next: Option<String>,
}

/// The server's objects and events. An object's key is `NAMESPACE/NAME`, or the name alone.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    kinds: HashMap<String, Held>,
    watched: BTreeSet<String>,
    changes: Vec<String>,
}

#[derive(Debug, Default)]
struct Held {
    /// Each with its version.
    objects: BTreeMap<String, (u64, Bytes)>,
    /// Keys of pods by the node that they are bound to.
    by_node: HashMap<String, BTreeSet<String>>,
    events: VecDeque<(u64, Bytes)>,
    /// Events up to this version have been dropped.
    forgotten: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self { inner: Mutex::default(), latest: watch::channel(0).0 }
    }
}

impl Store {
    pub(crate) fn put(&self, kind: &str, object: Value) {
        let _ = self.change(kind, None, object);
    }

    pub(crate) fn get(&self, kind: &str, key: &str) -> Option<Value> {
        serde_json::from_slice(&self.raw(kind, key)?).ok()
    }

    /// Applies `change` to an object, if the object exists.
    pub(crate) fn edit(&self, kind: &str, key: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(kind, key) {
            change(&mut object);
            self.put(kind, object);
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, kind: &str, key: &str) {
        let mut inner = lock(&self.inner);
        inner.version += 1;
        let version = inner.version;
        let held = inner.kinds.entry(kind.to_owned()).or_default();
        let Some((_, object)) = held.objects.remove(key) else {
            return;
        };
        let mut last: Value = serde_json::from_slice(&object).unwrap_or_default();
        if let Some(node) = last["spec"]["nodeName"].as_str()
            && let Some(keys) = held.by_node.get_mut(node)
        {
            keys.remove(key);
        }
        last["metadata"]["resourceVersion"] = json!(version.to_string());
        held.record(version, "DELETED", last.to_string().as_bytes());
        drop(inner);
        self.latest.send_replace(version);
    }

    /// Drops all events, so that every watcher must list again.
    pub(crate) fn expire(&self) {
        let mut inner = lock(&self.inner);
        // A watcher that has seen every event becomes outdated, too.
        inner.version += 1;
        let version = inner.version;
        inner.watched.clear();
        for held in inner.kinds.values_mut() {
            held.events.clear();
            held.forgotten = version;
        }
        drop(inner);
        self.latest.send_replace(version);
    }

    /// Returns the kinds that a client has begun to watch since all events were dropped.
    pub(crate) fn watched(&self) -> BTreeSet<String> {
        lock(&self.inner).watched.clone()
    }

    /// Returns the patches and deletes that clients asked for since the last call of this function,
    /// each as `VERB KIND KEY`.
    pub(crate) fn take_changes(&self) -> Vec<String> {
        mem::take(&mut lock(&self.inner).changes)
    }

    pub(super) fn record_watch(&self, kind: &str) {
        lock(&self.inner).watched.insert(kind.to_owned());
    }

    pub(super) fn record_change(&self, change: String) {
        lock(&self.inner).changes.push(change);
    }

    pub(super) fn raw(&self, kind: &str, key: &str) -> Option<Bytes> {
        lock(&self.inner).kinds.get(kind)?.objects.get(key).map(|(_, object)| object.clone())
    }

    pub(super) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Returns the objects of a node, or at most `limit` objects whose key is greater than `after`.
    pub(super) fn page(
        &self,
        kind: &str,
        namespace: Option<&str>,
        node: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Page {
        let inner = lock(&self.inner);
        let mut page = Page { version: inner.version, ..Page::default() };
        let Some(held) = inner.kinds.get(kind) else {
            return page;
        };
        if let Some(node) = node {
            let keys = held.by_node.get(node).into_iter().flatten();
            let objects = keys.filter_map(|key| held.objects.get(key));
            page.items.extend(objects.map(|(_, object)| object.clone()));
            return page;
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = "";
        for (key, (_, object)) in held.objects.range::<str, _>((from, Bound::Unbounded)) {
            if namespace.is_some_and(|name| key.split('/').next() != Some(name)) {
                continue;
            }
            if page.items.len() == limit {
                page.next = Some(last.to_owned());
                break;
            }
            page.items.push(object.clone());
            last = key;
        }
        page
    }

    /// Returns the events after `version` and the resulting version, or `None` when some of those
    /// events have been dropped.
    pub(super) fn events(&self, kind: &str, version: u64) -> Option<(u64, Vec<Bytes>)> {
        let inner = lock(&self.inner);
        let Some(held) = inner.kinds.get(kind) else {
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
    /// object), and returns `None` when there is another one.
    pub(super) fn change(
        &self,
        kind: &str,
        expected: Option<u64>,
        mut object: Value,
    ) -> Option<Bytes> {
        let meta = &object["metadata"];
        let key = key(meta["namespace"].as_str(), meta["name"].as_str().unwrap_or_default());
        let mut inner = lock(&self.inner);
        let version = inner.version + 1;
        let held = inner.kinds.entry(kind.to_owned()).or_default();
        let old = held.objects.get(&key).map_or(0, |(version, _)| *version);
        if expected.is_some_and(|expected| expected != old) {
            return None;
        }
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{version:012x}"));
        }
        let bytes = Bytes::from(object.to_string());
        if let Some(node) = object["spec"]["nodeName"].as_str().filter(|_| kind == PODS) {
            held.by_node.entry(node.to_owned()).or_default().insert(key.clone());
        }
        held.objects.insert(key, (version, bytes.clone()));
        held.record(version, if old == 0 { "ADDED" } else { "MODIFIED" }, &bytes);
        inner.version = version;
        drop(inner);
        self.latest.send_replace(version);
        Some(bytes)
    }
}

impl Held {
    fn record(&mut self, version: u64, what: &str, object: &[u8]) {
        let head = format!("{{\"type\":\"{what}\",\"object\":");
        self.events.push_back((version, [head.as_bytes(), object, b"}\n"].concat().into()));
        while self.events.len() > KEPT {
            let gone = self.events.pop_front();
            self.forgotten = gone.map_or(self.forgotten, |(version, _)| version);
        }
    }
}

pub(super) fn key(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
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
            store.put(PODS, named(&format!("p{number}")));
        }
        let first = store.page(PODS, None, None, None, 2);
        assert_eq!(first.items.len(), 2);
        let next = first.next.expect("more");
        let rest = store.page(PODS, None, None, Some(&next), 10);
        assert_eq!((rest.items.len(), rest.next), (3, None));
        assert_eq!(store.page(PODS, None, Some("n"), None, 10).items.len(), 5);

        store.delete(PODS, "a/p0");
        store.edit(PODS, "a/p1", |pod| pod["x"] = json!(1));
        let (version, lines) = store.events(PODS, rest.version).expect("known");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with(b"{\"type\":\"DELETED\""));
        let (_, lines) = store.events(PODS, version).expect("known");
        assert!(lines.is_empty());
        store.expire();
        assert!(store.events(PODS, version).is_none());
        assert_eq!(store.page(PODS, None, Some("n"), None, 10).items.len(), 4);
    }

    #[test]
    fn change_with_mismatched_resource_version_conflicts() {
        let store = Store::default();
        assert!(store.change(PODS, Some(0), named("p")).is_some());
        assert_eq!(store.change(PODS, Some(0), named("p")), None);
        assert_eq!(store.change(PODS, Some(2), named("p")), None);
        assert!(store.change(PODS, Some(1), named("p")).is_some());
    }
}
