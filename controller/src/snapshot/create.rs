//! Taking a snapshot.
//!
//! EC2 creates a second snapshot when a request reaches it twice, and finds new ones by tag only
//! after a while. So each look-up permits one request, and after a lost answer the snapshot is
//! looked for, for longer than look-ups lag, before the request is sent again. Shortly after its
//! start, this process also looks for that long for a snapshot that the previous process requested.

use std::time::Duration;

use ebs_csi_ec2::{self as ec2, Call, Ec2, Ec2ErrorKind, Snapshot, SnapshotState, Timestamp};
use ebs_csi_parameters::SnapshotParameters;
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::promise::{Promise, fulfil};
use super::{LOOKUP_GAP, SHOWN_TTL, Snapshots, failed};
use crate::operation::Cancellation;
use crate::request::CreateSnapshot;

/// How long one creation may take, including the wait for its turn.
pub(super) const CREATE_TIME: Duration = Duration::from_secs(180);
/// How long look-ups by tag may lag behind a creation.
pub(super) const TAG_LAG: Duration = Duration::from_secs(10);
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How long fast restores and locks that were set are not set again.
const FINISHED_TTL: Duration = Duration::from_secs(24 * 3600);

impl Snapshots {
    pub(super) async fn create_now(
        self,
        request: CreateSnapshot,
        cancellation: Cancellation,
    ) -> Result<Snapshot, Failure> {
        let call = Call::until(Instant::now() + CREATE_TIME);
        let until = match self.unclear.get(&request.name) {
            Some(()) => self.takeover_ends.max(Instant::now() + TAG_LAG),
            None => self.takeover_ends,
        };
        if let Some(snapshot) = find_until(&self.ec2, &call, &request, until).await? {
            self.remember(&request.name, &snapshot);
            if snapshot.state == SnapshotState::Error {
                // A caller that does not know the id could never delete the failed snapshot, and a
                // caller that knows it would not learn of another one. So the failed snapshot is
                // returned once.
                return match self.returned.get(&request.name) == Some(snapshot.id.clone()) {
                    true => Err(failed(&snapshot)),
                    false => Ok(snapshot),
                };
            }
            // The process may have crashed between the snapshot and its fast restores and lock.
            let promise =
                Promise::from_tags(&snapshot.tags).unwrap_or_else(|| Promise::of(&request.class));
            self.fulfil_promise(&call, &request.name, &snapshot, &promise, true).await?;
            return Ok(snapshot);
        }
        if self.may_be_hidden(&request.name) {
            return Err(Failure::pending(format!(
                "a snapshot named {} was taken or asked for a short while ago, and EC2 does not show it; if somebody has deleted it, another is taken {} min after it was seen last",
                request.name,
                SHOWN_TTL.as_secs() / 60
            )));
        }
        check_lock(&request.class, self.ec2.now())?;
        check_zones(&self.ec2, &call, &request.class).await?;
        let promise = Promise::of(&request.class);
        let mut tags = self.tags.of_snapshot(&request.name, &request.class)?;
        tags.extend(promise.to_tags());
        let create = ec2::CreateSnapshot {
            volume: request.volume.clone(),
            description: format!("Created by AWS EBS CSI driver for volume {}", request.volume),
            outpost_arn: request.class.outpost.clone(),
            tags,
        };
        // The caller may have got its snapshot from another process by now: EC2 would create a
        // second one.
        cancellation.check_wanted()?;
        let wanted = call.clone().while_wanted(cancellation.wanted());
        let snapshot = match self.ec2.create_snapshot(&wanted, &create).await {
            Ok(snapshot) => snapshot,
            Err(error) if error.may_have_happened() => {
                self.unclear.put(&request.name, (), LOOKUP_GAP);
                tracing::warn!(name = request.name, %error, "whether the snapshot was taken is looked for by its name");
                find_until(&self.ec2, &call, &request, Instant::now() + TAG_LAG)
                    .await?
                    .ok_or_else(|| error.pending())?
            }
            Err(error) if error.kind == Ec2ErrorKind::VolumeNotFound => {
                return Err(Failure::not_found("source volume", &request.volume));
            }
            Err(error) => return Err(error.into()),
        };
        self.remember(&request.name, &snapshot);
        if snapshot.state == SnapshotState::Error {
            return Ok(snapshot);
        }
        match self.fulfil_promise(&call, &request.name, &snapshot, &promise, false).await {
            Ok(()) => Ok(snapshot),
            // The caller calls again, and the promise is in the snapshot's tags: no second snapshot
            // is needed.
            Err(why) if why.condition().may_be_in_progress() => Err(why),
            Err(why) => Err(self.delete_unfulfilled(&call, &snapshot, why).await),
        }
    }

