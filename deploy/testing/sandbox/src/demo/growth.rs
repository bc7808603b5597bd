//! Expands volumes online and offline.

use super::{DemoError, InUse, Scene, ensure};
use crate::co::GIB;
use crate::pod_view;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    online(scene).await?;
    offline(scene).await
}

async fn online(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.narrator.chapter("growing");
    let (mut volume, in_use) = scene.named("pvc-xfs")?;
    let in_use = in_use.ok_or_else(|| DemoError::Unverified("pvc-xfs is not in use".to_owned()))?;
    let before = pod_view::size(&in_use.published.path)?;
    let node_too = scene.co.expand(&mut volume, 6 * GIB).await?;
    ensure(node_too, || {
        "the controller says that the node need not grow the file system".to_owned()
    })?;
    let shown = scene.shown(&volume.id).await?;
    ensure(shown.gib == 6, || format!("EC2 shows {} GiB", shown.gib))?;
    scene.narrator.done("expand pvc-xfs in EC2, 4 to 6 GiB", "6 GiB");
    let kubelet = scene.kubelets[in_use.node].clone();
    kubelet.expand(&volume, &in_use.published).await?;
    scene.check_growth("pvc-xfs", before, &in_use, "grow xfs while it is mounted")?;
    scene.remember_size(&volume.id, volume.bytes);
    Ok(())
}

async fn offline(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    let (mut volume, in_use) = scene.named("pvc-ext4")?;
    let in_use =
        in_use.ok_or_else(|| DemoError::Unverified("pvc-ext4 is not in use".to_owned()))?;
    let before = pod_view::size(&in_use.published.path)?;
    scene.take_from(&volume, &in_use).await?;
    scene.co.expand(&mut volume, 6 * GIB).await?;
    scene.narrator.done("expand pvc-ext4 in EC2 while it is nowhere", "6 GiB");
    scene.remember_size(&volume.id, volume.bytes);
    let in_use = scene.use_on(&volume, 0, "pod-5").await?;
    scene.check_growth("pvc-ext4", before, &in_use, "ext4 grew before it was mounted")
}

impl Scene<'_> {
    /// Verifies that the file system has grown by more than 1 GiB and holds the same bytes.
    fn check_growth(
        &mut self,
        volume: &str,
        before: i64,
        in_use: &InUse,
        step: &str,
    ) -> Result<(), DemoError> {
        let path = &in_use.published.path;
        let after = pod_view::size(path)?;
        let text = || format!("the file system had {before} bytes and has {after}");
        ensure(after > before + GIB, text)?;
        pod_view::find(path, volume)?;
        let proof = format!("{} to {} MiB, bytes as before", before >> 20, after >> 20);
        self.narrator.done(step, &proof);
        Ok(())
    }

    fn remember_size(&mut self, id: &str, bytes: i64) {
        if let Some((volume, _)) = self.volumes.iter_mut().find(|(volume, _)| volume.id == id) {
            volume.bytes = bytes;
        }
    }
}
