//! The life cycle of a volume as a list of steps, so that a test can act between any two of them.

use std::collections::HashMap;
use std::fmt;

use ebs_csi_sandbox::co::{Attachment, Claim, Content, Published, Snapshot, Source, Volume};
use ebs_csi_sandbox::{Co, CoError, Kubelet};

use crate::bytes;

/// Bytes in a GiB.
pub const GIB: i64 = 1 << 30;

/// One step of a life cycle. [`LifecycleStep::ALL`] in order is a whole life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LifecycleStep {
    /// CreateVolume.
    Create,
    /// ControllerPublishVolume to the first node.
    Attach,
    /// NodeStageVolume.
    Stage,
    /// NodePublishVolume, then a write of test data.
    Publish,
    /// NodeUnpublishVolume.
    Unpublish,
    /// NodeUnstageVolume.
    Unstage,
    /// ControllerUnpublishVolume.
    Detach,
    /// ControllerPublishVolume to the second node.
    AttachElsewhere,
    /// NodeStageVolume on the second node.
    StageElsewhere,
    /// NodePublishVolume on the second node, where the test data must be found.
    PublishElsewhere,
    /// ControllerExpandVolume and ControllerModifyVolume concurrently.
    ExpandAndModify,
    /// NodeExpandVolume while the volume is published.
    NodeExpand,
    /// CreateSnapshot until it is ready.
    Snapshot,
    /// CreateVolume from the snapshot, attach, stage, publish; the test data must be found; then
    /// the reverse steps.
    Restore,
    /// CreateVolume from the volume, attach, stage, publish; the test data must be found; then the
    /// reverse steps.
    Clone,
    /// NodeUnpublishVolume and NodeUnstageVolume on the second node; the test data must be there
    /// until then.
    LeaveElsewhere,
    /// ControllerUnpublishVolume from the second node.
    DetachElsewhere,
    /// DeleteVolume of the copies and the volume, DeleteSnapshot.
    Delete,
}

impl LifecycleStep {
    /// All steps in order.
    pub const ALL: [Self; 18] = [
        Self::Create,
        Self::Attach,
        Self::Stage,
        Self::Publish,
        Self::Unpublish,
        Self::Unstage,
        Self::Detach,
        Self::AttachElsewhere,
        Self::StageElsewhere,
        Self::PublishElsewhere,
        Self::ExpandAndModify,
        Self::NodeExpand,
        Self::Snapshot,
        Self::Restore,
        Self::Clone,
        Self::LeaveElsewhere,
        Self::DetachElsewhere,
        Self::Delete,
    ];
}

/// The failure of a step.
#[derive(Debug)]
pub enum LifeError {
    /// The driver's last answer was an error.
    Co(CoError),
    /// The driver reported success, but the effect is missing.
    Untrue(String),
}

impl fmt::Display for LifeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Co(e) => e.fmt(f),
            Self::Untrue(what) => f.write_str(what),
        }
    }
}

impl From<CoError> for LifeError {
    fn from(error: CoError) -> Self {
        Self::Co(error)
    }
}

/// A volume and its state in the life cycle.
#[derive(Clone, Debug)]
pub struct Life {
    co: Co,
    kubelets: [Kubelet; 2],
    instances: [String; 2],
    claim: Claim,
    volume: Option<Volume>,
    attachment: Option<Attachment>,
    published: Option<Published>,
    snapshot: Option<Snapshot>,
    copies: Vec<Volume>,
}

fn require<T>(thing: Option<&T>, what: &str) -> Result<T, LifeError>
where
    T: Clone,
{
    thing.cloned().ok_or_else(|| LifeError::Untrue(format!("{what} has not happened yet")))
}

impl Life {
    /// Prepares a life cycle on the first two nodes of a setting.
    pub fn of(setting: &crate::Setting, claim: Claim) -> Self {
        Self {
            co: setting.co.clone(),
            kubelets: [setting.kubelets[0].clone(), setting.kubelets[1].clone()],
            instances: [setting.instance(0), setting.instance(1)],
            claim,
            volume: None,
            attachment: None,
            published: None,
            snapshot: None,
            copies: Vec::new(),
        }
    }