    /// Remembers a snapshot that EC2 showed, also when nobody waits for it any more.
    fn remember(&self, name: &str, snapshot: &Snapshot) {
        self.shown.put(name, snapshot.id.clone(), SHOWN_TTL);
    }

    /// Returns whether EC2 recently showed, accepted or may have accepted a snapshot of this name.
    fn may_be_hidden(&self, name: &str) -> bool {
        self.shown.get(name).is_some() || self.unclear.get(name).is_some()
    }

    /// Fulfils the promise of the snapshot, once per [`FINISHED_TTL`].
    async fn fulfil_promise(
        &self,
        call: &Call,
        name: &str,
        snapshot: &Snapshot,
        promise: &Promise,
        found: bool,
    ) -> Result<(), Failure> {
        if promise.is_empty() || self.finished.get(name).is_some() {
            return Ok(());
        }
        fulfil(&self.ec2, call, &snapshot.id, promise, found).await?;
        self.finished.put(name, (), FINISHED_TTL);
        Ok(())
    }

    /// Deletes a snapshot whose promise could not be fulfilled: it must not stay without its lock.
    async fn delete_unfulfilled(&self, call: &Call, snapshot: &Snapshot, why: Failure) -> Failure {
        match self.ec2.delete_snapshot(call, &snapshot.id).await {
            Err(error) if error.kind != Ec2ErrorKind::SnapshotNotFound => {
                Failure::pending(format!("{why}; deleting the snapshot failed too: {error}"))
            }
            Ok(()) | Err(_) => {
                self.shown.remove_if(|id| *id == snapshot.id);
                why
            }
        }
    }
}

/// Refuses a lock that ends before it begins. EC2 would refuse it only after the snapshot exists,
/// which would then have to be deleted.
pub(super) fn check_lock(class: &SnapshotParameters, now: Timestamp) -> Result<(), Failure> {
    let expiration = class.lock.as_ref().and_then(|lock| lock.expiration).map(Timestamp::from);
    match expiration {
        Some(expiration) if expiration <= now => Err(Failure::invalid(
            "parameters.lockExpirationDate",
            format!(
                "{expiration} has passed (it is {now}), and no snapshot was taken; use a later date, or lockDuration, in a new VolumeSnapshotClass"
            ),
        )),
        _ => Ok(()),
    }
}

/// Finds the snapshot that has the name; when there is none, repeats until a look that began after
/// `until` finds none either.
async fn find_until(
    ec2: &Ec2,
    call: &Call,
    request: &CreateSnapshot,
    until: Instant,
) -> Result<Option<Snapshot>, Failure> {
    loop {
        let look_began = Instant::now();
        // An unknown state must not be reported as "nothing was done": an earlier request may have
        // taken the snapshot.
        let named = ec2.snapshots_by_name(call, &request.name).await;
        let found = choose(request, named.map_err(|error| error.pending())?)?;
        if found.is_some() || look_began >= until {
            return Ok(found);
        }
        tokio::time::sleep_until(until.min(look_began + LOOK_INTERVAL)).await;
    }
}

