//! Snapshot, restore, clone.

use super::{Result, Scene, ensure};
use crate::co::{Claim, Source};
use crate::pod_view;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("copies");
    let (ext4, _) = scene.used("pvc-ext4")?;
    let snapshot = scene.co.snapshot_ready("snapshot-1", &ext4.id).await?;
    scene.snapshots.push(snapshot.id.clone());
    let again = scene.co.snapshot("snapshot-1", &ext4.id, &[]).await?;
    ensure(again.id == snapshot.id, || {
        format!("the same name gave {} and {}", snapshot.id, again.id)
    })?;
    scene.narrator.done("snapshot pvc-ext4, in use on node-b", &format!("{}, ready", snapshot.id));

    let claim =
        Claim::filesystem("pvc-restored", "ext4", 4).from_source(Source::Snapshot(snapshot.id));
    let restored = scene.create(&claim).await?;
    let in_use = scene.use_on(&restored, 0, "pod-3").await?;
    let digest = pod_view::find(&in_use.published, "pvc-ext4")?;
    scene.narrator.done("read the snapshot's bytes on node-a", &format!("sha256 {digest}…"));

    let (xfs, original) = scene.used("pvc-xfs")?;
    let claim =
        Claim::filesystem("pvc-clone", "xfs", 4).from_source(Source::Volume(xfs.id.clone()));
    let clone = scene.create(&claim).await?;
    // On the original's node, where a file system with the same UUID is mounted.
    let in_use = scene.use_on(&clone, original.node, "pod-4").await?;
    let digest = pod_view::find(&in_use.published, "pvc-xfs")?;
    scene.narrator.done("read the clone's bytes beside the original", &format!("sha256 {digest}…"));
    pod_view::write(&in_use.published, "the clone alone")?;
    pod_view::find(&original.published, "pvc-xfs")?;
    scene.narrator.done("write to the clone", "the original is as it was");
    Ok(())
}
