//! A hundred fresh volumes staged at once, with agent and helper under a memory limit.

use std::time::Instant;

use ebs_csi_sandbox::Kubelet;

use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::error::Result;
use crate::extent::Extent;
use crate::memory_limit::MemoryLimit;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{float, join_all, millis};

/// The memory limit in bytes.
const LIMIT: u64 = 64 << 20;

pub(super) async fn measure(contestant: &Contestant, extent: Extent) -> Result<Vec<Figure>> {
    let mut testbed = Testbed::make(contestant, None).await?;
    let measured = run(&mut testbed, extent.of(4, 100, 100)).await;
    testbed.end().await?;
    measured
}

async fn run(testbed: &mut Testbed, volumes: usize) -> Result<Vec<Figure>> {
    let mut attached = Vec::new();
    for index in 0..volumes {
        attached.push(testbed.attach(&format!("pvc-parallel-{index}"), "ext4").await?);
    }
    // A cgroup is charged only for pages that a process touches as a member, so the processes start
    // in it.
    testbed.world.nodes[0].agent.kill().await?;
    testbed.world.nodes[0].helper.kill_tree().await?;
    let limit = MemoryLimit::make(LIMIT);
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
    let whole = millis(began.elapsed());
    let after = testbed.processes();
    let repeated = kubelet.attempts.all().iter().filter(|call| call.attempts > 1).count();
    let ended = before.iter().filter(|pid| !after.contains(pid)).count();
    let how = match limit {
        Ok(_) => {
            "Agent, helper, and every mkfs that it starts are in one memory cgroup (v1) of 64 MiB, page cache of the disks' metadata included."
        }
        Err(_) => "No memory cgroup could be made on this machine: the limit was NOT in force.",
    };
    let (killed, most) = limit.map_or((0.0, 0.0), |limit| (limit.kills(), limit.most_mib()));
    let title = format!("{volumes} fresh ext4 staged at once under a limit of 64 MiB");
    let lost = "agent, supervisor, broker, directories or opener ended";
    let most =
        format!("Most memory charged to the cgroup: {most:.1} MiB, page cache included. {how}");
    Ok(vec![
        Figure::new("node-parallel", &format!("{title}: processes lost"), "")
            .row(Role::Ours, lost, vec![float(ended)])
            .row(Role::Part, "tools killed for want of memory", vec![killed])
            .row(Role::Part, "stages that had to be repeated", vec![float(repeated)])
            .at_most(Statistic::Greatest, 0.0)
            .note(how),
        Figure::new("node-parallel-time", &format!("{title}: time"), "ms")
            .row(Role::Ours, "one stage", each)
            .row(Role::Part, "all", vec![whole])
            .note(most),
    ])
}

async fn stage(kubelet: Kubelet, one: Attached) -> Result<f64> {
    let began = Instant::now();
    kubelet.stage(&one.volume, &one.attachment).await?;
    Ok(millis(began.elapsed()))
}
