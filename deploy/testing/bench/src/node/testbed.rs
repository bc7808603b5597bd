//! One node with attached volumes, on a simulator without delays.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node::bare::LoopDevice;
use ebs_csi_sandbox::co::{Attachment, Claim, Volume};
use ebs_csi_sandbox::world::clean;
use ebs_csi_sandbox::{Co, Kubelet, NodeOptions, World, WorldOptions, ZONE};

use crate::contestant::Contestant;
use crate::delay::{DelayedFile, Latency};
use crate::error::Result;
use crate::world::UNLIMITED;

pub(super) struct Testbed {
    pub(super) world: World,
    pub(super) co: Co,
    pub(super) kubelet: Kubelet,
    latency: Option<Latency>,
    /// Dropped after the world, which has loop devices over these files.
    delayed: RefCell<Vec<DelayedFile>>,
}

#[derive(Clone)]
pub(super) struct Attached {
    pub(super) volume: Volume,
    pub(super) attachment: Attachment,
}

impl Testbed {
    /// Starts a world with the node service of `contestant`, whose disks have this latency.
    pub(super) async fn make(contestant: &Contestant, latency: Option<Latency>) -> Result<Self> {
        let mut options = WorldOptions::new(contestant.binaries.clone());
        options.node_program.clone_from(&contestant.program);
        let mut node = NodeOptions::new("node-a", "i-0aaaaaaaaaaaaaaa1", ZONE);
        // Allows 128 attachments.
        node.kind = "m7i.48xlarge".to_owned();
        options.nodes = vec![node];
        options.one_zone = true;
        options.scenario = UNLIMITED.to_owned();
        let world = World::start(options).await?;
        let (co, kubelet) = (world.co()?, world.kubelet(0)?);
        Ok(Self { world, co, kubelet, latency, delayed: RefCell::default() })
    }

    /// Delays a file that becomes a disk, if the disks have a latency.
    fn delay(&self, file: &Path) -> Result<()> {
        if let Some(latency) = self.latency {
            let binaries = &self.world.options().binaries;
            self.delayed.borrow_mut().push(DelayedFile::make(binaries, file, latency)?);
        }
        Ok(())
    }

    /// Makes a disk of 1 GiB for the bare steps, equal to that of an attached volume.
    pub(super) fn bare(&self, name: &str) -> Result<LoopDevice> {
        let directory = self.world.state_dir().join("bare");
        std::fs::create_dir_all(&directory)?;
        self.delay(&directory.join(format!("{name}.img")))?;
        Ok(LoopDevice::make(&directory, name, 1 << 30)?)
    }

    /// Creates and attaches a volume of 1 GiB.
    pub(super) async fn attach(&self, name: &str, kind: &str) -> Result<Attached> {
        let claim = Claim::filesystem(name, kind, 1).parameter("type", "gp3");
        let volume = self.co.create(&claim).await?;
        let image = format!("ec2/volumes/{}.img", volume.id);
        self.delay(&self.world.state_dir().join(image))?;
        let attachment = self.co.attach(&volume, &self.world.nodes[0].instance).await?;
        Ok(Attached { volume, attachment })
    }

    /// Returns the block device of an attached volume, as the node's processes see it.
    pub(super) fn device(&self, attached: &Attached) -> Result<PathBuf> {
        let path = attached.attachment.get("devicePath");
        let name = path
            .and_then(|path| path.strip_prefix("/dev/"))
            .ok_or_else(|| format!("devicePath is {path:?}"))?;
        Ok(std::fs::canonicalize(self.world.nodes[0].dev_dir.join(name))?)
    }

    /// Returns the duration of the last `rpc`, or `None` when the call was repeated.
    pub(super) fn duration_of(&self, rpc: &str) -> Option<Duration> {
        let call = self.kubelet.attempts.last(rpc)?;
        (call.attempts == 1).then_some(call.elapsed)
    }

    pub(super) fn processes(&self) -> Vec<i32> {
        let node = &self.world.nodes[0];
        let mut all = node.agent.process_tree();
        all.extend(node.helper.process_tree());
        all
    }

    /// Shuts the world down; returns an error when something is left. The kernel clears a hundred
    /// loop devices asynchronously, so this waits for half a minute.
    pub(super) async fn end(self) -> Result<()> {
        let directory = self.world.state_dir().to_owned();
        let mut left = self.world.shutdown().await?.leftovers;
        for _ in 0..300 {
            if left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            left = clean::leftovers(&directory);
        }
        Err(format!("left behind: {}", left.join("; ")).into())
    }
}