    /// Returns the volume, once it exists.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Returns where the volume is published.
    pub fn published(&self) -> Option<&Published> {
        self.published.as_ref()
    }

    /// Takes one step, with retries like those of the sidecars and kubelet, and verifies its
    /// effect.
    ///
    /// # Errors
    /// Returns the driver's last answer, or the effect that is missing.
    pub async fn step(&mut self, step: LifecycleStep) -> Result<(), LifeError> {
        match step {
            LifecycleStep::Create => self.create().await,
            LifecycleStep::Attach => self.attach(0).await,
            LifecycleStep::Stage => self.stage(0).await,
            LifecycleStep::Publish => {
                self.publish(0).await?;
                bytes::write(&self.path()?, self.claim.content == Content::Block, &self.claim.name);
                Ok(())
            }
            LifecycleStep::Unpublish => self.unpublish(0).await,
            LifecycleStep::Unstage => self.unstage(0).await,
            LifecycleStep::Detach => self.detach(0).await,
            LifecycleStep::AttachElsewhere => self.attach(1).await,
            LifecycleStep::StageElsewhere => self.stage(1).await,
            LifecycleStep::PublishElsewhere => {
                self.publish(1).await?;
                self.prove_bytes()
            }
            LifecycleStep::ExpandAndModify => self.expand_and_modify().await,
            LifecycleStep::NodeExpand => self.node_expand().await,
            LifecycleStep::Snapshot => self.take_snapshot().await,
            LifecycleStep::Restore => {
                let id = require(self.snapshot.as_ref(), "the snapshot")?.id;
                self.copy(Source::Snapshot(id), "restored").await
            }
            LifecycleStep::Clone => {
                let id = require(self.volume.as_ref(), "the creation")?.id;
                self.copy(Source::Volume(id), "cloned").await
            }
            LifecycleStep::LeaveElsewhere => {
                self.prove_bytes()?;
                self.unpublish(1).await?;
                self.unstage(1).await
            }
            LifecycleStep::DetachElsewhere => self.detach(1).await,
            LifecycleStep::Delete => self.delete().await,
        }
    }

    fn path(&self) -> Result<std::path::PathBuf, LifeError> {
        Ok(require(self.published.as_ref(), "the publishing")?.path)
    }

    fn prove_bytes(&self) -> Result<(), LifeError> {
        bytes::prove(&self.path()?, self.claim.content == Content::Block, &self.claim.name);
        Ok(())
    }

    async fn create(&mut self) -> Result<(), LifeError> {
        self.volume = Some(self.co.create(&self.claim).await?);
        Ok(())
    }

    async fn attach(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        self.attachment = Some(self.co.attach(&volume, &self.instances[node]).await?);
        Ok(())
    }

    async fn stage(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        let attachment = require(self.attachment.as_ref(), "the attachment")?;
        self.kubelets[node].stage(&volume, &attachment).await?;
        Ok(())
    }

    async fn publish(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        let attachment = require(self.attachment.as_ref(), "the attachment")?;
        self.published =
            Some(self.kubelets[node].publish(&volume, &attachment, "pod-1", false).await?);
        Ok(())
    }

    async fn unpublish(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        self.kubelets[node].unpublish(&volume, "pod-1").await?;
        self.published = None;
        Ok(())
    }

    async fn unstage(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        self.kubelets[node].unstage(&volume).await?;
        Ok(())
    }

