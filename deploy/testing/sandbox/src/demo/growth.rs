//! Expands volumes online and offline, and expands and modifies one volume in a single EC2 call.

use super::{InUse, Result, Scene, ensure};
use crate::co::{Claim, GIB};
use crate::pod_view;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    online(scene).await?;
    offline(scene).await?;
    one_modification(scene).await
}

async fn online(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("growing");
    let (mut volume, in_use) = scene.used("pvc-xfs")?;
    let before = pod_view::size(&in_use.published)?;
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

async fn offline(scene: &mut Scene<'_>) -> Result<()> {
    let (mut volume, in_use) = scene.used("pvc-ext4")?;
    let before = pod_view::size(&in_use.published)?;
    scene.take_from(&volume, &in_use).await?;
    scene.co.expand(&mut volume, 6 * GIB).await?;
    scene.narrator.done("expand pvc-ext4 in EC2 while it is nowhere", "6 GiB");
    scene.remember_size(&volume.id, volume.bytes);
    let in_use = scene.use_on(&volume, 0, "pod-5").await?;
    scene.check_growth("pvc-ext4", before, &in_use, "ext4 grew before it was mounted")
}

async fn one_modification(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("type, IOPS, throughput and size in one ModifyVolume");
    let mut volume =
        scene.create(&Claim::filesystem("pvc-tuned", "ext4", 10).parameter("type", "gp2")).await?;
    let after = scene.ec2().last().await?;
    let parameters = [("type", "gp3"), ("iops", "4000"), ("throughput", "250")];
    let (id, co) = (volume.id.clone(), scene.co.clone());
    // external-resizer makes two calls, from two workers.
    let (expanded, modified) =
        tokio::join!(co.expand(&mut volume, 12 * GIB), co.modify(&id, &parameters));
    expanded?;
    modified?;
    let calls: Vec<_> = scene
        .ec2()
        .journal(after)
        .await?
        .into_iter()
        .filter(|record| record["action"] == "ModifyVolume")
        .collect();
    ensure(calls.len() == 1, || format!("{} calls of ModifyVolume", calls.len()))?;
    let sent = |name: &str| calls[0]["parameters"][name].as_str().unwrap_or_default().to_owned();
    let all = [sent("Size"), sent("VolumeType"), sent("Iops"), sent("Throughput")];
    ensure(all == ["12", "gp3", "4000", "250"], || format!("it asked for {all:?}"))?;
    let shown = scene.shown(&id).await?;
    ensure(
        (shown.gib, shown.kind.as_str(), shown.iops, shown.throughput)
            == (12, "gp3", Some(4000), Some(250)),
        || format!("EC2 shows {shown:?}"),
    )?;
    scene.remember_size(&id, volume.bytes);
    scene
        .narrator
        .done("expand and modify pvc-tuned", "1 ModifyVolume: 12 GiB, gp3, 4000 IOPS, 250 MiB/s");
    Ok(())
}

impl Scene<'_> {
    /// Verifies that the file system has grown by more than 1 GiB and holds the same bytes.
    fn check_growth(
        &mut self,
        volume: &str,
        before: i64,
        in_use: &InUse,
        step: &str,
    ) -> Result<()> {
        let path = &in_use.published;
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
