//! The invariants, checked after each step.

use super::resources::{MAX_MULTI_ATTACH, Phase, Tags, Volume, attachment_limit, device_suffix};
use super::{Key, Realm};
use crate::devices::Fingerprint;
use crate::time::Millis;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    pub at: String,
    pub rule: &'static str,
    pub(crate) detail: String,
}

#[derive(Debug, Default)]
pub struct Invariants {
    found: Vec<Violation>,
    known: BTreeSet<(&'static str, String)>,
    held: BTreeMap<String, Fingerprint>,
}

/// The tags by which the driver names what it creates. Two live resources with the same name mean
/// that a create took effect twice.
const NAMES: [(&str, &str); 2] = [("CSIVolumeName", "vol-"), ("CSIVolumeSnapshotName", "snap-")];

/// The tag of the members of a group of snapshots, which share a name: it names a member only
/// together with the volume.
const GROUP: &str = "ebs.csi.aws.com/group-snapshot";

/// The tag of the resources that a cluster's driver created.
const CLUSTER: &str = "ebs.csi.aws.com/cluster";

impl Invariants {
    pub fn check(&mut self, realm: &Realm, changed: &BTreeSet<Key>, now: Millis) {
        for key in changed {
            match key {
                Key::Volume(id) => {
                    if let Some(v) = realm.volumes().get(id) {
                        self.volume(realm, v, now);
                        self.names(realm, id, &v.tags, now);
                    }
                }
                Key::Snapshot(id) => {
                    if let Some(s) = realm.snapshots().get(id) {
                        self.names(realm, id, &s.tags, now);
                    }
                }
                Key::Instance(_) => {}
            }
        }
    }

    fn volume(&mut self, realm: &Realm, v: &Volume, now: Millis) {
        let Volume { id, zone, .. } = v;
        let mut violated = |rule, detail| self.report(now, rule, detail);
        let most = if v.shape.multi_attach { MAX_MULTI_ATTACH } else { 1 };
        if v.attachments.len() > most {
            let on: Vec<&str> = v.attachments.iter().map(|a| a.instance.as_str()).collect();
            violated("one_instance", format!("{id} is attached to {}", on.join(", ")));
        }
        if v.deleting() && !v.attachments.is_empty() {
            violated("not_deleted_while_attached", format!("{id} is being deleted while attached"));
        }
        for a in &v.attachments {
            let to = &a.instance;
            let Some(i) = realm.instances().get(to) else {
                violated("instance_exists", format!("{id} is attached to {to}, which is gone"));
                continue;
            };
            if i.zone != *zone {
                let other = &i.zone;
                violated("same_zone", format!("{id} in {zone} is attached to {to} in {other}"));
            }
            let mut slots = BTreeSet::new();
            let mut count = 0;
            for a in realm.volumes_of(to).filter_map(|v| v.attachment(to)) {
                let device = &a.device;
                if !slots.insert(device_suffix(device)) {
                    violated("device_name_once", format!("{to} has {device} twice"));
                }
                // An attachment that a fault keeps stuck does not count, because the fault may
                // deliberately exceed the limit.
                count += u32::from(!matches!(a.phase, Phase::Attaching { until: None, .. }));
            }
            let limit = attachment_limit(&i.instance_type);
            if count > limit {
                let detail = format!("{to} has {count} volumes, its limit is {limit}");
                violated("attachment_limit", detail);
            }
        }
    }

    fn names(&mut self, realm: &Realm, id: &str, tags: &Tags, now: Millis) {
        let named = NAMES.iter().any(|(tag, _)| tags.contains_key(*tag));
        if tags.contains_key(CLUSTER) && !named {
            let detail = "has no name by which a cluster knows it";
            self.report(now, "traceable", format!("{id} is tagged {CLUSTER} and {detail}"));
        }
        for (tag, prefix) in NAMES {
            if let Some((name, ids)) = shared_name(realm, id, tags, tag, prefix) {
                self.report(now, "named_once", format!("{tag}={name}: {}", ids.join(", ")));
            }
        }
    }

    /// Records the file system of a volume when an instance gets the volume.
    pub(crate) fn attached(&mut self, volume: &str, holds: Option<Fingerprint>) {
        if let Some(f) = holds {
            self.held.insert(volume.to_owned(), f);
        }
    }

    /// Compares the file system of a volume when an instance releases the volume: an existing file
    /// system must be unchanged.
    pub(crate) fn released(&mut self, volume: &str, holds: Option<&Fingerprint>, now: Millis) {
        if let Some(before) = self.held.remove(volume)
            && holds != Some(&before)
        {
            self.report(
                now,
                "not_formatted_over",
                format!("{volume} held {before:?} when it was attached, and holds {holds:?} now"),
            );
        }
    }

    /// Records a violation, once for the same details.
    pub fn report(&mut self, now: Millis, rule: &'static str, detail: String) {
        if self.known.insert((rule, detail.clone())) {
            tracing::error!(rule, detail, "an invariant is violated");
            self.found.push(Violation { at: now.iso(), rule, detail });
        }
    }

    pub fn found(&self) -> &[Violation] {
        &self.found
    }

    pub fn json(&self, realm: &Realm, loops: &Value) -> Value {
        let own = || realm.volumes().values().filter(|v| !v.root);
        json!({
            "ok": self.found.is_empty(),
            "violations": self.found,
            "live": {
                "volumes": own().filter(|v| !v.deleting()).count(),
                "snapshots": realm.snapshots().len(),
                "attachments": own().map(|v| v.attachments.len()).sum::<usize>(),
            },
            "duplicates": duplicates(realm),
            "loops": loops,
        })
    }
}

/// Returns the volume of a snapshot that is a member of a group.
fn grouped<'a>(realm: &'a Realm, id: &str) -> Option<&'a str> {
    let member = realm.snapshots().get(id).filter(|it| it.tags.contains_key(GROUP));
    member.map(|it| it.volume.as_str())
}

