//! The state of one account in one Region: resources, their indexes, and the queue of due events.

mod history;
pub(crate) mod usage;
mod zone_outage;

use super::resources::client_token::TokenUse;
use super::resources::instance::Instance;
use super::resources::snapshot::Snapshot;
use super::resources::tags::Tags;
use super::resources::volume::Volume;
use super::resources::zone::Zone;
use crate::limits::buckets::Buckets;
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Volume(String),
    Snapshot(String),
    Instance(String),
}

/// The resources of one account in one Region.
#[derive(Debug, Default)]
pub struct Realm {
    /// The account's id: twelve digits.
    pub account: String,
    /// The name of the Region.
    pub region: String,
    /// The Region's zones, as this account names them.
    pub zones: Vec<Zone>,
    /// The request token buckets.
    pub buckets: Buckets,
    volumes: BTreeMap<String, Volume>,
    snapshots: BTreeMap<String, Snapshot>,
    instances: BTreeMap<String, Instance>,
    pub(crate) tokens: BTreeMap<String, TokenUse>,
    /// The fast snapshot restores: snapshot and zone.
    pub(crate) fast_restores: BTreeSet<(String, String)>,
    by_instance: HashMap<String, BTreeSet<String>>,
    by_tag: HashMap<(String, String), BTreeSet<String>>,
    due: BTreeSet<(Millis, Key)>,
    changed: BTreeSet<Key>,
    history: Option<Box<history::History>>,
}

impl Realm {
    pub(crate) fn new(account: &str, region: &str, zones: Vec<Zone>) -> Self {
        Self { account: account.to_owned(), region: region.to_owned(), zones, ..Self::default() }
    }

    pub(crate) fn zone(&self, name: &str) -> Option<&Zone> {
        self.zones.iter().find(|z| z.name == name)
    }

    /// Returns the id of the zone of this name, or an empty string.
    pub(crate) fn zone_id(&self, name: &str) -> &str {
        self.zone(name).map_or("", |z| &z.id)
    }

    /// Returns all volumes, by id.
    pub fn volumes(&self) -> &BTreeMap<String, Volume> {
        &self.volumes
    }

    /// Returns all snapshots, by id.
    pub fn snapshots(&self) -> &BTreeMap<String, Snapshot> {
        &self.snapshots
    }

    /// Returns all instances, by id.
    pub fn instances(&self) -> &BTreeMap<String, Instance> {
        &self.instances
    }

    /// Returns the volume of this id, unless the volume is being deleted.
    pub(crate) fn volume(&self, id: &str) -> ApiResult<&Volume> {
        let volume = self.volumes.get(id).filter(|v| !v.deleting());
        volume.ok_or_else(|| ApiError::no_volume(id))
    }

    /// Returns the snapshot of this id.
    pub(crate) fn snapshot(&self, id: &str) -> ApiResult<&Snapshot> {
        let snapshot = self.snapshots.get(id);
        snapshot.ok_or_else(|| ApiError::no_snapshot(id))
    }

    /// Returns the instance of this id.
    pub(crate) fn instance(&self, id: &str) -> ApiResult<&Instance> {
        let instance = self.instances.get(id);
        instance.ok_or_else(|| ApiError::no_instance(id))
    }

    /// Returns the volumes with an attachment to an instance, in any phase.
    pub(crate) fn volumes_of(&self, instance: &str) -> impl Iterator<Item = &Volume> {
        self.by_instance.get(instance).into_iter().flatten().filter_map(|id| self.volumes.get(id))
    }

    /// Returns the ids of the volumes and snapshots with this tag.
    pub fn tagged(&self, key: &str, value: &str) -> impl Iterator<Item = &String> {
        self.by_tag.get(&(key.to_owned(), value.to_owned())).into_iter().flatten()
    }

    pub(crate) fn put_volume(&mut self, volume: Volume) {
        let id = volume.id.clone();
        self.touch(Key::Volume(id.clone()), volume.due());
        self.swap_volume(&id, Some(volume));
    }

    /// Changes a volume; returns `None` if the volume does not exist.
    pub(crate) fn update_volume<T>(
        &mut self,
        id: &str,
        f: impl FnOnce(&mut Volume) -> T,
    ) -> Option<T> {
        let mut volume = self.swap_volume(id, None)?;
        let out = f(&mut volume);
        self.put_volume(volume);
        Some(out)
    }

    /// Removes a volume. The volume's client token stays used.
    pub(crate) fn remove_volume(&mut self, id: &str) -> Option<Volume> {
        let volume = self.swap_volume(id, None)?;
        self.touch(Key::Volume(id.to_owned()), None);
        Some(volume)
    }

