//! A driver to measure, and the world around its controller.

use std::path::PathBuf;

use ebs_csi_sandbox::World;
use ebs_csi_sandbox::binaries::Binaries;

use crate::error::Result;
use crate::extent::Run;
use crate::process_usage::cpu_seconds;
use crate::report::figure::Role;
use crate::world::{UNLIMITED, WITHOUT_QUOTA, without_nodes};

/// A driver to measure, or a server that does no work.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) binaries: Binaries,
    /// Program and leading arguments of another driver; `None` for this driver.
    pub(crate) program: Option<(PathBuf, Vec<String>)>,
}

/// Returns this driver and, where its program is given, another driver run with the argument
/// `mode`.
pub(crate) fn contestants(binaries: &Binaries, run: &Run, mode: &str) -> Vec<Contestant> {
    let ours = Contestant {
        name: "driver".to_owned(),
        role: Role::Ours,
        binaries: binaries.clone(),
        program: None,
    };
    let other = run.peer_bin.as_ref().map(|path| Contestant {
        name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        role: Role::Peer,
        program: Some((path.clone(), vec![mode.to_owned()])),
        ..ours.clone()
    });
    [ours].into_iter().chain(other).collect()
}

impl Contestant {
    fn echo(&self) -> Result<Self> {
        Ok(Self {
            name: "tonic echo".to_owned(),
            role: Role::Bound,
            binaries: self.binaries.clone(),
            program: Some((self.binaries.path("ebs-csi-bench")?, vec!["echo".to_owned()])),
        })
    }

    /// Starts simulator and controller with an EC2 that has no delays and no quota, and tells the
    /// controller so.
    pub(crate) async fn unlimited_world(&self, instances: usize) -> Result<World> {
        let told = if self.role == Role::Ours { &[WITHOUT_QUOTA][..] } else { &[] };
        self.start(instances, UNLIMITED, told).await
    }

    /// Starts simulator and controller with `scenario` and with `instances` instances of 27
    /// attachments.
    pub(crate) async fn world(&self, instances: usize, scenario: &str) -> Result<World> {
        self.start(instances, scenario, &[]).await
    }

    async fn start(&self, instances: usize, scenario: &str, arguments: &[&str]) -> Result<World> {
        let mut options = without_nodes(&self.binaries, instances, scenario);
        options.controller_program.clone_from(&self.program);
        // As in the other driver's chart.
        let batching = (self.role == Role::Peer).then_some("--batching=true");
        let arguments = batching.iter().chain(arguments);
        options.controller_arguments = arguments.map(|&argument| argument.to_owned()).collect();
        Ok(World::start(options).await?)
    }
}

/// Returns `contestants` and, as their bound, a server that does no work.
pub(crate) fn with_echo(contestants: &[Contestant]) -> Result<Vec<Contestant>> {
    let mut all = contestants.to_vec();
    all.push(contestants[0].echo()?);
    Ok(all)
}

/// A number of attachments that fits on each instance of these worlds.
pub(crate) const PER_INSTANCE: usize = 20;

/// Runs `work` in a world, and shuts the world down.
pub(crate) async fn in_world<T>(
    world: World,
    work: impl AsyncFnOnce(&World) -> Result<T>,
) -> Result<T> {
    let done = work(&world).await;
    world.shutdown().await?;
    done
}

pub(crate) fn pid(world: &World) -> Result<i32> {
    world.controller.pid().ok_or_else(|| "the controller does not run".to_owned().into())
}

/// Returns the processor time that the controller, the simulator and this process have used, in
/// seconds.
pub(crate) fn cpu(world: &World) -> Result<[f64; 3]> {
    let simulator = world.simulator.process().pid().unwrap_or_default();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    Ok([cpu_seconds(pid(world)?)?, cpu_seconds(simulator)?, cpu_seconds(own)?])
}
