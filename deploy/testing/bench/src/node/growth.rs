//! Memory growth over many life cycles of a volume on a node.

use csi::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use ebs_csi_proto::csi;

use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::error::{BenchError, failed_call};
use crate::extent::Extent;
use crate::process_usage::memory_mib;
use crate::report::figure::{Figure, Role, Statistic, Target};

/// Number of parts of the run; memory is read after each part.
const PARTS: usize = 20;

pub(super) async fn measure(contestant: &Contestant, extent: Extent) -> Result<Figure, BenchError> {
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
        .target(Target::at_most(Statistic::Median, 0.25))
        .note("All processes of a node; a quarter of a MiB counts as none. `--full` makes 100,000 cycles."))
}

async fn run(testbed: &Testbed, cycles: usize) -> Result<Vec<f64>, BenchError> {
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
