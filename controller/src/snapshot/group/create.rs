//! Taking the snapshots of a group.

use std::collections::BTreeSet;
use std::time::Duration;

use ebs_csi_ec2::{self as ec2, Call, Ec2Error, Ec2ErrorKind, Snapshot};
use ebs_csi_parameters::tag::GROUP_SNAPSHOT;
use ebs_csi_proto::Failure;
use ebs_csi_wire::SnapshotId;
use tokio::time::Instant;

use super::members::{Verdict, judge};
use super::source::{common_instance, exclusions};
use super::{Groups, Seen, is_failed};
use crate::operation::Cancellation;
use crate::request::group::{CreateGroup, GroupId};
use crate::request::tags::Tags;
use crate::snapshot::create::{CREATE_TIME, LOOK_INTERVAL, TAG_LAG, check_lock, check_zones};
use crate::snapshot::promise::{Promise, fulfil};
use crate::snapshot::{LOOKUP_GAP, RETURNED_TTL, SHOWN_TTL};

impl Groups {
    pub(super) async fn create_now(
        self,
        request: CreateGroup,
        cancellation: Cancellation,
    ) -> Result<Vec<Snapshot>, Failure> {
        let id = request.id.as_str();
        let call = Call::until(Instant::now() + CREATE_TIME);
        let wanted = call.clone().while_wanted(cancellation.wanted());
        let sent = self.asked.get(id).filter(|sent| sent.elapsed() < LOOKUP_GAP);
        let until = match sent {
            Some(_) => self.takeover_ends.max(Instant::now() + TAG_LAG),
            None => self.takeover_ends,
        };
        if let Some(members) = self.find_until(&call, &request, until).await? {
            return self.adopt(&wanted, &request, members, true).await;
        }
        if sent.is_some() {
            return Err(Failure::pending(format!(
                "{id} was asked for a short while ago, and EC2 does not show it yet"
            )));
        }
        check_lock(&request.class, self.ec2.now())?;
        check_zones(&self.ec2, &call, &request.class).await?;
        let mut tags = self.tags.of_snapshot(id, &request.class)?;
        tags.extend(Promise::of(&request.class).to_tags());
        tags.insert(GROUP_SNAPSHOT.to_owned(), request.request.clone());
        let plan = self.plan(&call, &request, tags).await?;
        cancellation.check_wanted()?;
        self.asked.put(id, Instant::now(), RETURNED_TTL);
        let made = match &plan {
            Plan::One(create) => self.ec2.create_snapshot(&wanted, create).await.map(|it| vec![it]),
            Plan::Several(create) => self.ec2.create_snapshots(&wanted, create).await,
        };
        let (members, found) = match made {
            Ok(made) => (self.accept(&call, &request, made).await?, false),
            Err(error) if error.may_have_happened() => {
                tracing::warn!(group = id, %error, "whether the snapshots were taken is looked for by their name");
                let until = Instant::now() + TAG_LAG;
                let members = self.find_until(&call, &request, until).await?;
                (members.ok_or_else(|| error.pending())?, true)
            }
            Err(error) => {
                self.asked.remove(id);
                return Err(refused(&error));
            }
        };
        self.replace_failed(&wanted, &request, &members).await?;
        self.adopt(&wanted, &request, members, found).await
    }

    /// Looks at the volumes, and at the instance that has them.
    async fn plan(&self, call: &Call, request: &CreateGroup, tags: Tags) -> Result<Plan, Failure> {
        let ids: Vec<_> = request.volumes.iter().cloned().collect();
        if let [volume] = &ids[..] {
            return Ok(Plan::One(ec2::CreateSnapshot {
                volume: volume.clone(),
                description: format!("Created by AWS EBS CSI driver for volume {volume}"),
                outpost_arn: None,
                tags,
            }));
        }
        let mut volumes = Vec::with_capacity(ids.len());
        for (id, look) in ids.iter().zip(self.ec2.look_volumes(call, &ids).await) {
            let found = look.known()?;
            volumes.push(found.ok_or_else(|| Failure::not_found("source volume", id))?);
        }
        let instance = common_instance(&volumes)?;
        let look = self.ec2.look_instance(call, &instance).await;
        let found = look.known()?;
        let found = found.ok_or_else(|| Failure::not_found("instance", &instance))?;
        let (exclude_root, excluded) = exclusions(&found, &request.volumes)?;
        Ok(Plan::Several(ec2::CreateSnapshots {
            instance,
            exclude_root,
            excluded,
            description: format!("Created by AWS EBS CSI driver for group {}", request.id),
            tags,
        }))
    }

    /// Checks that EC2 made what was asked for.
    async fn accept(
        &self,
        call: &Call,
        request: &CreateGroup,
        mut made: Vec<Snapshot>,
    ) -> Result<Vec<Snapshot>, Failure> {
        // Answers need not hold the tags.
        for snapshot in &mut made {
            snapshot.tags.insert(GROUP_SNAPSHOT.to_owned(), request.request.clone());
        }
        // Looks may hide the snapshots, and nobody may wait for them any more.
        self.remember(&request.id, made.clone(), Instant::now());
        let (members, surplus): (Vec<_>, Vec<_>) =
            made.into_iter().partition(|snapshot| request.asks_for(snapshot));
        let volumes: BTreeSet<_> =
            members.iter().filter_map(|member| member.volume.clone()).collect();
        // A volume that was attached after the look.
        self.discard(call, &ids(&surplus)).await?;
        if volumes != request.volumes {
            let made = volumes.len();
            return Err(self
                .discard_all(
                    call,
                    request,
                    &members,
                    &format!("EC2 took snapshots of {made} of its volumes only"),
                )
                .await);
        }
        Ok(members)
    }

