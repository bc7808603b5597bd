//! The life cycle of a volume as a list of steps, so that a test can act between any two of them.

use std::path::PathBuf;

use ebs_csi_sandbox::co::{Attachment, Claim, Content, GIB, Snapshot, Source, Volume};
use ebs_csi_sandbox::{Co, CoError, Kubelet, pod_view};

macro_rules! steps {
    ($($(#[$documentation:meta])* $step:ident,)*) => {
        /// One step of a life cycle. [`LifecycleStep::ALL`] in order is a whole life cycle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LifecycleStep {
            $($(#[$documentation])* $step,)*
        }

        impl LifecycleStep {
            /// All steps in order.
            pub const ALL: &[Self] = &[$(Self::$step,)*];

            /// Returns the steps from the first to `last`.
            pub fn up_to(last: Self) -> &'static [Self] {
                &Self::ALL[..=last as usize]
            }
        }
    };
}

steps! {
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

/// Returns the error of a step whose effect is missing although the driver reported success.
fn missing(why: impl ToString) -> CoError {
    CoError::Own { what: "the effect of the step".to_owned(), why: why.to_string() }
}

/// A volume and its state in the life cycle.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    co: Co,
    kubelets: [Kubelet; 2],
    instances: [String; 2],
    claim: Claim,
    volume: Option<Volume>,
    attachment: Option<Attachment>,
    published: Option<PathBuf>,
    snapshot: Option<Snapshot>,
    copies: Vec<Volume>,
}

fn require<T: Clone>(thing: Option<&T>, what: &str) -> Result<T, CoError> {
    thing.cloned().ok_or_else(|| missing(format!("{what} has not happened yet")))
}

impl crate::Fixture {
    /// Takes steps of a life cycle.
    pub async fn take(&self, volume: &mut Lifecycle, steps: &[LifecycleStep]) {
        for &step in steps {
            self.must(&format!("{step:?}"), volume.step(step)).await;
        }
    }
}

impl Lifecycle {
    /// Prepares a life cycle on the first two nodes of a fixture.
    pub fn new(fixture: &crate::Fixture, claim: Claim) -> Self {
        Self {
            co: fixture.co.clone(),
            kubelets: [fixture.kubelets[0].clone(), fixture.kubelets[1].clone()],
            instances: [fixture.instance(0), fixture.instance(1)],
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

    /// Takes one step, with retries like those of the sidecars and kubelet, and verifies its
    /// effect.
    pub async fn step(&mut self, step: LifecycleStep) -> Result<(), CoError> {
        use LifecycleStep as Step;
        match step {
            Step::Create => self.volume = Some(self.co.create(&self.claim).await?),
            Step::Attach => self.attach(0).await?,
            Step::Stage => self.stage(0).await?,
            Step::Publish => {
                self.publish(0).await?;
                let path = self.published_at()?;
                pod_view::write(&path, &self.claim.name).map_err(missing)?;
            }
            Step::Unpublish => self.unpublish(0).await?,
            Step::Unstage => self.unstage(0).await?,
            Step::Detach => self.detach(0).await?,
            Step::AttachElsewhere => self.attach(1).await?,
            Step::StageElsewhere => self.stage(1).await?,
            Step::PublishElsewhere => {
                self.publish(1).await?;
                self.verify_bytes()?;
            }
            Step::ExpandAndModify => self.expand_and_modify().await?,
            Step::NodeExpand => self.node_expand().await?,
            Step::Snapshot => {
                let name = format!("snapshot-{}", self.claim.name);
                self.snapshot = Some(self.co.snapshot_ready(&name, &self.created()?.id).await?);
            }
            Step::Restore => {
                let id = require(self.snapshot.as_ref(), "the snapshot")?.id;
                self.copy(Source::Snapshot(id), "restored").await?;
            }
            Step::Clone => self.copy(Source::Volume(self.created()?.id), "cloned").await?,
            Step::LeaveElsewhere => {
                self.verify_bytes()?;
                self.unpublish(1).await?;
                self.unstage(1).await?;
            }
            Step::DetachElsewhere => self.detach(1).await?,
            Step::Delete => {
                for volume in self.copies.iter().chain(&self.volume) {
                    self.co.delete(&volume.id).await?;
                }
                if let Some(snapshot) = &self.snapshot {
                    self.co.delete_snapshot(&snapshot.id).await?;
                }
            }
        }
        Ok(())
    }

    /// Repeats CreateVolume, NodeStageVolume and NodePublishVolume, which must find the volume as
    /// it is published on the first node.
    pub async fn repeat(&self) -> Result<(), CoError> {
        let (volume, attachment) = (self.created()?, self.attached()?);
        let again = self.co.create(&self.claim).await?.id;
        if again != volume.id {
            return Err(missing(format!("the same name gave {} and then {again}", volume.id)));
        }
        self.kubelets[0].stage(&volume, &attachment).await?;
        self.kubelets[0].publish(&volume, &attachment, "pod-1", false).await?;
        self.verify_bytes()
    }

    fn created(&self) -> Result<Volume, CoError> {
        require(self.volume.as_ref(), "the creation")
    }

    fn attached(&self) -> Result<Attachment, CoError> {
        require(self.attachment.as_ref(), "the attachment")
    }

    fn published_at(&self) -> Result<PathBuf, CoError> {
        require(self.published.as_ref(), "the publishing")
    }

    fn verify_bytes(&self) -> Result<(), CoError> {
        let found = pod_view::find(&self.published_at()?, &self.claim.name);
        found.map(drop).map_err(missing)
    }

    async fn attach(&mut self, node: usize) -> Result<(), CoError> {
        self.attachment = Some(self.co.attach(&self.created()?, &self.instances[node]).await?);
        Ok(())
    }

    async fn stage(&mut self, node: usize) -> Result<(), CoError> {
        self.kubelets[node].stage(&self.created()?, &self.attached()?).await?;
        Ok(())
    }

    async fn publish(&mut self, node: usize) -> Result<(), CoError> {
        let (volume, attachment) = (self.created()?, self.attached()?);
        let published = self.kubelets[node].publish(&volume, &attachment, "pod-1", false).await?;
        self.published = Some(published);
        Ok(())
    }

    async fn unpublish(&mut self, node: usize) -> Result<(), CoError> {
        self.kubelets[node].unpublish(&self.created()?, "pod-1").await?;
        self.published = None;
        Ok(())
    }

    async fn unstage(&mut self, node: usize) -> Result<(), CoError> {
        self.kubelets[node].unstage(&self.created()?).await?;
        Ok(())
    }

    async fn detach(&mut self, node: usize) -> Result<(), CoError> {
        self.co.detach(&self.created()?.id, &self.instances[node]).await?;
        self.attachment = None;
        Ok(())
    }

    async fn expand_and_modify(&mut self) -> Result<(), CoError> {
        let mut volume = self.created()?;
        let (id, wanted) = (volume.id.clone(), volume.bytes + GIB);
        let change = [("iops", "3014"), ("throughput", "153")];
        let (grown, modified) =
            tokio::join!(self.co.expand(&mut volume, wanted), self.co.modify(&id, &change));
        grown?;
        modified?;
        self.volume = Some(volume);
        Ok(())
    }

    async fn node_expand(&mut self) -> Result<(), CoError> {
        let volume = self.created()?;
        if self.claim.content == ext4() && !may_grow_mounted_ext4() {
            // Staging grows a file system that is smaller than its disk.
            self.unpublish(1).await?;
            self.unstage(1).await?;
            self.stage(1).await?;
            self.publish(1).await?;
        } else {
            self.kubelets[1].expand(&volume, &self.published_at()?).await?;
        }
        let path = self.published_at()?;
        // A file system uses some of the space for its metadata.
        let metadata = if volume.is_block() { 0 } else { volume.bytes / 5 };
        let (size, least) = (pod_view::size(&path).map_err(missing)?, volume.bytes - metadata);
        if size < least {
            let (shown, wanted) = (path.display(), volume.bytes);
            let what = format!("{shown} has {size} bytes after it was grown to {wanted}");
            return Err(missing(what));
        }
        self.verify_bytes()
    }

    /// Creates a copy and uses it on the second node, where its source is mounted.
    async fn copy(&mut self, source: Source, what: &str) -> Result<(), CoError> {
        let mut claim = self.claim.clone().from_source(source);
        claim.name = format!("{}-{what}", self.claim.name);
        claim.bytes = self.created()?.bytes;
        let copy = self.co.create(&claim).await?;
        if !self.copies.iter().any(|known| known.id == copy.id) {
            self.copies.push(copy.clone());
        }
        let kubelet = &self.kubelets[1];
        let attachment = self.co.attach(&copy, &self.instances[1]).await?;
        kubelet.stage(&copy, &attachment).await?;
        let published = kubelet.publish(&copy, &attachment, "pod-2", false).await?;
        pod_view::find(&published, &self.claim.name).map_err(missing)?;
        kubelet.unpublish(&copy, "pod-2").await?;
        kubelet.unstage(&copy).await?;
        self.co.detach(&copy.id, &self.instances[1]).await?;
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
