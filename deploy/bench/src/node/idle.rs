//! Memory of a node's processes that have nothing to do.

use std::time::Duration;

use ebs_csi_sandbox::binaries::Binaries;

use super::place::Place;
use crate::error::BenchError;
use crate::extent::Extent;
use crate::figure::{Figure, Role, Statistic, Target};
use crate::live::{memory_kinds, memory_mib};

pub(super) async fn measure(binaries: &Binaries, extent: Extent) -> Result<Figure, BenchError> {
    let (mut all, mut agent, mut helper) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut used = Vec::new();
    for _ in 0..extent.of(1, 5, 5) {
        let place = Place::make(binaries).await?;
        // What a start leaves behind settles.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let node = &place.world.nodes[0];
        all.push(memory_mib(&place.processes()));
        agent.push(memory_mib(&node.agent.family()));
        helper.push(memory_mib(&node.helper.family()));
        for pid in place.processes() {
            for (kind, mib) in memory_kinds(pid)? {
                let known = kinds.iter_mut().find(|(name, _)| *name == kind);
                let of = match known {
                    Some((_, samples)) => samples,
                    None => {
                        kinds.push((kind, Vec::new()));
                        &mut kinds
                            .last_mut()
                            .ok_or_else(|| BenchError::Other("no kind of memory".to_owned()))?
                            .1
                    }
                };
                if of.len() < all.len() {
                    of.push(0.0);
                }
                if let Some(last) = of.last_mut() {
                    *last += mib;
                }
            }
        }
        let attached = place.attach("pvc-memory", "ext4").await?;
        let (volume, attachment) = (&attached.volume, &attached.attachment);
        place.kubelet.stage(volume, attachment).await?;
        place
            .kubelet
            .publish(volume, attachment, "pod", false)
            .await?;
        place.kubelet.unpublish(volume, "pod").await?;
        place.kubelet.unstage(volume).await?;
        used.push(memory_mib(&place.processes()));
        place.end().await?;
    }
    let mut figure = Figure::new(
        "node-memory",
        "memory of node-agent and mount-helper, idle",
        "MiB",
    )
    .row(Role::Ours, "all processes of a node", all)
    .row(Role::Part, "node-agent", agent)
    .row(
        Role::Part,
        "mount-helper (supervisor, broker, directories)",
        helper,
    );
    for (kind, samples) in kinds {
        figure = figure.row(Role::Part, kind, samples);
    }
    Ok(figure
        .row(Role::Part, "after the life of one volume", used)
        .target(Target::at_most(Statistic::Median, 5.0))
        .note("Proportional set size from smaps_rollup, a second after the first good Probe. Pages of a program that several of its processes map are shared between them; nothing else maps these programs."))
}
