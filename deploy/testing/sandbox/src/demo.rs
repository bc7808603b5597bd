//! The demonstration: the whole life cycle of a volume, with each step verified independently of
//! the driver's answers.

mod closing;
mod copies;
mod deaths;
mod failover;
mod growth;
mod moves;
mod narrator;
mod outage;

use std::path::PathBuf;

use crate::audit::ObservedProcess;
use crate::co::{Attachment, Co, CoError, Kubelet, Volume};
use crate::ec2::DescribedVolume;
use crate::world::simulator::Simulator;
use crate::world::{World, WorldError};

use narrator::Narrator;

/// The reason why the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The driver refused a call.
    #[error(transparent)]
    Co(#[from] CoError),
    /// The world failed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Reading the state of the machine or of the simulator failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The driver reported success, but the effect is missing.
    #[error("not as it must be: {0}")]
    Unverified(String),
}

type Result<T, E = DemoError> = std::result::Result<T, E>;

/// Returns an error with `what` unless `condition` holds.
fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<()> {
    if condition { Ok(()) } else { Err(DemoError::Unverified(what())) }
}

/// EC2's latencies in the demonstration: short and random. Replies take 5 ms, as over a network.
pub const SCENARIO: &str = "\
profile = \"fast\"
[latency]
api_read = { fixed_ms = 5 }
api_write = { fixed_ms = 5 }
volume_create = { uniform_ms = [300, 900] }
volume_create_from_snapshot = { uniform_ms = [400, 1000] }
volume_copy = { uniform_ms = [400, 1000] }
attach = { uniform_ms = [300, 900] }
detach = { uniform_ms = [200, 600] }
modify = { uniform_ms = [200, 600] }
modify_complete = { fixed_ms = 300 }
snapshot = { uniform_ms = [500, 1500] }
";

#[derive(Clone, Debug)]
struct InUse {
    node: usize,
    pod: String,
    /// The target path.
    published: PathBuf,
}

struct Scene<'a> {
    world: &'a mut World,
    co: Co,
    kubelets: Vec<Kubelet>,
    narrator: Narrator,
    /// Tools that were observed while they ran.
    tools: Vec<ObservedProcess>,
    /// Existing volumes, each with the pod that uses it.
    volumes: Vec<(Volume, Option<InUse>)>,
    snapshots: Vec<String>,
    /// An attachment whose volume is not staged yet.
    attached: Option<Attachment>,
}

impl Scene<'_> {
    fn ec2(&self) -> &Simulator {
        &self.world.simulator
    }

    /// Returns EC2's view of a volume that must exist.
    async fn shown(&self, id: &str) -> Result<DescribedVolume> {
        let shown = self.ec2().volume(id).await?;
        shown.ok_or_else(|| DemoError::Unverified(format!("EC2 does not know {id}")))
    }

    async fn check_attached(&self, id: &str, instances: &[&str]) -> Result<()> {
        let shown = self.shown(id).await?;
        ensure(shown.instances == instances, || {
            format!("EC2 shows {id} attached to {:?}, not {instances:?}", shown.instances)
        })
    }

    fn instance(&self, node: usize) -> String {
        self.world.nodes[node].instance.clone()
    }

    fn node_name(&self, node: usize) -> String {
        self.world.nodes[node].name.clone()
    }
}

/// Runs the whole demonstration.
pub async fn run(world: &mut World) -> Result<()> {
    let mut narrator = Narrator::default();
    narrator.chapter("the world");
    for process in world.processes() {
        println!("            {:<22} pid {}", process.name(), process.pid().unwrap_or(0));
    }
    let kubelets =
        (0..world.nodes.len()).map(|node| world.kubelet(node)).collect::<Result<Vec<_>, _>>()?;
    let co = world.co()?;
    let mut scene = Scene {
        co,
        kubelets,
        narrator,
        tools: Vec::new(),
        volumes: Vec::new(),
        snapshots: Vec::new(),
        attached: None,
        world,
    };
    for node in 0..scene.kubelets.len() {
        let info = scene.kubelets[node].info().await?;
        let instance = scene.instance(node);
        ensure(info.node_id == instance, || {
            format!("{instance} says that it is {:?}", info.node_id)
        })?;
        let name = scene.node_name(node);
        scene.narrator.done(
            &format!("NodeGetInfo of {name}"),
            &format!("{}, at most {} volumes", info.node_id, info.max_volumes_per_node),
        );
    }
    moves::show(&mut scene).await?;
    copies::show(&mut scene).await?;
    growth::show(&mut scene).await?;
    moves::show_raw_block(&mut scene).await?;
    deaths::show(&mut scene).await?;
    outage::show(&mut scene).await?;
    failover::show(&mut scene).await?;
    closing::show(&mut scene).await
}