/// Returns a resource's name by this tag and the ids of the live resources that share the name, if
/// there are several.
fn shared_name<'a>(
    realm: &'a Realm,
    id: &str,
    tags: &'a Tags,
    tag: &str,
    prefix: &str,
) -> Option<(&'a String, Vec<&'a str>)> {
    let (name, group) = (tags.get(tag)?, grouped(realm, id));
    let is_live = |id: &&str| realm.volumes().get(*id).is_none_or(|v| !v.deleting());
    let ids = realm.tagged(tag, name).map(String::as_str);
    let ids = ids.filter(|id| id.starts_with(prefix)).filter(is_live);
    let ids: Vec<_> = ids.filter(|id| group.is_none() || grouped(realm, id) == group).collect();
    (ids.len() > 1).then_some((name, ids))
}

/// Returns the names that two live resources currently share.
fn duplicates(realm: &Realm) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let of_volumes = realm.volumes().iter().map(|(id, v)| (id, &v.tags));
    for (id, t) in of_volumes.chain(realm.snapshots().iter().map(|(id, s)| (id, &s.tags))) {
        for (tag, prefix) in NAMES {
            let shared = shared_name(realm, id, t, tag, prefix);
            seen.extend(shared.map(|(name, ids)| (tag, name, ids)));
        }
    }
    let shown = seen.into_iter();
    shown.map(|(tag, name, ids)| json!({"tag": tag, "name": name, "ids": ids})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::resources::{Attachment, Snapshot, VolumeState, fresh_snapshot};

    fn check(volumes: Vec<Volume>) -> Vec<&'static str> {
        let mut realm = Realm::new("111122223333", "us-east-1", Vec::new());
        let mut i = Invariants::default();
        for v in volumes {
            realm.put_volume(v);
        }
        let changed = realm.take_changes();
        for _ in 0..2 {
            i.check(&realm, &changed, Millis(0));
        }
        i.found().iter().map(|v| v.rule).collect()
    }

    fn fresh() -> Volume {
        Volume::plain("vol-0123456789abcdef0".to_owned(), 1, "us-east-1a", Millis(0))
    }

    fn attached(instances: &[&str]) -> Volume {
        let mut v = fresh();
        v.attachments =
            instances.iter().map(|i| Attachment::new(i, "/dev/xvdba", Millis(0), None)).collect();
        v
    }

    #[test]
    fn violated_invariants_are_reported_by_name() {
        assert_eq!(check(vec![fresh()]), Vec::<&str>::new());
        assert!(check(vec![attached(&["i-1", "i-2"])]).contains(&"one_instance"));
        let mut v = attached(&["i-1", "i-2"]);
        v.shape.multi_attach = true;
        assert!(!check(vec![v]).contains(&"one_instance"));
        let mut v = attached(&["i-1"]);
        v.life = VolumeState::Deleting { until: Millis(1) };
        assert_eq!(check(vec![v]), ["not_deleted_while_attached", "instance_exists"]);
        let named = |id: &str| {
            let mut v = fresh();
            v.id = id.to_owned();
            v.tags.insert("CSIVolumeName".to_owned(), "pvc-1".to_owned());
            v
        };
        assert_eq!(check(vec![named("vol-1a2b3c4d"), named("vol-1a2b3c4e")]), ["named_once"]);
    }

    #[test]
    fn group_members_share_name_but_no_volume() {
        let member = |id: &str, volume: &str, group: bool| {
            let mut tags =
                BTreeMap::from([("CSIVolumeSnapshotName".to_owned(), "vgs-1".to_owned())]);
            if group {
                tags.insert(GROUP.to_owned(), "2".to_owned());
            }
            Snapshot { id: id.to_owned(), volume: volume.to_owned(), tags, ..fresh_snapshot() }
        };
        for (volumes, group, doubled) in [
            (["vol-1", "vol-2"], true, false),
            (["vol-1", "vol-1"], true, true),
            (["vol-1", "vol-2"], false, true),
        ] {
            let mut realm = Realm::new("111122223333", "us-east-1", Vec::new());
            realm.put_snapshot(member("snap-1", volumes[0], group));
            realm.put_snapshot(member("snap-2", volumes[1], group));
            let changed = realm.take_changes();
            let mut i = Invariants::default();
            i.check(&realm, &changed, Millis(0));
            assert_eq!(i.found().iter().any(|it| it.rule == "named_once"), doubled, "{volumes:?}");
            assert_eq!(duplicates(&realm).is_empty(), !doubled, "{volumes:?}");
        }
    }

    #[test]
    fn file_system_identity_change_while_attached_is_reported() {
        let print = |id: &str| Some(Fingerprint { kind: "ext4", identity: id.to_owned() });
        let mut i = Invariants::default();
        i.attached("vol-1", None);
        i.released("vol-1", print("a").as_ref(), Millis(0));
        i.attached("vol-1", print("a"));
        i.released("vol-1", print("a").as_ref(), Millis(0));
        assert!(i.found().is_empty());
        i.attached("vol-1", print("a"));
        i.released("vol-1", print("b").as_ref(), Millis(0));
        assert_eq!(i.found()[0].rule, "not_formatted_over");
    }
}
