//! Which of the snapshots that bear a group's name make up the group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebs_csi_ec2::{Snapshot, SnapshotState};
use ebs_csi_parameters::tag::GROUP_SNAPSHOT;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::SnapshotId;
use tokio::time::Instant;

use super::is_failed;
use crate::request::group::CreateGroup;
use crate::snapshot::{SHOWN_TTL, failed};

/// A group that was returned to a caller.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) members: Vec<Snapshot>,
    /// When EC2 last answered about the group.
    pub(super) looked: Instant,
    /// When each member was last shown.
    shown: BTreeMap<SnapshotId, Instant>,
}

impl Group {
    /// The group of these snapshots, which EC2 has just shown.
    pub(super) fn of(mut members: Vec<Snapshot>) -> Self {
        members.sort_by(|a, b| a.volume.cmp(&b.volume));
        let now = Instant::now();
        Self {
            shown: members.iter().map(|member| (member.id.clone(), now)).collect(),
            members,
            looked: now,
        }
    }

    pub(super) fn ids(&self) -> BTreeSet<SnapshotId> {
        self.shown.keys().cloned().collect()
    }

    /// Returns whether a later look can show a change: an error is final.
    pub(super) fn is_pending(&self) -> bool {
        !self.members.iter().any(is_failed)
            && self.members.iter().any(|member| member.state != SnapshotState::Completed)
    }

    /// # Errors
    /// [`Condition::Incompatible`] when the request asks for another group of this name.
    pub(super) fn check_request(&self, request: &CreateGroup) -> Result<(), Failure> {
        check_request(&self.members, request)
    }

    /// Returns the snapshots.
    ///
    /// # Errors
    /// A snapshot that EC2 could not make, or has not shown for [`SHOWN_TTL`].
    pub(super) fn usable(self) -> Result<Vec<Snapshot>, Failure> {
        if let Some(member) = self.members.iter().find(|member| is_failed(member)) {
            return Err(failed(member));
        }
        let is_gone = |at: &Instant| self.looked.duration_since(*at) >= SHOWN_TTL;
        match self.shown.iter().find(|(_, at)| is_gone(at)) {
            Some((id, _)) => Err(Failure::new(
                Condition::Local,
                format!(
                    "EC2 does not show snapshot {id} any more; if somebody deleted it, delete the group and take another"
                ),
            )),
            None => Ok(self.members),
        }
    }

    /// Returns those of `found` whose volumes are not in the group: such a volume was attached
    /// between the look at the instance and EC2's answer.
    pub(super) fn surplus(&self, found: &[Snapshot]) -> Vec<SnapshotId> {
        let is_member =
            |snapshot: &&Snapshot| self.members.iter().any(|it| it.volume == snapshot.volume);
        found.iter().filter(|it| !is_member(it)).map(|snapshot| snapshot.id.clone()).collect()
    }

    /// Takes over what a look showed.
    pub(super) fn update(&mut self, found: &[Snapshot], now: Instant) {
        self.looked = now;
        for member in &mut self.members {
            if let Some(found) = found.iter().find(|found| found.id == member.id) {
                self.shown.insert(member.id.clone(), now);
                *member = found.clone();
            }
        }
    }
}

fn request_of(snapshot: &Snapshot) -> Option<&str> {
    snapshot.tags.get(GROUP_SNAPSHOT).map(String::as_str)
}

fn check_request(members: &[Snapshot], request: &CreateGroup) -> Result<(), Failure> {
    match members.iter().find(|member| request_of(member) != Some(&request.request)) {
        None => Ok(()),
        Some(other) => Err(Failure::new(
            Condition::Incompatible,
            format!(
                "{} exists and was asked for with other volumes or parameters: {} of {}",
                request.id,
                other.id,
                other.volume.as_ref().map_or("another volume", |volume| volume.as_str()),
            ),
        )),
    }
}

/// What follows from the snapshots that a look showed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// There are none.
    None,
    /// More of them may appear.
    Incomplete(String),
    /// `members` are the group; the others are to be deleted.
    Complete { members: Vec<Snapshot>, surplus: Vec<SnapshotId> },
    /// These are not a group and will not become one; they are to be deleted.
    Remains(Vec<SnapshotId>),
}

