//! Checks whether the answer of a call is true, given the state of EC2 at that moment.

use std::collections::HashMap;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::volume_content_source::Type as SourceType;
use ec2_sim::{ModificationState, Origin, Realm, Volume};
use tonic::Status;

use super::history::World;

const VOLUME_NAME: &str = "CSIVolumeName";
const SNAPSHOT_NAME: &str = "CSIVolumeSnapshotName";
const GIB: i64 = 1 << 30;

impl World {
    fn look<T>(&self, look: impl FnOnce(&Realm) -> T) -> T {
        self.ec2.act(|sim, _| look(sim.realm()))
    }

    /// Records what `check` finds wrong with EC2's state.
    fn check(&self, what: &str, check: impl FnOnce(&Realm) -> Option<String>) {
        if let Some(why) = self.look(check) {
            self.record_violation(format!("{what}: {why}"));
        }
    }

    /// Records what `check` finds wrong with EC2's volume, which is `None` when the volume is gone.
    fn check_volume(
        &self,
        what: &str,
        id: &str,
        check: impl FnOnce(Option<&Volume>) -> Option<String>,
    ) {
        self.check(what, |realm| check(realm.volumes().get(id)));
    }

    /// Records the live resources that have a name, although their creation ended in a final error:
    /// nobody would look for them.
    fn check_none_exist(&self, name: &str, status: &Status, existing: Vec<String>) {
        if !existing.is_empty() {
            let what = format!("{name} is said not to exist, and is {existing:?}: {status}");
            self.record_violation(what);
        }
    }

