//! Memory when idle, with many volumes, and over many calls.

use std::time::Duration;

use csi::DeleteVolumeRequest;
use ebs_csi_proto::csi;

use super::load::{Sidecars, Workers, claim};
use crate::contestant::{Contestant, in_world, pid};
use crate::error::{BenchError, Result, failed_call};
use crate::extent::Extent;
use crate::process_usage::{MEMORY_KINDS, memory_kinds, memory_mib};
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::join_all;

const WORKERS: usize = 100;

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let many = extent.of(20, 10_000, 10_000);
    let mut idle = Figure::new("memory-idle", "memory of the controller, idle", "MiB")
        .at_most(Statistic::Median, 12.0)
        .note("Proportional set size from smaps_rollup, 3 seconds after the first good Probe; each sample is a process of its own.");
    let mut loaded = Figure::new("memory-volumes", &format!("memory of the controller after creating {many} volumes"), "MiB")
        .at_most(Statistic::Median, 24.0)
        .note("100 workers, no quota, EC2 at 0 ms; looked at 3 seconds after the last call. EC2 holds the volumes; the controller keeps what its caches allow.");
    for contestant in contestants {
        let (mut at_rest, mut after) = (Vec::new(), Vec::new());
        let mut kinds = Vec::new();
        for round in 0..extent.of(1, 3, 3) {
            let world = contestant.unlimited_world(1).await?;
            in_world(world, async |world| {
                tokio::time::sleep(Duration::from_secs(3)).await;
                at_rest.push(memory_mib(&[pid(world)?]));
                kinds.push(memory_kinds(pid(world)?)?);
                if round == 0 {
                    create(&Sidecars::new(world, WORKERS)?, many).await?;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    after.push(memory_mib(&[pid(world)?]));
                }
                Ok(())
            })
            .await?;
        }
        idle = idle.row(contestant.role, &contestant.name, at_rest);
        loaded = loaded.row(contestant.role, &contestant.name, after);
        for (at, kind) in MEMORY_KINDS.iter().enumerate() {
            let label = format!("{}: {kind}", contestant.name);
            idle = idle.row(Role::Part, &label, kinds.iter().map(|mib| mib[at]).collect());
        }
    }
    Ok(vec![idle, loaded])
}

async fn create(sidecars: &Sidecars, number: usize) -> Result<()> {
    let workers = Workers::new(WORKERS);
    let tasks: Vec<_> = (0..number)
        .map(|index| {
            let (co, workers) = (sidecars.of(index).clone(), workers.clone());
            tokio::spawn(async move {
                let claim = claim(index);
                workers.run(|| co.create(&claim)).await.map(drop)
            })
        })
        .collect();
    join_all(tasks).await.map(drop)
}

/// Number of parts of the run; memory is read after each part.
const PARTS: usize = 20;

pub(super) async fn growth(contestant: &Contestant, extent: Extent) -> Result<Vec<Figure>> {
    let calls = extent.of(80, 100_000, 1_000_000);
    let world = contestant.unlimited_world(1).await?;
    let memory = in_world(world, async |world| {
        let mut memory = vec![memory_mib(&[pid(world)?])];
        for part in 0..PARTS {
            create_and_delete(world, part, calls / PARTS / 2).await?;
            memory.push(memory_mib(&[pid(world)?]));
        }
        Ok(memory)
    })
    .await?;
    let base = memory.get(PARTS / 5).copied().unwrap_or_default();
    let last = memory.last().copied().unwrap_or_default();
    let name = &contestant.name;
    let label = format!("{name}: from call {} to call {calls}", calls / 5);
    let parts = format!("{name}: memory after each twentieth part");
    let figure = Figure::new("memory-growth", "memory gained over many calls", "MiB")
        .at_most(Statistic::Median, 0.5)
        .note("Create and delete of volumes, half and half, by 50 workers, no quota, EC2 at 0 ms. The growth counts from the end of the first fifth of the run, because the first calls touch memory that every run needs. Half a MiB counts as no growth. `--full` makes a million calls.")
        .row(contestant.role, &label, vec![last - base])
        .row(Role::Part, &parts, memory);
    Ok(vec![figure])
}

async fn create_and_delete(
    world: &ebs_csi_sandbox::World,
    part: usize,
    volumes: usize,
) -> Result<()> {
    let co = world.co()?;
    let workers = 50;
    let tasks: Vec<_> = (0..workers)
        .map(|worker| {
            let (mut client, co) = (co.controller(), co.clone());
            tokio::spawn(async move {
                for index in (worker..volumes).step_by(workers) {
                    let request = co.create_request(&claim(part * volumes + index));
                    let made = client
                        .create_volume(request)
                        .await
                        .map_err(|status| failed_call("CreateVolume", &status))?;
                    let volume_id = made.into_inner().volume.unwrap_or_default().volume_id;
                    let request = DeleteVolumeRequest { volume_id, ..Default::default() };
                    client
                        .delete_volume(request)
                        .await
                        .map_err(|status| failed_call("DeleteVolume", &status))?;
                }
                Ok::<_, BenchError>(())
            })
        })
        .collect();
    join_all(tasks).await.map(drop)
}