/// Judges what looks showed. `age` is how long ago the youngest of the snapshots was first shown.
/// For `takeover`, more of them may appear, and a part of a group counts as such only after
/// [`SHOWN_TTL`]. `asked`: this process sent a request whose snapshots it has not returned.
///
/// # Errors
/// [`Condition::Incompatible`] when the name belongs to another request; [`Condition::Local`] when
/// a part is left of a group that may have been returned.
pub(super) fn judge(
    request: &CreateGroup,
    found: Vec<Snapshot>,
    age: Duration,
    takeover: Duration,
    asked: bool,
) -> Result<Verdict, Failure> {
    if found.is_empty() {
        return Ok(Verdict::None);
    }
    check_request(&found, request)?;
    let count = found.len();
    // A set with such a snapshot is deleted before it is returned, that snapshot last.
    let never_returned = asked || found.iter().any(is_failed);
    let all: Vec<_> = found.iter().map(|snapshot| snapshot.id.clone()).collect();
    let is_whole = |cut: &Vec<Snapshot>| {
        let volumes: BTreeSet<_> = cut.iter().filter_map(|member| member.volume.as_ref()).collect();
        request.volumes.iter().all(|volume| volumes.contains(volume))
    };
    // The oldest is kept: the process that took it may have returned it.
    let whole = cuts(found).into_values().find(is_whole);
    match whole {
        _ if age < takeover => Ok(Verdict::Incomplete(format!(
            "{count} snapshots of {} were found; more of them may appear",
            request.id
        ))),
        Some(mut members) => {
            members.retain(|member| request.asks_for(member));
            let is_member = |id: &SnapshotId| members.iter().any(|member| member.id == *id);
            let surplus = all.into_iter().filter(|id| !is_member(id)).collect();
            Ok(Verdict::Complete { members, surplus })
        }
        None if age < SHOWN_TTL => Ok(Verdict::Incomplete(format!(
            "{count} of the {} snapshots of {} are shown; the others may appear",
            request.volumes.len(),
            request.id
        ))),
        None if never_returned => Ok(Verdict::Remains(all)),
        None => Err(Failure::new(
            Condition::Local,
            format!(
                "{count} of the {} snapshots of {} are left, somebody deleted the others; delete the group and take another",
                request.volumes.len(),
                request.id
            ),
        )),
    }
}

/// Returns the snapshots by the request that took them: EC2 gives those of one request the same
/// start (EC2 API reference, CreateSnapshots).
fn cuts(found: Vec<Snapshot>) -> BTreeMap<Option<ebs_csi_ec2::Timestamp>, Vec<Snapshot>> {
    let mut cuts = BTreeMap::<_, Vec<_>>::new();
    for snapshot in found {
        cuts.entry(snapshot.started).or_default().push(snapshot);
    }
    cuts
}

/// Returns the snapshots of the request that took those that are listed; without a list, of the
/// oldest request.
pub(super) fn choose(found: Vec<Snapshot>, listed: &BTreeSet<SnapshotId>) -> Vec<Snapshot> {
    let cuts = cuts(found).into_values();
    let has_listed =
        |cut: &Vec<Snapshot>| listed.is_empty() || cut.iter().any(|it| listed.contains(&it.id));
    cuts.into_iter().find(has_listed).unwrap_or_default()
}

