//! A contestant's controller, and the world around it.

use ebs_csi_sandbox::World;

use crate::contestant::Contestant;
use crate::error::BenchError;
use crate::process_usage::cpu_seconds;
use crate::report::figure::Role;
use crate::world::{UNLIMITED, WITHOUT_QUOTA, without_nodes};

impl Contestant {
    /// Returns a server that does no work.
    fn echo(&self) -> Result<Self, BenchError> {
        Ok(Self {
            name: "tonic echo".to_owned(),
            role: Role::Bound,
            binaries: self.binaries.clone(),
            program: Some((self.binaries.path("ebs-csi-bench")?, vec!["echo".to_owned()])),
        })
    }

    /// Starts simulator and controller with an EC2 that has no delays and no quota, and tells the
    /// controller so.
    pub(super) async fn unlimited_world(&self, instances: usize) -> Result<World, BenchError> {
        let told = if self.role == Role::Ours { &[WITHOUT_QUOTA][..] } else { &[] };
        self.start(instances, UNLIMITED, told).await
    }

    /// Starts simulator and controller with `scenario` and with `instances` instances of 27
    /// attachments.
    pub(super) async fn world(
        &self,
        instances: usize,
        scenario: &str,
    ) -> Result<World, BenchError> {
        self.start(instances, scenario, &[]).await
    }

    async fn start(
        &self,
        instances: usize,
        scenario: &str,
        arguments: &[&str],
    ) -> Result<World, BenchError> {
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
pub(super) fn with_echo(contestants: &[Contestant]) -> Result<Vec<Contestant>, BenchError> {
    let mut all = contestants.to_vec();
    all.push(contestants[0].echo()?);
    Ok(all)
}

/// A number of attachments that fits on each instance of these worlds.
pub(super) const PER_INSTANCE: usize = 20;

/// Shuts down the world of a successful run.
pub(super) async fn end(world: World) -> Result<(), BenchError> {
    world.shutdown().await?;
    Ok(())
}

/// Returns the process id of the controller.
pub(super) fn pid(world: &World) -> Result<i32, BenchError> {
    world.controller.pid().ok_or_else(|| "the controller does not run".to_owned().into())
}

/// Returns the processor time that the controller, the simulator and this process have used, in
/// seconds.
pub(super) fn cpu(world: &World) -> Result<[f64; 3], BenchError> {
    let simulator = world.simulator.process().pid().unwrap_or_default();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    Ok([cpu_seconds(pid(world)?)?, cpu_seconds(simulator)?, cpu_seconds(own)?])
}
