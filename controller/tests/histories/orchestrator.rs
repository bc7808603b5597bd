//! Simulates the container orchestrator: four sidecars that call as the real ones do, each with a
//! leader in one of two pods.
//!
//! external-provisioner and external-snapshotter interpret codes as follows. CANCELLED,
//! DEADLINE_EXCEEDED, UNAVAILABLE and ABORTED mean that the work may still be in progress, so the
//! sidecar repeats the call until it knows the result, even when nobody wants the result any more,
//! in order to delete it. Every other code is final: when nobody wants the result any more, the
//! sidecar forgets it, and whatever EC2 has made is left over for ever. The other sidecars repeat
//! their call until it succeeds.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_controller::csi::service::Controller;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use ebs_csi_proto::{Condition, Failure, csi};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use super::history::World;
use super::seeded_random::SeededRandom;
use ebs_csi_controller::ordered_watch::OrderedWatch;

/// The time within which every call must succeed.
const ENDS_AFTER: Duration = Duration::from_secs(7_200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sidecar {
    Provisioner,
    Attacher,
    Resizer,
    Snapshotter,
}

pub(crate) const SIDECARS: [Sidecar; 4] =
    [Sidecar::Provisioner, Sidecar::Attacher, Sidecar::Resizer, Sidecar::Snapshotter];

impl Sidecar {
    fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Attacher => 360,
            _ => 60,
        })
    }
}

/// Returns whether the sidecars take the code to mean that the work may still be in progress.
pub(crate) fn may_be_in_progress(code: Code) -> bool {
    matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted)
}

/// The replica to which each sidecar's leader speaks, or `None` while there is no leader.
#[derive(Debug)]
pub(crate) struct Leaders([OrderedWatch<Option<usize>>; 4]);

impl Leaders {
    pub(crate) fn of(seed: u64) -> Self {
        let random = SeededRandom::of(seed, "first leaders");
        Self([(); 4].map(|()| OrderedWatch::new(Some(random.below(2)))))
    }

    fn of_sidecar(&self, sidecar: Sidecar) -> &OrderedWatch<Option<usize>> {
        &self.0[sidecar as usize]
    }
}

/// Moves the leadership of one sidecar: when its pod's controller dies, and now and then without a
/// reason.
pub(crate) async fn move_leadership(world: Arc<World>, sidecar: Sidecar, seed: u64) {
    let random = SeededRandom::of(seed, &format!("{sidecar:?} leads"));
    let leader = world.leaders.of_sidecar(sidecar);
    loop {
        let at = leader.get().unwrap_or(0);
        let Some(process) = world.replicas[at].process() else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        let handover = async {
            tokio::time::sleep(random.millis(10_000, 120_000)).await;
            if !world.faults.handovers || world.faults.is_calm() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            _ = process.dead.wait_for(|dead| *dead) => {}
            () = handover => {}
        }
        leader.set(None);
        // Another pod gets the lease only after a delay.
        tokio::time::sleep(random.millis(2_500, 12_000)).await;
        let next = random.below(2);
        leader.set(Some(next));
        world.ec2.note(format!("{sidecar:?} leads at replica {next}"));
    }
}

pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(Duration::from_secs(1))
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        // The real pauses grow to minutes, but longer pauses would show nothing new.
        self.0 = (self.0 * 2).min(Duration::from_secs(20));
    }
}

