//! Memory of node-lifecycle for a cluster.

use std::time::Duration;

use super::testbed::Testbed;
use crate::error::BenchError;
use crate::process_usage::{MEMORY_KINDS, memory_kinds, memory_mib, peak_mib};
use crate::report::figure::{Figure, Role, Statistic, Target};

/// The wait after which the memory for the lists has been freed.
const STILL: Duration = Duration::from_secs(3);

/// Measures while all nodes are healthy.
pub(super) async fn measure(
    testbed: &mut Testbed,
    key: &str,
    title: &str,
) -> Result<Figure, BenchError> {
    let size = testbed.size;
    let volumes = size.nodes * size.volumes_per_node;
    tokio::time::sleep(STILL).await;
    let pid = testbed.pid();
    let mut figure = Figure::new(key, title, "MiB")
        .note(format!(
            "Proportional set size of the leader, 3 seconds after everything was listed: {} nodes, {} pods of which {volumes} have a volume, {volumes} PersistentVolumes, {volumes} VolumeAttachments, with all the fields that a cluster's objects have. The API server is the bench's own, over plain HTTP: what TLS holds for each connection is not in it.",
            size.nodes,
            volumes + size.pods_without_volumes,
        ))
        .row(Role::Ours, "driver", vec![memory_mib(&[pid])]);
    for (kind, mib) in MEMORY_KINDS.into_iter().zip(memory_kinds(pid)?) {
        figure = figure.row(Role::Part, &format!("driver: {kind}"), vec![mib]);
    }
    testbed.relist().await?;
    tokio::time::sleep(STILL).await;
    let peak = vec![peak_mib(pid)?];
    Ok(figure.row(Role::Part, "driver: after all was listed anew", vec![memory_mib(&[pid])]).row(
        Role::Part,
        "driver: greatest resident set",
        peak,
    ))
}

/// Returns the target, which applies only to the cluster of the measurement `steady`.
pub(super) fn target() -> Target {
    Target::at_most(Statistic::Median, 40.0)
}
