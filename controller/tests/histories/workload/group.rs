//! The life of volumes whose snapshots are taken together.

use std::sync::Arc;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::group_controller_server::GroupController as Service;
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as SourceType};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Workload, WorkloadVolume, publish};
use crate::history::{NODES, World};
use crate::orchestrator::{
    self, Pauses, Sidecar, call, may_be_in_progress, note_failure, repeat_until_success,
};
use crate::seeded_random::SeededRandom;

/// Runs the workload to its end. Returns `None` when the workload ended early, which was recorded
/// as a violation.
pub(crate) async fn run(world: Arc<World>, seed: u64, n: usize) -> Option<()> {
    let random = SeededRandom::of(seed, &format!("life of group {n}"));
    let mut workload = Workload { world, random, name: format!("member-{n}"), created: 0 };
    tokio::time::sleep(workload.random.millis(0, 20_000)).await;
    let mut volumes = Vec::new();
    for _ in 0..1 + workload.random.below(3) {
        volumes.extend(workload.create_volume(4, None).await);
    }
    for _ in 0..1 + workload.random.below(3) {
        let node = NODES[workload.random.below(2)];
        for volume in &volumes {
            orchestrator::attach(&workload.world, &publish(volume, node), None, false).await?;
        }
        if !volumes.is_empty() {
            workload.back_up_together(&volumes).await?;
        }
        for volume in &volumes {
            orchestrator::detach(&workload.world, &volume.id, node).await?;
        }
    }
    for volume in &volumes {
        orchestrator::delete_volume_of_claim(&workload.world, &volume.id).await?;
    }
    Some(())
}

impl Workload {
    /// Takes snapshots together; now and then restores one, and deletes them together or one by
    /// one.
    async fn back_up_together(&mut self, volumes: &[WorkloadVolume]) -> Option<()> {
        self.created += 1;
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: format!("groupsnapshot-{}-{}", self.name, self.created),
            source_volume_ids: volumes.iter().map(|volume| volume.id.clone()).collect(),
            ..Default::default()
        };
        let Some(group) = take(&self.world, &request, self.give_up_time(0.3)).await? else {
            return Some(());
        };
        let members: Vec<_> = group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect();
        if self.random.chance(0.3) {
            let snapshot_id = self.random.pick(&members).clone();
            self.use_once(4, SourceType::Snapshot(SnapshotSource { snapshot_id })).await?;
        }
        if self.random.chance(0.2) {
            for member in &members {
                orchestrator::delete_snapshot_of_claim(&self.world, member).await?;
            }
        } else if self.random.chance(0.8) {
            delete(&self.world, &group.group_snapshot_id, &members).await?;
        }
        Some(())
    }
}

/// Takes the snapshots, as csi-snapshotter does, and waits until they are ready. Returns `Some` of
/// `None` when they are given up and nothing is left over.
async fn take(
    world: &World,
    request: &csi::CreateVolumeGroupSnapshotRequest,
    unwanted_at: Option<Instant>,
) -> Option<Option<csi::VolumeGroupSnapshot>> {
    let name = &request.name;
    let digits: String =
        Sha256::digest(name).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let id = format!("vgs-{digits}");
    let mut pauses = Pauses::new();
    let mut may_continue = false;
    let mut members: Option<Vec<String>> = None;
    loop {
        if unwanted_at.is_some_and(|at| Instant::now() >= at) {
            if let Some(members) = &members {
                delete(world, &id, members).await?;
                return Some(None);
            }
            if !may_continue {
                world.ec2.note(format!("{name} is forgotten"));
                return Some(None);
            }
        }
        let answer = call(world, Sidecar::Snapshotter, request.clone(), |c, r| {
            c.create_volume_group_snapshot(r)
        });
        match answer.await {
            Ok(answer) => {
                let group = answer.group_snapshot?;
                world.check_group(request, &id, &group);
                let ids: Vec<_> = group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect();
                // The sidecar keeps the first ids.
                let first = members.get_or_insert_with(|| ids.clone());
                if *first != ids {
                    world.record_violation(format!("{name} is {first:?}, and then {ids:?}"));
                    return None;
                }
                for member in &ids {
                    world.add_known_snapshot(&id, member);
                }
                if group.ready_to_use {
                    return Some(Some(group));
                }
            }
            Err(status) => {
                note_failure(world, name, &status)?;
                may_continue = may_be_in_progress(status.code());
                if !may_continue && members.is_none() {
                    world.check_no_snapshot(&id, &status);
                }
                if let Some(members) = &members
                    && members.iter().any(|member| world.has_failed(member))
                {
                    // The user deletes the group, as the error message advises.
                    delete(world, &id, members).await?;
                    return Some(None);
                }
            }
        }
        pauses.pause().await;
    }
}

async fn delete(world: &World, id: &str, members: &[String]) -> Option<()> {
    let request = csi::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.to_vec(),
        ..Default::default()
    };
    let what = format!("delete {id}");
    repeat_until_success(world, Sidecar::Snapshotter, &what, request, |c, r| {
        c.delete_volume_group_snapshot(r)
    })
    .await?;
    for member in members {
        world.check_snapshot_deleted(member);
        world.remove_known_snapshot(member);
    }
    Some(())
}