fn unavailable(why: &str) -> Status {
    Failure::new(Condition::BackendDown, why).into()
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

pub(crate) async fn call<M, T>(
    world: &World,
    sidecar: Sidecar,
    message: M,
    rpc: impl FnOnce(&Controller, Request<M>) -> Answer<'_, T>,
) -> Result<T, Status> {
    let leader = world.leaders.of_sidecar(sidecar);
    let at = leader.wait_for(Option::is_some).await.unwrap_or(0);
    let Some(process) = world.replicas[at].process() else {
        return Err(unavailable("nobody listens"));
    };
    let limit = world.short_timeout.unwrap_or(sidecar.timeout());
    let mut request = Request::new(message);
    request.set_timeout(limit);
    let answer = rpc(&process.controller, request);
    tokio::select! {
        biased;
        _ = process.dead.wait_for(|dead| *dead) => Err(unavailable("the connection broke")),
        // The new leader calls again; nobody waits for this answer any more.
        _ = leader.wait_for(Option::is_none) => {
            Err(unavailable("the sidecar is no longer the leader"))
        }
        // The transport cuts the call off at the limit, whatever the service does.
        answer = tokio::time::timeout(limit, answer) => match answer {
            Ok(answer) => answer.map(Response::into_inner),
            Err(_) => Err(Failure::new(Condition::DeadlinePassed, "cut off").into()),
        },
    }
}

/// Repeats the call until it succeeds. Returns `None`, and records a violation, when it never does.
pub(crate) async fn repeat_until_success<M: Clone, T>(
    world: &World,
    sidecar: Sidecar,
    what: &str,
    message: M,
    rpc: impl Fn(&Controller, Request<M>) -> Answer<'_, T>,
) -> Option<T> {
    let mut pauses = Pauses::new();
    loop {
        match call(world, sidecar, message.clone(), &rpc).await {
            Ok(answer) => return Some(answer),
            Err(status) => note_failure(world, what, &status)?,
        }
        pauses.pause().await;
    }
}

/// Notes the failure. Returns `None`, and records a violation, when the call should have succeeded
/// long ago or can never succeed.
pub(crate) fn note_failure(world: &World, what: &str, status: &Status) -> Option<()> {
    world.ec2.note(format!("{what}: {status}"));
    if matches!(
        status.code(),
        Code::InvalidArgument
            | Code::Unimplemented
            | Code::OutOfRange
            | Code::AlreadyExists
            | Code::Unknown
    ) {
        world.record_violation(format!("{what}: no true answer to such a request: {status}"));
        return None;
    }
    if world.began.elapsed() > ENDS_AFTER {
        world.record_violation(format!("{what}: never succeeds: {status}"));
        return None;
    }
    Some(())
}

/// Creates the volume, as external-provisioner does. Returns `None` when the volume is given up and
/// nothing is left over, or when a violation was recorded.
pub(crate) async fn provision(
    world: &World,
    request: &csi::CreateVolumeRequest,
    unwanted_at: Option<Instant>,
) -> Option<csi::Volume> {
    let name = &request.name;
    let mut pauses = Pauses::new();
    let mut may_continue = false;
    loop {
        let unwanted = || unwanted_at.is_some_and(|at| Instant::now() >= at);
        if unwanted() && !may_continue {
            world.ec2.note(format!("{name} is forgotten"));
            return None;
        }
        let answer = call(world, Sidecar::Provisioner, request.clone(), |c, r| c.create_volume(r));
        match answer.await {
            Ok(answer) => {
                let volume = answer.volume?;
                world.check_created(request, &volume);
                if unwanted() {
                    delete_volume_of_claim(world, &volume.volume_id).await?;
                    return None;
                }
                world.add_known_volume(name, &volume.volume_id);
                return Some(volume);
            }
            Err(status) => {
                note_failure(world, name, &status)?;
                may_continue = may_be_in_progress(status.code());
                if !may_continue {
                    world.check_not_created(name, &status);
                }
            }
        }
        pauses.pause().await;
    }
}

pub(crate) async fn delete_volume_of_claim(world: &World, id: &str) -> Option<()> {
    let request = csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    let what = format!("delete {id}");
    repeat_until_success(world, Sidecar::Provisioner, &what, request, |c, r| c.delete_volume(r))
        .await?;
    world.check_deleted(id);
    world.remove_known_volume(id);
    Some(())
}

/// Attaches, as external-attacher does, until the call succeeds or nobody wants the attachment any
/// more. Returns whether the volume is attached.
pub(crate) async fn attach(
    world: &World,
    request: &csi::ControllerPublishVolumeRequest,
    unwanted_at: Option<Instant>,
    disturbed: bool,
) -> Option<bool> {
    let (volume, node) = (&request.volume_id, &request.node_id);
    let what = format!("attach {volume} to {node}");
    let mut pauses = Pauses::new();
    loop {
        let answer =
            call(world, Sidecar::Attacher, request.clone(), |c, r| c.controller_publish_volume(r));
        let answer = match unwanted_at {
            // The attacher may be restarted during its call.
            Some(at) => match tokio::time::timeout_at(at, answer).await {
                Ok(answer) => answer,
                Err(_) => return Some(false),
            },
            None => answer.await,
        };
        match answer {
            Ok(answer) => {
                if !disturbed {
                    world.check_attached(volume, node, &answer.publish_context);
                }
                return Some(true);
            }
            Err(status) => {
                note_failure(world, &what, &status)?;
                if status.code() == Code::NotFound {
                    world.check_missing(volume, node, &status);
                    return Some(false);
                }
            }
        }
        if unwanted_at.is_some_and(|at| Instant::now() >= at) {
            return Some(false);
        }
        pauses.pause().await;
    }
}

/// Detaches, as external-attacher does, until the call succeeds.
pub(crate) async fn detach(world: &World, volume: &str, node: &str) -> Option<()> {
    let request = csi::ControllerUnpublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    };
    let what = format!("detach {volume} from {node}");
    repeat_until_success(world, Sidecar::Attacher, &what, request, |c, r| {
        c.controller_unpublish_volume(r)
    })
    .await?;
    world.check_detached(volume, node);
    Some(())
}