/// Checks that a list of some snapshots of a group names all: those that it does not name were
/// taken by another request, or of a volume that was not asked for.
///
/// # Errors
/// The snapshots of the group, when the list names too few.
pub(super) fn check_listed(
    found: &[Snapshot],
    listed: &BTreeSet<SnapshotId>,
) -> Result<(), BTreeSet<SnapshotId>> {
    let listed_members: Vec<_> = found.iter().filter(|it| listed.contains(&it.id)).collect();
    let Some(first) = listed_members.first() else { return Ok(()) };
    let asked = request_of(first).and_then(|words| words.split(' ').next()?.parse().ok());
    let cut: BTreeSet<_> = found
        .iter()
        .filter(|member| member.started == first.started)
        .map(|member| member.id.clone())
        .collect();
    match asked {
        Some(asked) if listed.len() < asked && !cut.is_subset(listed) => Err(cut),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ebs_csi_ec2::Timestamp;
    use ebs_csi_proto::csi;
    use ebs_csi_wire::VolumeId;

    use super::*;
    use crate::example::example_snapshot;

    const A: &str = "vol-0000000000000000a";
    const B: &str = "vol-0000000000000000b";
    const FOREIGN: &str = "vol-0000000000000000f";
    const TAKEOVER: Duration = Duration::from_secs(10);

    fn request(volumes: &[&str]) -> CreateGroup {
        let wire = csi::CreateVolumeGroupSnapshotRequest {
            name: "groupsnapshot-1".to_owned(),
            source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
            parameters: HashMap::new(),
            ..Default::default()
        };
        CreateGroup::parse(&wire).unwrap()
    }

    fn id(number: u8) -> SnapshotId {
        SnapshotId::parse(&format!("snap-{number:017x}")).unwrap()
    }

    /// Returns a snapshot by its number, volume and the second of its start.
    fn taken(number: u8, volume: &str, second: i64) -> Snapshot {
        let asked = request(&[A, B]).request;
        Snapshot {
            id: id(number),
            volume: VolumeId::parse(volume).ok(),
            started: Some(Timestamp { seconds: second, nanoseconds: 0 }),
            tags: [(GROUP_SNAPSHOT.to_owned(), asked)].into(),
            ..example_snapshot()
        }
    }

    #[test]
    fn verdict_follows_from_shown_snapshots_and_age() {
        let (a, b, foreign) = (taken(1, A, 1), taken(2, B, 1), taken(3, FOREIGN, 1));
        let (later_a, later_b) = (taken(4, A, 2), taken(5, B, 2));
        let pair = vec![a.clone(), b.clone()];
        let complete = |surplus: &[u8]| {
            let surplus = surplus.iter().map(|number| id(*number)).collect();
            Some(Verdict::Complete { members: pair.clone(), surplus })
        };
        let remains =
            |numbers: &[u8]| Some(Verdict::Remains(numbers.iter().map(|it| id(*it)).collect()));
        for (found, age, expected) in [
            (vec![], Duration::MAX, Some(Verdict::None)),
            (pair.clone(), Duration::ZERO, None),
            (pair.clone(), TAKEOVER, complete(&[])),
            (vec![a.clone(), b.clone(), foreign.clone()], TAKEOVER, complete(&[3])),
            (vec![later_a, later_b.clone(), a.clone(), b.clone()], TAKEOVER, complete(&[4, 5])),
            (vec![a.clone(), later_b.clone()], TAKEOVER, None),
            (vec![a.clone(), later_b], SHOWN_TTL, remains(&[1, 5])),
            (vec![a.clone(), foreign], SHOWN_TTL, remains(&[1, 3])),
        ] {
            let verdict = judge(&request(&[A, B]), found.clone(), age, TAKEOVER, true).unwrap();
            match expected {
                Some(expected) => assert_eq!(verdict, expected, "{found:?}"),
                None => assert!(matches!(verdict, Verdict::Incomplete(_)), "{verdict:?}"),
            }
        }
        for other in [&[A][..], &[A, B, FOREIGN]] {
            let refused = judge(&request(other), pair.clone(), TAKEOVER, TAKEOVER, true);
            assert_eq!(refused.unwrap_err().condition(), Condition::Incompatible);
        }
        let judge_part = |part: &Snapshot| {
            judge(&request(&[A, B]), vec![part.clone()], SHOWN_TTL, TAKEOVER, false)
        };
        assert_eq!(judge_part(&a).unwrap_err().condition(), Condition::Local);
        let failed = Snapshot { state: SnapshotState::Error, ..a };
        assert_eq!(judge_part(&failed).ok(), remains(&[1]));
    }

    #[test]
    fn list_lacking_group_member_is_refused() {
        let found = [taken(1, A, 1), taken(2, B, 1), taken(3, FOREIGN, 1), taken(4, A, 2)];
        let listed = |numbers: &[u8]| numbers.iter().map(|number| id(*number)).collect();
        for (numbers, accepted) in [
            (&[1, 2][..], true),
            // A member that was deleted by itself.
            (&[1, 2, 9], true),
            (&[], true),
            (&[1], false),
        ] {
            assert_eq!(check_listed(&found, &listed(numbers)).is_ok(), accepted, "{numbers:?}");
        }
        assert_eq!(choose(found.to_vec(), &listed(&[4])), [found[3].clone()]);
        assert_eq!(choose(found.to_vec(), &listed(&[])).len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn member_not_shown_for_long_fails_group() {
        let mut pending = taken(1, A, 1);
        pending.state = SnapshotState::Pending;
        let mut group = Group::of(vec![pending, taken(2, B, 1)]);
        let began = Instant::now();
        let done = [taken(1, A, 1), taken(3, FOREIGN, 1)];
        group.update(&[], began + SHOWN_TTL / 2);
        assert!(group.is_pending() && group.clone().usable().is_ok());
        group.update(&done, began + SHOWN_TTL / 2);
        assert!(!group.is_pending());
        assert_eq!(group.surplus(&done), [id(3)]);
        group.update(&done, began + SHOWN_TTL);
        let gone = group.usable().unwrap_err();
        assert_eq!(gone.condition(), Condition::Local);
        assert!(gone.text().contains(id(2).as_str()), "{gone}");
    }
}