    /// Deletes the snapshots that this operation's request took if EC2 could not make one of them:
    /// a caller that does not know the ids could never delete them. `wanted` are calls for a caller
    /// that waits: when the caller has gone, another process may be about to return the ids, and
    /// after an earlier operation it may have done so.
    async fn replace_failed(
        &self,
        wanted: &Call,
        request: &CreateGroup,
        members: &[Snapshot],
    ) -> Result<(), Failure> {
        let Some(failed) = members.iter().find(|member| is_failed(member)) else {
            return Ok(());
        };
        let reason = failed.message.as_deref().unwrap_or("it gives no reason");
        let why = format!("EC2 could not make snapshot {}: {reason}", failed.id);
        Err(self.discard_all(wanted, request, members, &why).await)
    }

    /// Makes the snapshots of a complete group usable. `found`: a request of another process took
    /// them perhaps. The caller gets the ids of failed snapshots once, to delete them.
    async fn adopt(
        &self,
        wanted: &Call,
        request: &CreateGroup,
        members: Vec<Snapshot>,
        found: bool,
    ) -> Result<Vec<Snapshot>, Failure> {
        if members.iter().any(is_failed) {
            return Ok(members);
        }
        let promise = members
            .first()
            .and_then(|member| Promise::from_tags(&member.tags))
            .unwrap_or_else(|| Promise::of(&request.class));
        for member in &members {
            match fulfil(&self.ec2, wanted, &member.id, &promise, found).await {
                Ok(()) => {}
                // The caller calls again, and the promise is in the tags.
                Err(why) if why.condition().may_be_in_progress() => return Err(why),
                Err(why) => {
                    self.discard(wanted, &ids(&members)).await?;
                    self.asked.remove(request.id.as_str());
                    return Err(why);
                }
            }
        }
        Ok(members)
    }

    /// Looks for the group until it is complete, or until a look that began after `until` shows
    /// none of its snapshots. Deletes what does not belong to it.
    async fn find_until(
        &self,
        call: &Call,
        request: &CreateGroup,
        until: Instant,
    ) -> Result<Option<Vec<Snapshot>>, Failure> {
        loop {
            let began = Instant::now();
            let found = self.find_named(call, &request.id).await?;
            let seen = self.remember(&request.id, found, began);
            let ages = seen.values().map(|(first, _)| began.duration_since(*first));
            let age = ages.min().unwrap_or(Duration::MAX);
            let seen = seen.into_values().map(|(_, snapshot)| snapshot).collect();
            let asked = self.asked.get(request.id.as_str()).is_some();
            match judge(request, seen, age, self.takeover, asked)? {
                Verdict::None if began >= until => return Ok(None),
                Verdict::Incomplete(why) if age >= self.takeover => {
                    return Err(Failure::pending(why));
                }
                Verdict::None | Verdict::Incomplete(_) => {
                    tokio::time::sleep_until(began + LOOK_INTERVAL).await;
                }
                Verdict::Complete { members, surplus } => {
                    self.discard(call, &surplus).await?;
                    return Ok(Some(members));
                }
                Verdict::Remains(all) => {
                    self.discard(call, &all).await?;
                    return Err(Failure::pending(format!(
                        "a part of {} was left, and is deleted; ask again",
                        request.id
                    )));
                }
            }
        }
    }

    /// Adds what a look showed to what earlier looks showed. Returns all that is not deleted.
    fn remember(&self, id: &GroupId, found: Vec<Snapshot>, began: Instant) -> Seen {
        let mut seen = self.seen.get(id.as_str()).unwrap_or_default();
        for snapshot in found {
            let first = seen.get(&snapshot.id).map_or(began, |(first, _)| *first);
            seen.insert(snapshot.id.clone(), (first, snapshot));
        }
        seen.retain(|id, _| self.deleted.get(id.as_str()).is_none());
        self.seen.put(id.as_str(), seen.clone(), SHOWN_TTL);
        seen
    }

    pub(super) async fn discard(&self, call: &Call, ids: &[SnapshotId]) -> Result<(), Failure> {
        for id in ids {
            self.delete_snapshot(call, id).await.map_err(|why| {
                Failure::pending(format!(
                    "snapshot {id} is not part of a group, and is not deleted: {why}"
                ))
            })?;
            tracing::info!(snapshot = id.as_str(), "deleted: it is not part of a group");
        }
        Ok(())
    }

    /// Deletes the snapshots, so that the next request takes others.
    async fn discard_all(
        &self,
        call: &Call,
        request: &CreateGroup,
        members: &[Snapshot],
        why: &str,
    ) -> Failure {
        let (failed, good): (Vec<_>, Vec<_>) = members.iter().cloned().partition(is_failed);
        // Whoever finds the rest after a crash then knows that the set was not returned.
        match self.discard(call, &ids(&[good, failed].concat())).await {
            Ok(()) => {
                self.asked.remove(request.id.as_str());
                Failure::pending(format!(
                    "{why}; the snapshots of {} are deleted, ask again",
                    request.id
                ))
            }
            Err(failure) => failure.context(why),
        }
    }
}

fn ids(snapshots: &[Snapshot]) -> Vec<SnapshotId> {
    snapshots.iter().map(|snapshot| snapshot.id.clone()).collect()
}

enum Plan {
    /// Of one volume, which need not be attached.
    One(ec2::CreateSnapshot),
    /// Of several volumes of an instance.
    Several(ec2::CreateSnapshots),
}

fn refused(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Unauthorized => Failure::new(
            error.condition(),
            format!(
                "{error}; policy/iam/group-snapshots.json permits it, on the instance, on the volumes of the group and on snapshots, and EC2 may ask about the instance's other volumes too"
            ),
        ),
        _ => error.into(),
    }
}
