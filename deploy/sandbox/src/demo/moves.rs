//! Creates a volume, uses it on one node, removes it from there, and uses it on another node.

use super::data;
use super::{DemoError, InUse, Scene, ensure};
use crate::co::{Claim, Content, Volume};

impl Scene<'_> {
    /// Creates a volume and verifies that EC2 has exactly one volume of its name.
    pub(super) async fn create(&mut self, claim: &Claim) -> Result<Volume, DemoError> {
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
    ) -> Result<InUse, DemoError> {
        let instance = self.instance(node);
        let name = self.node_name(node);
        let attachment = self.co.attach(volume, &instance).await?;
        self.ec2().attached(&volume.id, &[&instance]).await?;
        let device = attachment.context.get("devicePath").cloned().unwrap_or_default();
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
    ) -> Result<InUse, DemoError> {
        let kubelet = self.kubelets[node].clone();
        let staged = kubelet.stage(volume, &attachment).await?;
        let proof = match &volume.content {
            Content::Filesystem { kind, .. } => {
                format!("{kind} of {}", data::is_mounted(&staged, kind)?)
            }
            Content::Block => "nothing to do".to_owned(),
        };
        self.narrator.done(&format!("stage {}", volume.name), &proof);
        let published = kubelet.publish(volume, &attachment, pod, false).await?;
        let proof = match &volume.content {
            Content::Filesystem { kind, .. } => {
                data::is_mounted(&published.path, kind)?;
                let usage = kubelet.stats(volume, &published).await?;
                ensure(usage.iter().any(|entry| entry.total > 0), || {
                    format!("NodeGetVolumeStats says {usage:?}")
                })?;
                format!("{} MiB", data::capacity(&published.path)? >> 20)
            }
            Content::Block => {
                data::is_device(&published.path, volume.bytes)?;
                "a block device".to_owned()
            }
        };
        self.narrator.done(&format!("publish {} to {pod}", volume.name), &proof);
        Ok(InUse { node, pod: pod.to_owned(), published })
    }

    /// Unpublishes, unstages and detaches; verifies each step.
    pub(super) async fn take_from(
        &mut self,
        volume: &Volume,
        in_use: &InUse,
    ) -> Result<(), DemoError> {
        let kubelet = self.kubelets[in_use.node].clone();
        kubelet.unpublish(volume, &in_use.pod).await?;
        kubelet.unstage(volume).await?;
        let left = kubelet.staging_path(volume);
        ensure(!left.exists(), || format!("{} still exists", left.display()))?;
        self.narrator
            .done(&format!("unpublish, unstage {}", volume.name), "no mount, no directory left");
        let instance = self.instance(in_use.node);
        self.co.detach(&volume.id, &instance).await?;
        self.ec2().attached(&volume.id, &[]).await?;
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

    /// Returns the volume of that name, and its use.
    pub(super) fn named(&self, name: &str) -> Result<(Volume, Option<InUse>), DemoError> {
        self.volumes
            .iter()
            .find(|(volume, _)| volume.name == name)
            .cloned()
            .ok_or_else(|| DemoError::Unverified(format!("{name} was not made")))
    }
}

/// Moves an ext4 and an xfs volume from node-a to node-b.
pub(super) async fn show(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    for kind in ["ext4", "xfs"] {
        scene.narrator.chapter(&format!("a volume with {kind} moves from node to node"));
        let name = format!("pvc-{kind}");
        let volume =
            scene.create(&Claim::filesystem(&name, kind, 4).parameter("type", "gp3")).await?;
        let in_use = scene.use_on(&volume, 0, "pod-1").await?;
        let digest = data::write_file(&in_use.published.path, &name)?;
        scene.narrator.done("write a file, fsync", &format!("1 MiB, sha256 {digest}…"));
        scene.take_from(&volume, &in_use).await?;
        data::nothing_mounted(scene.kubelets[0].root())?;
        let in_use = scene.use_on(&volume, 1, "pod-2").await?;
        let digest = data::find_file(&in_use.published.path, &name)?;
        scene.narrator.done("read the same bytes", &format!("sha256 {digest}…"));
    }
    Ok(())
}