    pub(crate) fn put_snapshot(&mut self, snapshot: Snapshot) {
        let id = snapshot.id.clone();
        self.touch(Key::Snapshot(id.clone()), snapshot.due());
        self.swap_snapshot(&id, Some(snapshot));
    }

    /// Changes a snapshot; returns `None` if the snapshot does not exist.
    pub(crate) fn update_snapshot<T>(
        &mut self,
        id: &str,
        f: impl FnOnce(&mut Snapshot) -> T,
    ) -> Option<T> {
        let mut snapshot = self.swap_snapshot(id, None)?;
        let out = f(&mut snapshot);
        self.put_snapshot(snapshot);
        Some(out)
    }

    pub(crate) fn remove_snapshot(&mut self, id: &str) -> Option<Snapshot> {
        let snapshot = self.swap_snapshot(id, None)?;
        self.touch(Key::Snapshot(id.to_owned()), None);
        Some(snapshot)
    }

    pub(crate) fn put_instance(&mut self, instance: Instance) {
        self.touch(Key::Instance(instance.id.clone()), instance.due());
        self.instances.insert(instance.id.clone(), instance);
    }

    /// Changes an instance; returns `None` if the instance does not exist.
    pub(crate) fn update_instance<T>(
        &mut self,
        id: &str,
        f: impl FnOnce(&mut Instance) -> T,
    ) -> Option<T> {
        let mut instance = self.instances.remove(id)?;
        let out = f(&mut instance);
        self.put_instance(instance);
        Some(out)
    }

    pub(crate) fn remove_instance(&mut self, id: &str) -> Option<Instance> {
        let instance = self.instances.remove(id)?;
        self.touch(Key::Instance(id.to_owned()), None);
        Some(instance)
    }

    /// Changes the tags of a volume, snapshot or instance.
    pub(crate) fn retag(&mut self, id: &str, f: impl FnOnce(&mut Tags)) {
        if id.starts_with("vol-") {
            self.update_volume(id, |v| f(&mut v.tags));
        } else if id.starts_with("snap-") {
            self.update_snapshot(id, |s| f(&mut s.tags));
        } else {
            self.update_instance(id, |i| f(&mut i.tags));
        }
    }

    fn index_tags(&mut self, id: &str, tags: &Tags) {
        for (k, v) in tags {
            let set = self.by_tag.entry((k.clone(), v.clone())).or_default();
            set.insert(id.to_owned());
        }
    }

    fn forget_tags(&mut self, id: &str, tags: &Tags) {
        for (k, v) in tags {
            let entry = (k.clone(), v.clone());
            if let Some(set) = self.by_tag.get_mut(&entry) {
                set.remove(id);
                if set.is_empty() {
                    self.by_tag.remove(&entry);
                }
            }
        }
    }

    fn touch(&mut self, key: Key, due: Option<Millis>) {
        if let Some(at) = due {
            self.due.insert((at, key.clone()));
        }
        self.changed.insert(key);
    }

    /// Returns the resources that changed since the last call.
    pub(crate) fn take_changes(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the time of the next due event.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the next event that is due at `now` from the queue. The entry may be outdated; only
    /// the resource itself knows what is due.
    pub(crate) fn pop_due(&mut self, now: Millis) -> Option<(Millis, Key)> {
        if self.next_due()? > now {
            return None;
        }
        self.due.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::resources::attachment::Attachment;
    use crate::state::resources::volume::tests::fresh;

    #[test]
    fn indexes_follow_attachments_and_tags() {
        let mut r = Realm::new("111122223333", "us-east-1", Vec::new());
        let v = fresh();
        let id = v.id.clone();
        r.put_volume(v);
        r.update_volume(&id, |v| {
            v.attachments.push(Attachment::new("i-1", "/dev/xvdba", Millis(0), None))
        });
        assert_eq!(r.volumes_of("i-1").count(), 1);
        r.retag(&id, |t| drop(t.insert("a".to_owned(), "b".to_owned())));
        assert_eq!(r.tagged("a", "b").collect::<Vec<_>>(), [&id]);
        r.retag(&id, |t| drop(t.insert("a".to_owned(), "c".to_owned())));
        assert_eq!((r.tagged("a", "b").count(), r.tagged("a", "c").count()), (0, 1));
        r.remove_volume(&id);
        assert_eq!((r.volumes_of("i-1").count(), r.tagged("a", "c").count()), (0, 0));
    }
}
