//! Memory of a node's idle processes.

use std::time::Duration;

use super::testbed::Testbed;
use crate::contestant::Contestant;
use crate::error::BenchError;
use crate::extent::Extent;
use crate::process_usage::{MEMORY_KINDS, memory_kinds, memory_mib};
use crate::report::figure::{Figure, Role, Statistic, Target};

/// The wait after a start, until memory has settled.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) async fn measure(
    contestants: &[Contestant],
    extent: Extent,
) -> Result<Figure, BenchError> {
    let mut figure = ours(&contestants[0], extent).await?;
    for other in &contestants[1..] {
        let (mut idle, mut used) = (Vec::new(), Vec::new());
        for _ in 0..extent.of(1, 5, 5) {
            let testbed = Testbed::make(other, None).await?;
            tokio::time::sleep(SETTLE).await;
            idle.push(memory_mib(&testbed.processes()));
            run_one_volume(&testbed).await?;
            used.push(memory_mib(&testbed.processes()));
            testbed.end().await?;
        }
        let after = format!("{}, after the life of one volume", other.name);
        figure = figure.row(other.role, &other.name, idle).row(Role::Part, &after, used);
    }
    Ok(figure)
}

/// Stages, publishes, unpublishes and unstages one volume.
async fn run_one_volume(testbed: &Testbed) -> Result<(), BenchError> {
    let attached = testbed.attach("pvc-memory", "ext4").await?;
    let (volume, attachment) = (&attached.volume, &attached.attachment);
    testbed.kubelet.stage(volume, attachment).await?;
    testbed.kubelet.publish(volume, attachment, "pod", false).await?;
    testbed.kubelet.unpublish(volume, "pod").await?;
    Ok(testbed.kubelet.unstage(volume).await?)
}

async fn ours(contestant: &Contestant, extent: Extent) -> Result<Figure, BenchError> {
    let (mut all, mut agent, mut helper) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kinds, mut used) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..extent.of(1, 5, 5) {
        let testbed = Testbed::make(contestant, None).await?;
        tokio::time::sleep(SETTLE).await;
        let node = &testbed.world.nodes[0];
        all.push(memory_mib(&testbed.processes()));
        agent.push(memory_mib(&node.agent.process_tree()));
        helper.push(memory_mib(&node.helper.process_tree()));
        let mut sums = [0.0; 2];
        for pid in testbed.processes() {
            let [anonymous, of_files] = memory_kinds(pid)?;
            sums = [sums[0] + anonymous, sums[1] + of_files];
        }
        for (samples, sum) in kinds.iter_mut().zip(sums) {
            samples.push(sum);
        }
        run_one_volume(&testbed).await?;
        used.push(memory_mib(&testbed.processes()));
        testbed.end().await?;
    }
    let mut figure =
        Figure::new("node-memory", "memory of node-agent and mount-helper, idle", "MiB")
            .row(Role::Ours, "all processes of a node", all)
            .row(Role::Part, "node-agent", agent)
            .row(Role::Part, "mount-helper (supervisor, broker, directories, opener)", helper);
    for (kind, samples) in MEMORY_KINDS.into_iter().zip(kinds) {
        figure = figure.row(Role::Part, kind, samples);
    }
    Ok(figure
        .row(Role::Part, "after the life of one volume", used)
        .target(Target::at_most(Statistic::Median, 5.0))
        .note("Proportional set size from smaps_rollup, a second after the first good Probe. Pages of a program that several of its processes map are shared between them; nothing else maps these programs."))
}