    pub(crate) fn check_created(&self, request: &csi::CreateVolumeRequest, answer: &csi::Volume) {
        let id = &answer.volume_id;
        let what = format!("{} is said to be {id}", request.name);
        self.check_volume(&what, id, |volume| {
            let Some(volume) = volume else {
                return Some("it does not exist".to_owned());
            };
            let range = request.capacity_range.unwrap_or_default();
            let bytes = i64::from(volume.shape.size) * GIB;
            let source = request.volume_content_source.as_ref().and_then(|s| s.r#type.as_ref());
            let same_source = match (source, &volume.origin) {
                (None, Origin::Blank) => true,
                (Some(SourceType::Snapshot(s)), Origin::Snapshot(id)) => s.snapshot_id == *id,
                (Some(SourceType::Volume(v)), Origin::Volume(id)) => v.volume_id == *id,
                _ => false,
            };
            let wrong = if !matches!(volume.status(), "available" | "in-use") {
                format!("it is {}", volume.status())
            } else if volume.tags.get(VOLUME_NAME) != Some(&request.name) {
                format!("its tags are {:?}", volume.tags)
            } else if bytes < range.required_bytes || bytes != answer.capacity_bytes {
                format!("it has {bytes} bytes, the answer says {}", answer.capacity_bytes)
            } else if !same_source {
                format!("it is made of {:?}", volume.origin)
            } else {
                return None;
            };
            Some(wrong)
        });
    }

    /// Checks that no volume has the name after a final error.
    pub(crate) fn check_not_created(&self, name: &str, status: &Status) {
        let existing = self.look(|realm| {
            let of_name = realm.tagged(VOLUME_NAME, name).filter_map(|id| realm.volumes().get(id));
            of_name
                .filter(|v| matches!(v.status(), "creating" | "available" | "in-use"))
                .map(|v| format!("{} {}", v.id, v.status()))
                .collect()
        });
        self.check_none_exist(name, status, existing);
    }

    pub(crate) fn check_deleted(&self, id: &str) {
        self.check_volume(&format!("{id} is said to be deleted"), id, |volume| {
            volume.filter(|v| !v.deleting()).map(|v| format!("it is {}", v.status()))
        });
    }

    pub(crate) fn check_attached(&self, id: &str, node: &str, context: &HashMap<String, String>) {
        let what = format!("{id} is said to be attached to {node} as {context:?}");
        self.check_volume(&what, id, |volume| {
            let Some(volume) = volume else {
                return Some("it does not exist".to_owned());
            };
            match volume.attachment(node) {
                None => Some("it is not".to_owned()),
                Some(a) if a.status() != "attached" => Some(format!("it is {}", a.status())),
                Some(a) if context.get("devicePath") != Some(&a.device) => {
                    Some(format!("it is {}", a.device))
                }
                Some(_) => None,
            }
        });
    }

    pub(crate) fn check_detached(&self, id: &str, node: &str) {
        let what = format!("{id} is said to be detached from {node}");
        self.check_volume(&what, id, |volume| {
            volume?.attachment(node).map(|a| format!("it is {}", a.status()))
        });
    }

    /// Checks that after NOT_FOUND for an attach the volume or the node is gone.
    pub(crate) fn check_missing(&self, id: &str, node: &str, status: &Status) {
        let existing = self.look(|realm| {
            let volume = realm.volumes().get(id).is_some_and(|v| !v.deleting());
            let node = realm
                .instances()
                .get(node)
                .is_some_and(|i| !matches!(i.state().1, "terminated" | "shutting-down"));
            volume && node
        });
        if existing {
            self.record_violation(format!("{id} and {node} exist: {status}"));
        }
    }

    pub(crate) fn check_size(&self, id: &str, requested: i64, answered: i64) {
        let what = format!("{id} is said to have {answered} bytes");
        self.check_volume(&what, id, |volume| {
            let has = i64::from(volume?.shape.size) * GIB;
            (has < requested || answered != has)
                .then(|| format!("it has {has}, {requested} were asked for"))
        });
    }

    /// Checks that a modification whose call succeeded is in force or in progress.
    pub(crate) fn check_iops(&self, id: &str, requested: u32) {
        self.check_volume(&format!("{id} is said to get {requested} IOPS"), id, |volume| {
            let volume = volume?;
            let pending =
                volume.modification.as_ref().filter(|m| m.state != ModificationState::Failed);
            let gets = pending.map_or(volume.shape.iops, |m| m.target.iops);
            (gets != Some(requested) && volume.shape.iops != Some(requested))
                .then(|| format!("it gets {gets:?}"))
        });
    }

    pub(crate) fn check_snapshot(
        &self,
        request: &csi::CreateSnapshotRequest,
        answer: &csi::Snapshot,
    ) {
        let id = &answer.snapshot_id;
        let what = format!("{} is said to be {id}, ready: {}", request.name, answer.ready_to_use);
        self.check(&what, |realm| {
            let Some(snapshot) = realm.snapshots().get(id) else {
                return Some("it does not exist".to_owned());
            };
            if snapshot.tags.get(SNAPSHOT_NAME) != Some(&request.name) {
                Some(format!("its tags are {:?}", snapshot.tags))
            } else if snapshot.volume != request.source_volume_id {
                Some(format!("it is of {}", snapshot.volume))
            } else if answer.ready_to_use && snapshot.status() != "completed" {
                Some(format!("it is {}", snapshot.status()))
            } else {
                None
            }
        });
    }

    /// Checks that the snapshots are those that were asked for, of one moment.
    pub(crate) fn check_group(
        &self,
        request: &csi::CreateVolumeGroupSnapshotRequest,
        id: &str,
        answer: &csi::VolumeGroupSnapshot,
    ) {
        let mut volumes: Vec<_> = request.source_volume_ids.iter().collect();
        let mut answered: Vec<_> = answer.snapshots.iter().map(|it| &it.source_volume_id).collect();
        volumes.sort_unstable();
        answered.sort_unstable();
        if answer.group_snapshot_id != id || volumes != answered {
            self.record_violation(format!("{id} of {volumes:?} is said to be {answer:?}"));
        }
        for member in &answer.snapshots {
            let alone = csi::CreateSnapshotRequest {
                name: id.to_owned(),
                source_volume_id: member.source_volume_id.clone(),
                ..Default::default()
            };
            self.check_snapshot(&alone, member);
        }
        let mut moments: Vec<_> = answer.snapshots.iter().map(|it| it.creation_time).collect();
        moments.dedup();
        if moments.len() != 1 {
            self.record_violation(format!("the snapshots of {id} are of {moments:?}"));
        }
    }

    /// Checks that no snapshot has the name after a final error.
    pub(crate) fn check_no_snapshot(&self, name: &str, status: &Status) {
        let existing = self.look(|realm| {
            let of_name =
                realm.tagged(SNAPSHOT_NAME, name).filter_map(|id| realm.snapshots().get(id));
            of_name
                .filter(|s| s.status() != "error")
                .map(|s| format!("{} {}", s.id, s.status()))
                .collect()
        });
        self.check_none_exist(name, status, existing);
    }

    pub(crate) fn has_failed(&self, id: &str) -> bool {
        self.look(|realm| realm.snapshots().get(id).is_some_and(|s| s.status() == "error"))
    }

    pub(crate) fn check_snapshot_deleted(&self, id: &str) {
        self.check(&format!("{id} is said to be deleted"), |realm| {
            realm.snapshots().get(id).map(|s| format!("it is {}", s.status()))
        });
    }

    /// Checks, at rest, that EC2 holds what the callers know of, and nothing else.
    pub(crate) fn check_final_state(&self) {
        let (volumes, snapshots, attachments) = self.look(|realm| {
            let live = || realm.volumes().values().filter(|v| !v.root && !v.deleting());
            let volumes: Vec<(String, String)> = live()
                .map(|v| (v.tags.get(VOLUME_NAME).cloned().unwrap_or_default(), v.id.clone()))
                .collect();
            let snapshots: Vec<(String, String)> = realm
                .snapshots()
                .values()
                .map(|s| (s.tags.get(SNAPSHOT_NAME).cloned().unwrap_or_default(), s.id.clone()))
                .collect();
            let attachments: Vec<(String, String)> = live()
                .flat_map(|v| v.attachments.iter().map(|a| (v.id.clone(), a.instance.clone())))
                .collect();
            (volumes, snapshots, attachments)
        });
        for (kind, mut found, mut known) in [
            ("volume", volumes, self.known().volumes),
            ("snapshot", snapshots, self.known().snapshots),
            ("attachment", attachments, self.known().attachments),
        ] {
            found.sort();
            known.sort();
            for unknown in found.iter().filter(|f| !known.contains(f)) {
                self.record_violation(format!(
                    "at rest: a {kind} that nobody knows of: {unknown:?}"
                ));
            }
            for missing in known.iter().filter(|k| !found.contains(k)) {
                self.record_violation(format!("at rest: a {kind} that is lost: {missing:?}"));
            }
        }
    }
}