/// Returns the oldest of the snapshots of one name; a failed one when there is no other.
fn choose(request: &CreateSnapshot, snapshots: Vec<Snapshot>) -> Result<Option<Snapshot>, Failure> {
    let (broken, mut snapshots): (Vec<_>, Vec<_>) =
        snapshots.into_iter().partition(|snapshot| snapshot.state == SnapshotState::Error);
    // The caller may know the failed snapshot by its id: another one under its name would belong to
    // nobody.
    if snapshots.is_empty() {
        return Ok(broken.into_iter().next());
    }
    snapshots.sort_by(|a, b| (a.started, &a.id).cmp(&(b.started, &b.id)));
    if snapshots.len() > 1 {
        let ids: Vec<_> = snapshots.iter().map(|snapshot| snapshot.id.as_str()).collect();
        tracing::warn!(
            name = request.name,
            ids = ids.join(","),
            "several snapshots bear one name; the oldest is used, delete the others if nothing refers to them"
        );
    }
    let Some(snapshot) = snapshots.into_iter().next() else {
        return Ok(None);
    };
    if snapshot.volume.as_ref() != Some(&request.volume) {
        let of = snapshot.volume.as_ref().map_or("another volume", |volume| volume.as_str());
        return Err(Failure::new(
            Condition::Incompatible,
            format!("a snapshot named {} exists and is of {of}: {}", request.name, snapshot.id),
        ));
    }
    Ok(Some(snapshot))
}

/// Refuses zones that do not exist before a snapshot is taken. A failure to list the zones is
/// ignored: EC2 reports a wrong zone later.
pub(super) async fn check_zones(
    ec2: &Ec2,
    call: &Call,
    class: &SnapshotParameters,
) -> Result<(), Failure> {
    let wanted = &class.fast_restore_zones;
    if wanted.is_empty() {
        return Ok(());
    }
    let zones = match ec2.availability_zones(call).await {
        Ok(zones) => zones,
        Err(error) => {
            tracing::warn!(%error, "the zones of fastSnapshotRestoreAvailabilityZones are not checked");
            return Ok(());
        }
    };
    match wanted.iter().find(|name| !zones.iter().any(|zone| zone.name == **name)) {
        None => Ok(()),
        Some(unknown) => Err(Failure::invalid(
            "parameters.fastSnapshotRestoreAvailabilityZones",
            format!("{unknown:?} is not a zone of this account and Region"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_wire::{SnapshotId, VolumeId};

    use super::*;
    use ebs_csi_ec2::Timestamp;

    use crate::example::example_snapshot;

    fn snapshot(n: u8, volume: &str, state: SnapshotState) -> Snapshot {
        Snapshot {
            id: SnapshotId::parse(&format!("snap-{n:017x}")).unwrap(),
            state,
            volume: VolumeId::parse(volume).ok(),
            started: Some(Timestamp { seconds: i64::from(n), nanoseconds: 0 }),
            ..example_snapshot()
        }
    }

    /// A snapshot with the same name but of another volume is `Incompatible`.
    #[test]
    fn oldest_unfailed_snapshot_is_kept_else_failed_one() {
        const OURS: &str = "vol-0123456789abcdef0";
        const OTHER: &str = "vol-0123456789abcdef1";
        let request = CreateSnapshot {
            name: "s".to_owned(),
            volume: VolumeId::parse(OURS).unwrap(),
            class: Default::default(),
        };
        let kept = choose(
            &request,
            vec![
                snapshot(9, OURS, SnapshotState::Completed),
                snapshot(1, OURS, SnapshotState::Error),
                snapshot(5, OURS, SnapshotState::Pending),
            ],
        );
        assert_eq!(kept.unwrap().unwrap().id, snapshot(5, OURS, SnapshotState::Pending).id);
        let broken = snapshot(1, OURS, SnapshotState::Error);
        assert_eq!(choose(&request, vec![broken.clone()]), Ok(Some(broken)));
        assert_eq!(choose(&request, Vec::new()), Ok(None));
        let other = choose(&request, vec![snapshot(1, OTHER, SnapshotState::Completed)]);
        assert_eq!(other.unwrap_err().condition(), Condition::Incompatible);
    }
}
