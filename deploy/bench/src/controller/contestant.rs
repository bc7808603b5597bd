//! A controller to measure, and the world around it.

use std::path::PathBuf;

use ebs_csi_sandbox::World;
use ebs_csi_sandbox::binaries::Binaries;

use crate::error::BenchError;
use crate::process_usage::cpu_seconds;
use crate::report::figure::Role;
use crate::world::{UNLIMITED, without_nodes};

/// A driver's controller.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    /// The name in the tables.
    pub(super) name: String,
    /// The role of its rows.
    pub(super) role: Role,
    binaries: Binaries,
    program: Option<(PathBuf, Vec<String>)>,
    arguments: Vec<String>,
    /// The arguments that tell the controller that EC2 has no quota: without them, a driver that
    /// limits itself to EC2's documented rates would wait needlessly.
    without_quota: Vec<String>,
}

impl Contestant {
    /// Returns this driver's controller.
    pub(super) fn ours(binaries: &Binaries) -> Self {
        Self {
            name: "driver".to_owned(),
            role: Role::Ours,
            binaries: binaries.clone(),
            program: None,
            arguments: Vec::new(),
            without_quota: vec!["--ec2-request-rates=all=1000000/1000000".to_owned()],
        }
    }

    /// Returns another driver's controller, with batching as in its chart.
    pub(super) fn peer(binaries: &Binaries, path: PathBuf) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            name: name.to_string_lossy().into_owned(),
            role: Role::Peer,
            binaries: binaries.clone(),
            program: Some((path, vec!["controller".to_owned()])),
            arguments: vec!["--batching=true".to_owned()],
            without_quota: Vec::new(),
        }
    }

    /// Returns a server that does no work.
    pub(super) fn echo(binaries: &Binaries) -> Result<Self, BenchError> {
        Ok(Self {
            name: "tonic echo".to_owned(),
            role: Role::Bound,
            binaries: binaries.clone(),
            program: Some((binaries.path("ebs-csi-bench")?, vec!["echo".to_owned()])),
            arguments: Vec::new(),
            without_quota: Vec::new(),
        })
    }

    /// Starts simulator and controller with an EC2 that has no delays and no quota, and tells the
    /// controller so.
    pub(super) async fn unlimited_world(&self, instances: usize) -> Result<World, BenchError> {
        let mut told = self.clone();
        told.arguments.extend(self.without_quota.clone());
        told.world(instances, UNLIMITED).await
    }

    /// Starts simulator and controller with `scenario` and with `instances` instances of 27
    /// attachments.
    pub(super) async fn world(
        &self,
        instances: usize,
        scenario: &str,
    ) -> Result<World, BenchError> {
        let mut options = without_nodes(&self.binaries, instances, scenario);
        options.controller_program.clone_from(&self.program);
        options.controller_arguments.clone_from(&self.arguments);
        Ok(World::start(options).await?)
    }
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
