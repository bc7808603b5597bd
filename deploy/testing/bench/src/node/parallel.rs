//! A hundred fresh volumes staged at once, with agent and helper under a memory limit.

use std::time::Instant;

use ebs_csi_sandbox::Kubelet;

use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::error::Result;
use crate::extent::Extent;
use crate::memory_limit::MemoryLimit;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{float, join_all};

/// The memory limit in bytes.
const LIMIT: u64 = 64 << 20;

struct ParallelRun {
    each: Vec<f64>,
    whole: f64,
    failed: Vec<f64>,
    killed: f64,
    replaced: f64,
    most: f64,
    limited: bool,
}

pub(super) async fn measure(contestant: &Contestant, extent: Extent) -> Result<Vec<Figure>> {
    let mut testbed = Testbed::make(contestant, None).await?;
    let volumes = extent.of(4, 100, 100);
    let measured = run(&mut testbed, volumes).await;
    testbed.end().await?;
    let seen = measured?;
    let how = if seen.limited {
        "Agent, helper, and every mkfs that it starts are in one memory cgroup (v1) of 64 MiB, page cache of the disks' metadata included."
    } else {
        "No memory cgroup could be made on this machine: the limit was NOT in force."
    };
    Ok(vec![
        Figure::new(
            "node-parallel",
            &format!("{volumes} fresh ext4 staged at once under a limit of 64 MiB: processes lost"),
            "",
        )
        .row(
            Role::Ours,
            "agent, supervisor, broker, directories or opener ended",
            vec![seen.replaced],
        )
        .row(Role::Part, "tools killed for want of memory", vec![seen.killed])
        .row(Role::Part, "stages that had to be repeated", seen.failed)
        .at_most(Statistic::Greatest, 0.0)
        .note(how),
        Figure::new(
            "node-parallel-time",
            &format!("{volumes} fresh ext4 staged at once under a limit of 64 MiB: time"),
            "ms",
        )
        .row(Role::Ours, "one stage", seen.each)
        .row(Role::Part, "all", vec![seen.whole])
        .note(format!(
            "Most memory charged to the cgroup: {:.1} MiB, page cache included. {how}",
            seen.most
        )),
    ])
}

async fn run(testbed: &mut Testbed, volumes: usize) -> Result<ParallelRun> {
    let mut attached = Vec::new();
    for index in 0..volumes {
        attached.push(testbed.attach(&format!("pvc-parallel-{index}"), "ext4").await?);
    }
    // A cgroup is charged only for pages that a process touches as a member, so the processes start
    // in it.
    testbed.world.nodes[0].agent.kill().await?;
    testbed.world.nodes[0].helper.kill_tree().await?;
    let limit = MemoryLimit::make(LIMIT);
    let limited = limit.is_ok();
    let inside = match &limit {
        Ok(limit) => Some(limit.enter()?),
        Err(why) => {
            println!("no memory limit: {why}");
            None
        }
    };
    testbed.world.start_helper(0).await?;
    testbed.world.start_agent(0).await?;
    drop(inside);
    let before = testbed.processes();
    let began = Instant::now();
    let kubelet = testbed.world.kubelet(0)?;
    let tasks: Vec<_> =
        attached.into_iter().map(|one| tokio::spawn(stage(kubelet.clone(), one))).collect();
    let each = join_all(tasks).await?;
    let whole = began.elapsed().as_secs_f64() * 1e3;
    let after = testbed.processes();
    let repeated = kubelet.attempts.all().iter().filter(|call| call.attempts > 1).count();
    let limit = limit.ok();
    Ok(ParallelRun {
        each,
        whole,
        failed: vec![float(repeated)],
        killed: limit.as_ref().map_or(0.0, MemoryLimit::kills),
        replaced: float(before.iter().filter(|pid| !after.contains(pid)).count()),
        most: limit.as_ref().map_or(0.0, MemoryLimit::most_mib),
        limited,
    })
}

async fn stage(kubelet: Kubelet, one: Attached) -> Result<f64> {
    let began = Instant::now();
    kubelet.stage(&one.volume, &one.attachment).await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
