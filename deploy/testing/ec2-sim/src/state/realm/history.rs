//! Recent versions of a realm's resources, for stale reads.

use super::{Key, Realm};
use crate::state::consistency::View;
use crate::state::resources::{Instance, Snapshot, Volume};
use crate::time::Millis;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The time of the versions that existed when the history began: before any other time.
const ALWAYS: Millis = Millis(i64::MIN);

/// The versions of all resources, as far back as a read can reach.
#[derive(Debug)]
pub(super) struct History {
    volumes: Versions<Volume>,
    snapshots: Versions<Snapshot>,
    instances: Versions<Instance>,
}

/// The versions of one kind of resource: start time and content (`None`: absent).
#[derive(Debug)]
struct Versions<T> {
    all: HashMap<String, VecDeque<(Millis, Option<T>)>>,
    /// The ids of resources of which more than one version is still visible.
    recent: BTreeSet<String>,
}

impl<T: Clone> Versions<T> {
    fn begin(current: &BTreeMap<String, T>) -> Self {
        let first =
            |(id, t): (&String, &T)| (id.clone(), VecDeque::from([(ALWAYS, Some(t.clone()))]));
        Self { all: current.iter().map(first).collect(), recent: BTreeSet::new() }
    }

    fn record(&mut self, id: &str, now: Millis, value: Option<&T>) {
        let versions =
            self.all.entry(id.to_owned()).or_insert_with(|| VecDeque::from([(ALWAYS, None)]));
        if versions.back().is_some_and(|(at, _)| *at == now) {
            versions.pop_back();
        }
        versions.push_back((now, value.cloned()));
        self.recent.insert(id.to_owned());
    }

    fn drop_old(&mut self, now: Millis, keep_ms: u64) {
        let all = &mut self.all;
        self.recent.retain(|id| {
            let Some(versions) = all.get_mut(id) else { return false };
            while versions.get(1).is_some_and(|(at, _)| now.since(*at) > keep_ms) {
                versions.pop_front();
            }
            if versions.len() > 1 {
                return true;
            }
            if versions.front().is_none_or(|(_, v)| v.is_none()) {
                all.remove(id);
            }
            false
        });
    }

    /// Returns the resources of which the view does not show the newest version, with the version
    /// that it shows.
    fn outdated(&self, now: Millis, view: &View) -> Vec<(String, Option<T>)> {
        let mut out = Vec::new();
        for id in &self.recent {
            let Some(versions) = self.all.get(id) else { continue };
            let shows = |at: Millis| at == ALWAYS || now.since(at) >= view.lag(id, at);
            let seen = versions.iter().rposition(|(at, _)| shows(*at)).unwrap_or(0);
            if seen + 1 < versions.len() {
                out.push((id.clone(), versions[seen].1.clone()));
            }
        }
        out
    }
}

/// The current versions that a view has replaced.
#[derive(Debug)]
#[must_use = "the current versions must be restored"]
pub(crate) struct Displaced {
    volumes: Vec<(String, Option<Volume>)>,
    snapshots: Vec<(String, Option<Snapshot>)>,
    instances: Vec<(String, Option<Instance>)>,
}

impl Realm {
    /// Records the new versions of changed resources, and drops versions that are older than
    /// `keep_ms`, which no read can see any longer; 0 drops the history.
    pub(crate) fn note_history(&mut self, changed: &BTreeSet<Key>, now: Millis, keep_ms: u64) {
        if keep_ms == 0 {
            self.history = None;
            return;
        }
        let Some(history) = &mut self.history else {
            self.history = Some(Box::new(History {
                volumes: Versions::begin(&self.volumes),
                snapshots: Versions::begin(&self.snapshots),
                instances: Versions::begin(&self.instances),
            }));
            return;
        };
        for key in changed {
            match key {
                Key::Volume(id) => history.volumes.record(id, now, self.volumes.get(id)),
                Key::Snapshot(id) => history.snapshots.record(id, now, self.snapshots.get(id)),
                Key::Instance(id) => history.instances.record(id, now, self.instances.get(id)),
            }
        }
        history.volumes.drop_old(now, keep_ms);
        history.snapshots.drop_old(now, keep_ms);
        history.instances.drop_old(now, keep_ms);
    }

    /// Replaces the realm's state with a view, until [`Realm::restore_current`].
    pub(crate) fn show_view(&mut self, now: Millis, view: &View) -> Displaced {
        let (volumes, snapshots, instances) = match &self.history {
            None => (Vec::new(), Vec::new(), Vec::new()),
            Some(h) => (
                h.volumes.outdated(now, view),
                h.snapshots.outdated(now, view),
                h.instances.outdated(now, view),
            ),
        };
        self.exchange(Displaced { volumes, snapshots, instances })
    }

    pub(crate) fn restore_current(&mut self, current: Displaced) {
        drop(self.exchange(current));
    }

    fn exchange(&mut self, mut new: Displaced) -> Displaced {
        for (id, volume) in &mut new.volumes {
            *volume = self.swap_volume(id, volume.take());
        }
        for (id, snapshot) in &mut new.snapshots {
            *snapshot = self.swap_snapshot(id, snapshot.take());
        }
        for (id, instance) in &mut new.instances {
            *instance = self.swap_instance(id, instance.take());
        }
        new
    }

    pub(super) fn swap_volume(&mut self, id: &str, new: Option<Volume>) -> Option<Volume> {
        let old = self.volumes.remove(id);
        if let Some(v) = &old {
            self.forget_tags(id, &v.tags);
            for a in &v.attachments {
                if let Some(set) = self.by_instance.get_mut(&a.instance) {
                    set.remove(id);
                }
            }
        }
        if let Some(v) = new {
            self.index_tags(id, &v.tags);
            for a in &v.attachments {
                let set = self.by_instance.entry(a.instance.clone()).or_default();
                set.insert(id.to_owned());
            }
            self.volumes.insert(id.to_owned(), v);
        }
        old
    }

    pub(super) fn swap_instance(&mut self, id: &str, new: Option<Instance>) -> Option<Instance> {
        let old = self.instances.remove(id);
        self.instances.extend(new.map(|i| (id.to_owned(), i)));
        old
    }

    pub(super) fn swap_snapshot(&mut self, id: &str, new: Option<Snapshot>) -> Option<Snapshot> {
        let old = self.snapshots.remove(id);
        if let Some(s) = &old {
            self.forget_tags(id, &s.tags);
        }
        if let Some(s) = new {
            self.index_tags(id, &s.tags);
            self.snapshots.insert(id.to_owned(), s);
        }
        old
    }
}
