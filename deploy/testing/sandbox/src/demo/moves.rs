//! Creates a volume, uses it on one node, removes it from there, and uses it on another node.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::{DemoError, InUse, Result, Scene, ensure};
use crate::co::{Claim, Content, Volume};
use crate::pod_view;

impl Scene<'_> {
    /// Creates a volume and verifies that EC2 has exactly one volume of its name.
    pub(super) async fn create(&mut self, claim: &Claim) -> Result<Volume> {
        let volume = self.co.create(claim).await?;
        let named = self.ec2().volumes("tag:CSIVolumeName", &claim.name).await?;
        ensure(named.len() == 1 && named[0].id == volume.id, || {
            format!("{} volumes are named {}: {named:?}", named.len(), claim.name)
        })?;
        ensure(named[0].gib << 30 == volume.bytes, || format!("EC2 shows {} GiB", named[0].gib))?;
        let zone = volume.topology.get("topology.kubernetes.io/zone").cloned().unwrap_or_default();
        ensure(zone == crate::ZONE, || format!("the zone is {zone:?}"))?;
        self.volumes.push((volume.clone(), None));
        self.narrator.done(
            &format!("create {}", claim.name),
            &format!("{}, {} GiB {}", volume.id, named[0].gib, named[0].kind),
        );
        Ok(volume)
    }

    /// Attaches, stages and publishes; verifies each step.
    pub(super) async fn use_on(
        &mut self,
        volume: &Volume,
        node: usize,
        pod: &str,
    ) -> Result<InUse> {
        let instance = self.instance(node);
        let name = self.node_name(node);
        let attachment = self.co.attach(volume, &instance).await?;
        self.check_attached(&volume.id, &[&instance]).await?;
        let device = attachment.get("devicePath").cloned().unwrap_or_default();
        self.narrator.done(&format!("attach {} to {name}", volume.name), &device);
        let in_use = self.stage_and_publish(volume, node, pod, attachment).await?;
        self.set_use(&volume.id, Some(in_use.clone()));
        Ok(in_use)
    }

    /// Stages and publishes an attached volume; verifies both steps.
    pub(super) async fn stage_and_publish(
        &mut self,
        volume: &Volume,
        node: usize,
        pod: &str,
        attachment: crate::co::Attachment,
    ) -> Result<InUse> {
        let kubelet = self.kubelets[node].clone();
        let staged = kubelet.stage(volume, &attachment).await?;
        let proof = match &volume.content {
            Content::Filesystem { kind, .. } => {
                format!("{kind} of {}", source_of(&staged, kind)?)
            }
            Content::Block => "nothing to do".to_owned(),
        };
        self.narrator.done(&format!("stage {}", volume.name), &proof);
        let published = kubelet.publish(volume, &attachment, pod, false).await?;
        let proof = match &volume.content {
            Content::Filesystem { kind, .. } => {
                source_of(&published, kind)?;
                let usage = kubelet.stats(volume, &published).await?;
                ensure(usage.iter().any(|entry| entry.total > 0), || {
                    format!("NodeGetVolumeStats says {usage:?}")
                })?;
                format!("{} MiB", pod_view::size(&published)? >> 20)
            }
            Content::Block => {
                let path = &published;
                let is_device = std::fs::metadata(path)?.file_type().is_block_device();
                ensure(is_device && pod_view::size(path)? == volume.bytes, || {
                    format!("{} is no device of {} bytes", path.display(), volume.bytes)
                })?;
                "a block device".to_owned()
            }
        };
        self.narrator.done(&format!("publish {} to {pod}", volume.name), &proof);
        Ok(InUse { node, pod: pod.to_owned(), published })
    }

    /// Unpublishes, unstages and detaches; verifies each step.
    pub(super) async fn take_from(&mut self, volume: &Volume, in_use: &InUse) -> Result<()> {
        let kubelet = self.kubelets[in_use.node].clone();
        kubelet.unpublish(volume, &in_use.pod).await?;
        kubelet.unstage(volume).await?;
        let left = kubelet.staging_path(volume);
        ensure(!left.exists(), || format!("{} still exists", left.display()))?;
        self.narrator
            .done(&format!("unpublish, unstage {}", volume.name), "no mount, no directory left");
        let instance = self.instance(in_use.node);
        self.co.detach(&volume.id, &instance).await?;
        self.check_attached(&volume.id, &[]).await?;
        self.set_use(&volume.id, None);
        self.narrator.done(
            &format!("detach {} from {}", volume.name, self.node_name(in_use.node)),
            "available",
        );
        Ok(())
    }

    pub(super) fn set_use(&mut self, id: &str, in_use: Option<InUse>) {
        if let Some(entry) = self.volumes.iter_mut().find(|(volume, _)| volume.id == id) {
            entry.1 = in_use;
        }
    }

    /// Returns a volume that a pod uses.
    pub(super) fn used(&self, name: &str) -> Result<(Volume, InUse)> {
        let found = self.volumes.iter().find(|(volume, _)| volume.name == name).cloned();
        found
            .and_then(|(volume, in_use)| Some((volume, in_use?)))
            .ok_or_else(|| DemoError::Unverified(format!("{name} is not in use")))
    }
}

/// Verifies that a file system of `kind` is mounted at `path`. Returns the source of the mount.
fn source_of(path: &Path, kind: &str) -> Result<String> {
    let (mounted, source) = pod_view::mounted_at(path)?;
    ensure(mounted == kind, || format!("{} is {mounted}, not {kind}", path.display()))?;
    Ok(source)
}

/// Moves an ext4 and an xfs volume from node-a to node-b.
pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    for kind in ["ext4", "xfs"] {
        scene.narrator.chapter(&format!("a volume with {kind} moves from node to node"));
        let claim = Claim::filesystem(&format!("pvc-{kind}"), kind, 4).parameter("type", "gp3");
        move_volume(scene, &claim, ["pod-1", "pod-2"]).await?;
    }
    Ok(())
}

pub(super) async fn show_raw_block(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("a raw block volume");
    move_volume(scene, &Claim::block("pvc-raw", 1), ["pod-6", "pod-7"]).await
}

/// Creates a volume, and moves it with its data from node-a to node-b.
async fn move_volume(scene: &mut Scene<'_>, claim: &Claim, pods: [&str; 2]) -> Result<()> {
    let [write, read] = match claim.content {
        Content::Filesystem { .. } => ["write a file, fsync", "read the same bytes"],
        Content::Block => ["write to the device, fsync", "read the same bytes on node-b"],
    };
    let volume = scene.create(claim).await?;
    let in_use = scene.use_on(&volume, 0, pods[0]).await?;
    let digest = pod_view::write(&in_use.published, &claim.name)?;
    scene.narrator.done(write, &format!("1 MiB, sha256 {digest}…"));
    scene.take_from(&volume, &in_use).await?;
    let is_used = scene.volumes.iter().flat_map(|(_, in_use)| in_use).any(|it| it.node == 0);
    let left = pod_view::mounts_beneath(scene.kubelets[0].root())?;
    ensure(is_used || left.is_empty(), || format!("still mounted: {left:?}"))?;
    let in_use = scene.use_on(&volume, 1, pods[1]).await?;
    let digest = pod_view::find(&in_use.published, &claim.name)?;
    scene.narrator.done(read, &format!("sha256 {digest}…"));
    Ok(())
}