    async fn detach(&mut self, node: usize) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        self.co.detach(&volume.id, &self.instances[node]).await?;
        self.attachment = None;
        Ok(())
    }

    async fn expand_and_modify(&mut self) -> Result<(), LifeError> {
        let mut volume = require(self.volume.as_ref(), "the creation")?;
        let id = volume.id.clone();
        let wanted = volume.bytes + GIB;
        let change = HashMap::from([
            ("iops".to_owned(), "3014".to_owned()),
            ("throughput".to_owned(), "153".to_owned()),
        ]);
        let (grown, modified) =
            tokio::join!(self.co.expand(&mut volume, wanted), self.co.modify(&id, &change));
        grown?;
        modified?;
        self.volume = Some(volume);
        Ok(())
    }

    async fn node_expand(&mut self) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        if self.claim.content == ext4() && !may_grow_mounted_ext4() {
            // Staging grows a file system that is smaller than its disk.
            self.unpublish(1).await?;
            self.unstage(1).await?;
            self.stage(1).await?;
            self.publish(1).await?;
        } else {
            let published = require(self.published.as_ref(), "the publishing")?;
            self.kubelets[1].expand(&volume, &published).await?;
        }
        let published = require(self.published.as_ref(), "the publishing")?;
        let size = if volume.is_block() {
            size_of_device(&published.path)
        } else {
            size_of_filesystem(&published.path)
        };
        // A file system uses some of the space for its metadata.
        let least = volume.bytes - if volume.is_block() { 0 } else { volume.bytes / 5 };
        if size < least {
            return Err(LifeError::Untrue(format!(
                "{} has {size} bytes after it was grown to {}",
                published.path.display(),
                volume.bytes
            )));
        }
        self.prove_bytes()
    }

    async fn take_snapshot(&mut self) -> Result<(), LifeError> {
        let volume = require(self.volume.as_ref(), "the creation")?;
        let name = format!("snapshot-{}", self.claim.name);
        self.snapshot = Some(self.co.snapshot_ready(&name, &volume.id).await?);
        Ok(())
    }

    /// Creates a copy and uses it on the second node, beside its source.
    async fn copy(&mut self, source: Source, what: &str) -> Result<(), LifeError> {
        let mut claim = self.claim.clone().from_source(source);
        claim.name = format!("{}-{what}", self.claim.name);
        claim.bytes = require(self.volume.as_ref(), "the creation")?.bytes;
        let copy = self.co.create(&claim).await?;
        if !self.copies.iter().any(|known| known.id == copy.id) {
            self.copies.push(copy.clone());
        }
        let kubelet = &self.kubelets[1];
        let attachment = self.co.attach(&copy, &self.instances[1]).await?;
        kubelet.stage(&copy, &attachment).await?;
        let published = kubelet.publish(&copy, &attachment, "pod-2", false).await?;
        bytes::prove(&published.path, copy.is_block(), &self.claim.name);
        kubelet.unpublish(&copy, "pod-2").await?;
        kubelet.unstage(&copy).await?;
        self.co.detach(&copy.id, &self.instances[1]).await?;
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), LifeError> {
        for copy in &self.copies {
            self.co.delete(&copy.id).await?;
        }
        let volume = require(self.volume.as_ref(), "the creation")?;
        self.co.delete(&volume.id).await?;
        if let Some(snapshot) = &self.snapshot {
            self.co.delete_snapshot(&snapshot.id).await?;
        }
        Ok(())
    }
}

fn ext4() -> Content {
    Content::Filesystem { kind: "ext4".to_owned(), flags: Vec::new() }
}

/// Returns whether this machine can grow a mounted ext4: the kernel allows that only to a process
/// with CAP_SYS_RESOURCE (linux fs/ext4/ioctl.c), which not every machine can grant.
fn may_grow_mounted_ext4() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    ebs_csi_sandbox::audit::bounding_of_this_process().is_ok_and(|set| set & SYS_RESOURCE != 0)
}

fn size_of_device(path: &std::path::Path) -> i64 {
    use std::io::{Seek, SeekFrom};
    let end = std::fs::File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0)));
    end.ok().and_then(|end| i64::try_from(end).ok()).unwrap_or(0)
}

fn size_of_filesystem(path: &std::path::Path) -> i64 {
    rustix::fs::statvfs(path)
        .ok()
        .and_then(|found| i64::try_from(found.f_blocks * found.f_frsize).ok())
        .unwrap_or(0)
}
