//! Memory of a node's processes: idle, after one volume, and over many life cycles of a volume.

use std::time::Duration;

use csi::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use ebs_csi_proto::csi;

use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::error::{Result, failed_call};
use crate::extent::Extent;
use crate::process_usage::{MEMORY_KINDS, memory_kinds, memory_mib};
use crate::report::figure::{Figure, Role, Statistic};

/// The wait after a start, until memory has settled.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) async fn idle(contestants: &[Contestant], extent: Extent) -> Result<Figure> {
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
async fn run_one_volume(testbed: &Testbed) -> Result<()> {
    let attached = testbed.attach("pvc-memory", "ext4").await?;
    let (volume, attachment) = (&attached.volume, &attached.attachment);
    testbed.kubelet.stage(volume, attachment).await?;
    testbed.kubelet.publish(volume, attachment, "pod", false).await?;
    testbed.kubelet.unpublish(volume, "pod").await?;
    Ok(testbed.kubelet.unstage(volume).await?)
}

async fn ours(contestant: &Contestant, extent: Extent) -> Result<Figure> {
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
        .at_most(Statistic::Median, 5.0)
        .note("Proportional set size from smaps_rollup, a second after the first good Probe. Pages of a program that several of its processes map are shared between them; nothing else maps these programs."))
}

/// Number of parts of the run; memory is read after each part.
const PARTS: usize = 20;

pub(super) async fn growth(contestant: &Contestant, extent: Extent) -> Result<Figure> {
    let testbed = Testbed::make(contestant, None).await?;
    let cycles = extent.of(40, 1_000, 100_000);
    let measured = run(&testbed, cycles).await;
    testbed.end().await?;
    let memory = measured?;
    // Pages that the first part touches for the first time are not growth.
    let first = memory.get(1).copied().unwrap_or_default();
    let last = memory.last().copied().unwrap_or_default();
    Ok(Figure::new("node-growth", "memory gained over many stage and unstage cycles", "MiB")
        .row(Role::Ours, &format!("from cycle {} to cycle {cycles}", cycles / PARTS), vec![last - first])
        .row(Role::Part, "memory after each twentieth part", memory)
        // A few more pages of an allocator are not growth.
        .at_most(Statistic::Median, 0.25)
        .note("All processes of a node; a quarter of a MiB counts as none. `--full` makes 100,000 cycles."))
}

async fn run(testbed: &Testbed, cycles: usize) -> Result<Vec<f64>> {
    let Attached { volume, attachment } = testbed.attach("pvc-growth", "ext4").await?;
    let path = testbed.kubelet.prepare_stage(&volume)?;
    let stage: NodeStageVolumeRequest = testbed.kubelet.stage_request(&volume, &attachment)?;
    let unstage = NodeUnstageVolumeRequest {
        volume_id: volume.id.clone(),
        staging_target_path: path.to_string_lossy().into_owned(),
    };
    let mut client = testbed.kubelet.node();
    let mut memory = vec![memory_mib(&testbed.processes())];
    for _ in 0..PARTS {
        for _ in 0..cycles / PARTS {
            client
                .node_stage_volume(stage.clone())
                .await
                .map_err(|status| failed_call("NodeStageVolume", &status))?;
            client
                .node_unstage_volume(unstage.clone())
                .await
                .map_err(|status| failed_call("NodeUnstageVolume", &status))?;
        }
        memory.push(memory_mib(&testbed.processes()));
    }
    Ok(memory)
}
