//! The state of one account in one Region: resources, their indexes, and the queue of due events.

mod history;

use super::resources::{Instance, Snapshot, Tags, TokenUse, Volume, Zone, ZoneState};
use crate::limits::Buckets;
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Params};
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
    pub(crate) account: String,
    /// The name of the Region.
    pub region: String,
    /// The Region's zones, as this account names them.
    pub zones: Vec<Zone>,
    pub(crate) buckets: Buckets,
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

/// Defines how resources of one kind are added, changed and removed. `swap` replaces a resource and
/// its index entries.
macro_rules! changes {
    ($kind:ident: $put:ident $update:ident $remove:ident $swap:ident) => {
        impl Realm {
            pub(crate) fn $put(&mut self, resource: $kind) {
                let id = resource.id.clone();
                self.touch(Key::$kind(id.clone()), resource.due());
                self.$swap(&id, Some(resource));
            }

            /// Returns what `f` returns, or `None` if the resource does not exist.
            pub(crate) fn $update<T>(
                &mut self,
                id: &str,
                f: impl FnOnce(&mut $kind) -> T,
            ) -> Option<T> {
                let mut resource = self.$swap(id, None)?;
                let out = f(&mut resource);
                self.$put(resource);
                Some(out)
            }

            /// The client token of a removed volume stays used.
            pub(crate) fn $remove(&mut self, id: &str) {
                if self.$swap(id, None).is_some() {
                    self.touch(Key::$kind(id.to_owned()), None);
                }
            }
        }
    };
}

changes! { Volume: put_volume update_volume remove_volume swap_volume }
changes! { Snapshot: put_snapshot update_snapshot remove_snapshot swap_snapshot }
changes! { Instance: put_instance update_instance remove_instance swap_instance }

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

    pub(crate) fn snapshot(&self, id: &str) -> ApiResult<&Snapshot> {
        let snapshot = self.snapshots.get(id);
        snapshot.ok_or_else(|| ApiError::no_snapshot(id))
    }

    pub(crate) fn instance(&self, id: &str) -> ApiResult<&Instance> {
        let instance = self.instances.get(id);
        instance.ok_or_else(|| ApiError::no_instance(id))
    }

    pub(crate) fn volumes_of(&self, instance: &str) -> impl Iterator<Item = &Volume> {
        self.by_instance.get(instance).into_iter().flatten().filter_map(|id| self.volumes.get(id))
    }

    /// Returns the ids of the volumes and snapshots with this tag.
    pub fn tagged(&self, key: &str, value: &str) -> impl Iterator<Item = &String> {
        self.by_tag.get(&(key.to_owned(), value.to_owned())).into_iter().flatten()
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

    /// Refuses calls that an unavailable zone cannot answer: changes of resources in the zone, and
    /// reads.
    ///
    /// EC2's API reference says about DescribeInstances that calls without instance ids, or with
    /// ids of the affected zone, may fail, and that calls with only ids of other zones work. In the
    /// simulator the former always fail, and so do the corresponding calls for volumes. Status and
    /// wording unverified.
    pub(crate) fn check_zones(&self, action: &str, params: &Params) -> ApiResult<()> {
        let down: Vec<_> =
            self.zones.iter().filter(|z| z.state == ZoneState::Unavailable).collect();
        if down.is_empty() {
            return Ok(());
        }
        let is_down = |zone: &str| down.iter().any(|z| z.name == zone || z.id == zone);
        let refused = if action.starts_with("Describe") {
            matches!(
                action,
                "DescribeInstances"
                    | "DescribeInstanceStatus"
                    | "DescribeVolumes"
                    | "DescribeVolumeStatus"
                    | "DescribeVolumesModifications"
            ) && {
                let mut ids = params
                    .pairs()
                    .filter(|(k, _)| k.starts_with("InstanceId.") || k.starts_with("VolumeId."))
                    .peekable();
                ids.peek().is_none() || ids.any(|(_, id)| self.zone_of(id).is_some_and(is_down))
            }
        } else {
            params.pairs().any(|(_, v)| match self.zone_of(v) {
                Some(zone) => is_down(zone),
                None => is_down(v),
            })
        };
        if refused {
            let message = "The server is overloaded and can't handle the request.";
            return Err(ApiError::new(503, "Unavailable", message));
        }
        Ok(())
    }

    fn zone_of(&self, id: &str) -> Option<&str> {
        if let Some(v) = self.volumes.get(id) {
            return Some(&v.zone);
        }
        Some(&self.instances.get(id)?.zone)
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
    use crate::state::resources::Attachment;

    #[test]
    fn indexes_follow_attachments_and_tags() {
        let mut r = Realm::new("111122223333", "us-east-1", Vec::new());
        let id = "vol-1".to_owned();
        r.put_volume(Volume::plain(id.clone(), 1, "us-east-1a", Millis(0)));
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