/// Takes the snapshot, as external-snapshotter does, and waits until it is ready. Returns `None`
/// when the snapshot is given up and nothing is left over, or when something was blamed.
pub(crate) async fn snapshot(
    world: &World,
    request: &csi::CreateSnapshotRequest,
    unwanted_at: Option<Instant>,
) -> Option<csi::Snapshot> {
    let name = &request.name;
    let mut pauses = Pauses::new();
    let mut may_continue = false;
    let mut handle: Option<String> = None;
    loop {
        if unwanted_at.is_some_and(|at| Instant::now() >= at) {
            if let Some(id) = &handle {
                delete_snapshot_of_claim(world, id).await?;
                return None;
            }
            if !may_continue {
                world.ec2.note(format!("{name} is forgotten"));
                return None;
            }
        }
        let answer =
            call(world, Sidecar::Snapshotter, request.clone(), |c, r| c.create_snapshot(r));
        match answer.await {
            Ok(answer) => {
                let snapshot = answer.snapshot?;
                world.check_snapshot(request, &snapshot);
                // The sidecar keeps the first handle, so a snapshot that a later answer names would
                // be leaked.
                let id = &snapshot.snapshot_id;
                let first = handle.get_or_insert_with(|| id.clone());
                if first != id {
                    world.record_violation(format!("{name} is {first}, and then {id}"));
                    return None;
                }
                world.add_known_snapshot(name, id);
                if snapshot.ready_to_use {
                    return Some(snapshot);
                }
            }
            Err(status) => {
                note_failure(world, name, &status)?;
                may_continue = may_be_in_progress(status.code());
                if !may_continue && handle.is_none() {
                    world.check_no_snapshot(name, &status);
                }
                if let Some(id) = &handle
                    && world.has_failed(id)
                {
                    // The user deletes the snapshot, as the error message advises.
                    delete_snapshot_of_claim(world, &id.clone()).await?;
                    return None;
                }
            }
        }
        pauses.pause().await;
    }
}

pub(crate) async fn delete_snapshot_of_claim(world: &World, id: &str) -> Option<()> {
    let request = csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    let what = format!("delete {id}");
    repeat_until_success(world, Sidecar::Snapshotter, &what, request, |c, r| c.delete_snapshot(r))
        .await?;
    world.check_snapshot_deleted(id);
    world.remove_known_snapshot(id);
    Some(())
}
