//! The whole world: simulator, controller and nodes, started in order and ended without a trace.

mod beside;
pub mod clean;
mod container;
pub mod keeper;
pub(crate) mod node;
mod node_namespace;
pub(crate) mod options;
pub(crate) mod process;
pub(crate) mod simulator;
mod state_dir;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use csi::identity_client::IdentityClient;
use ebs_csi_audit::PARTS_OF_HELPER;
use ebs_csi_policy::process_status::Status;
use ebs_csi_proto::csi;
use serde_json::Value;

use crate::co::{Co, CoError, Kubelet, channel};
use crate::pod_view;
use clean::Cleaned;
use keeper::Keeper;
use node::Node;
use options::{WorldOptions, ZONE};
use process::Process;
use simulator::Simulator;

/// The reason why the world could not be started, changed or ended.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Not run as root, or the machine lacks needed system calls.
    #[error("{0}")]
    Host(String),
    /// A step of the world itself failed.
    #[error("{what}: {source}")]
    Step {
        /// The step.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A process ended or did not answer.
    #[error("{process} {what}\nits log ends with:\n{log}")]
    Process {
        /// The process's name in the world.
        process: String,
        /// The step.
        what: String,
        /// The end of the process's log.
        log: String,
    },
    /// The orchestrator failed.
    #[error(transparent)]
    Co(#[from] CoError),
}

type Result<T, E = WorldError> = std::result::Result<T, E>;

/// A running world: simulator, controller and nodes.
pub struct World {
    options: WorldOptions,
    state_dir: PathBuf,
    /// The EC2 simulator.
    pub simulator: Simulator,
    /// The controller.
    pub controller: Process,
    /// Further controllers of the same cluster.
    pub replicas: Vec<Process>,
    /// The nodes, in the order of the options.
    pub nodes: Vec<Node>,
    /// The launcher, if it runs in place of the other processes.
    pub launcher: Option<Process>,
    /// Programs that are not of the driver.
    others: Vec<Process>,
    // The last field, because fields are dropped in order: the keeper cleans up after all other
    // fields have been dropped.
    keeper: Option<Keeper>,
}

/// The time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
const READY: Duration = Duration::from_secs(30);

fn step<T>(what: &str, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| WorldError::Step { what: what.to_owned(), source })
}

impl World {
    /// Starts everything and waits until each socket answers. Leaves nothing behind on failure.
    pub async fn start(options: WorldOptions) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(WorldError::Host(
                "block devices and mounts need root; run it as root".to_owned(),
            ));
        }
        let state_dir = step("making the state directory", state_dir::make())?;
        let keeper = match Keeper::start(&options.binaries, &state_dir) {
            Ok(keeper) => keeper,
            Err(source) => {
                let _ = std::fs::remove_dir_all(&state_dir);
                return Err(WorldError::Step { what: "starting the keeper".to_owned(), source });
            }
        };
        let simulator = step(
            "starting the simulator",
            Simulator::start(&options.binaries, &state_dir, &options.scenario(), &options.devices)
                .await,
        )?;
        let controller = container::controller("controller", &options, &state_dir, &simulator);
        let controller = step("preparing the controller", controller)?;
        let mut world = Self {
            options,
            state_dir,
            simulator,
            controller,
            replicas: Vec::new(),
            nodes: Vec::new(),
            launcher: None,
            others: Vec::new(),
            keeper: Some(keeper),
        };
        world.start_controller().await?;
        if world.options.devices == "loop" {
            for node in &world.options.nodes {
                let (options, others) = (&world.options, &world.nodes);
                let made = Node::make(options, &world.state_dir, &world.simulator, node, others);
                let made = step("preparing a node", made)?;
                world.nodes.push(made);
            }
            for index in 0..world.nodes.len() {
                if world.options.node_program.is_none() {
                    world.start_helper(index).await?;
                }
                world.start_agent(index).await?;
            }
        }
        Ok(world)
    }

    /// Ends the controller and the processes of node `index`, and runs the launcher in mode `all`
    /// in their place, with further `flags`.
    pub async fn start_all(&mut self, index: usize, flags: &[&str]) -> Result<()> {
        let node = &mut self.nodes[index];
        for process in [&mut node.agent, &mut node.helper, &mut self.controller] {
            step("stopping a process", process.stop(GRACE).await)?;
        }
        let launcher = node.launcher(&self.options, &self.state_dir, &self.simulator, flags);
        let launcher = self.launcher.insert(step("preparing the launcher", launcher)?);
        step("starting the launcher", launcher.start())?;
        ready(launcher).await?;
        launcher.socket().clone_into(&mut node.csi_socket);
        Ok(())
    }

    /// Returns the directory that holds everything that the world makes.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Returns the options with which the world was started.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// Returns the socket of the controller, or of the launcher if that runs.
    pub fn controller_socket(&self) -> &Path {
        self.launcher.as_ref().unwrap_or(&self.controller).socket()
    }

    /// Returns sidecars for the controller.
    pub fn co(&self) -> Result<Co, CoError> {
        Co::new(self.controller_socket(), ZONE)
    }

    /// Returns the kubelet of node `index`.
    pub fn kubelet(&self, index: usize) -> Result<Kubelet, CoError> {
        let node = &self.nodes[index];
        Kubelet::new(&node.csi_socket, &node.kubelet_root)
    }

    /// Starts another controller of the same cluster and waits until its Probe succeeds.
    pub async fn add_replica(&mut self) -> Result<()> {
        let name = format!("controller-{}", self.replicas.len() + 2);
        let made = container::controller(&name, &self.options, &self.state_dir, &self.simulator);
        let mut replica = step("preparing a replica", made)?;
        step("starting a replica", replica.start())?;
        ready(&mut replica).await?;
        self.replicas.push(replica);
        Ok(())
    }

    /// Starts the controller and waits until its Probe succeeds. Returns the time since exec.
    pub async fn start_controller(&mut self) -> Result<Duration> {
        step("starting the controller", self.controller.start())?;
        ready(&mut self.controller).await
    }

    /// Ends the controller and starts it with the further arguments `more`.
    pub async fn restart_controller(&mut self, more: &[String]) -> Result<Duration> {
        step("stopping the controller", self.controller.stop(GRACE).await)?;
        let mut options = self.options.clone();
        options.controller_arguments.extend_from_slice(more);
        let made = container::controller("controller", &options, &self.state_dir, &self.simulator);
        self.controller = step("preparing the controller", made)?;
        self.start_controller().await
    }

    /// Cuts the power of node `index`: kills its processes and removes its mounts.
    pub async fn cut_power(&mut self, index: usize) -> Result<()> {
        step("cutting the power of a node", self.nodes[index].cut_power().await)
    }

    /// Starts the node-agent of node `index` and waits until its Probe succeeds. Returns the time
    /// since exec.
    pub async fn start_agent(&mut self, index: usize) -> Result<Duration> {
        let agent = &mut self.nodes[index].agent;
        step("starting the node-agent", agent.start())?;
        ready(agent).await
    }

    /// Starts the mount-helper of node `index` and waits until its socket exists and its processes
    /// are confined. Returns the time since exec.
    pub async fn start_helper(&mut self, index: usize) -> Result<Duration> {
        let helper = &mut self.nodes[index].helper;
        step("starting the mount-helper", helper.start())?;
        let is_ready = async |helper: &Process| {
            helper.socket().exists() && helper_is_confined(&helper.process_tree())
        };
        wait_until(helper, is_ready).await
    }

    /// Returns all processes of the world.
    pub fn processes(&self) -> Vec<&Process> {
        let mut all = vec![self.simulator.process(), &self.controller];
        all.extend(self.others.iter().chain(&self.replicas).chain(&self.launcher));
        for node in &self.nodes {
            all.extend([&node.agent, &node.helper]);
        }
        all
    }

    /// Returns all processes in the order in which they are stopped.
    fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        let nodes = self.nodes.iter_mut().flat_map(|node| [&mut node.agent, &mut node.helper]);
        let last = [&mut self.controller, &mut self.simulator.process];
        let first = self.others.iter_mut().chain(&mut self.replicas).chain(&mut self.launcher);
        first.chain(nodes).chain(last)
    }

    /// Returns the names of the processes that have ended without a request.
    pub fn ended_processes(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for process in self.processes_mut() {
            if step("waiting for a process", process.ended())?.is_some() {
                ended.push(process.name().to_owned());
            }
        }
        Ok(ended)
    }

    /// Restarts the controller and the nodes' processes that have ended, as a container runtime
    /// does. Returns their names.
    pub async fn restart_ended(&mut self) -> Result<Vec<String>> {
        let ended = self.ended_processes()?;
        for name in &ended {
            let helper = self.nodes.iter().position(|node| node.helper.name() == name);
            let agent = self.nodes.iter().position(|node| node.agent.name() == name);
            if name == self.controller.name() {
                self.start_controller().await?;
            } else if let Some(index) = helper {
                self.start_helper(index).await?;
            } else if let Some(index) = agent {
                self.start_agent(index).await?;
            } else if let Some(other) = self.processes_mut().find(|other| other.name() == name) {
                return Err(process_error(other, "has ended".to_owned()));
            }
        }
        Ok(ended)
    }

    /// Returns the end of every log, for a failure report.
    pub fn logs(&self, lines: usize) -> BTreeMap<String, String> {
        self.processes()
            .into_iter()
            .map(|process| (process.name().to_owned(), process.log_tail(lines)))
            .collect()
    }

    /// Returns one sentence for each rule of EC2 that was broken, for each object in EC2 other than
    /// root volumes, and for each loop device and each mount of a volume.
    pub async fn leaked(&self) -> io::Result<Vec<String>> {
        let found = self.simulator.get("/v1/invariants").await?;
        let live = ["volumes", "snapshots", "attachments"].map(|kind| (kind, &found["live"][kind]));
        let other = ["violations", "duplicates", "loops"].map(|kind| (kind, &found[kind]));
        let mut leaked: Vec<String> = live
            .into_iter()
            .chain(other)
            .filter(|(_, found)| !is_empty(found))
            .map(|(kind, found)| format!("{kind}: {found}"))
            .collect();
        let loops = clean::loops_of(&self.state_dir);
        leaked.extend(loops.iter().map(|device| format!("loop device {}", device.display())));
        for node in &self.nodes {
            let mounts = pod_view::mounts_beneath(&node.kubelet_root)?;
            leaked.extend(mounts.iter().map(|point| format!("mount {}", point.display())));
        }
        Ok(leaked)
    }

    /// Ends everything, first with SIGTERM. Returns what had to be removed by force and what is
    /// still there.
    pub async fn shutdown(mut self) -> Result<Ended> {
        let mut killed = Vec::new();
        for process in self.processes_mut() {
            if !step("stopping a process", process.stop(GRACE).await)? {
                killed.push(process.name().to_owned());
            }
        }
        let cleaned = clean::clean(&self.state_dir, &self.options.binaries);
        let leftovers = clean::leftovers(&self.state_dir);
        self.keeper.take();
        Ok(Ended { killed, cleaned, leftovers })
    }
}

/// Returns whether the value is null, zero, or a collection of such values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Number(number) => number.as_u64() == Some(0),
        _ => value.is_null(),
    }
}

/// The result of a world's end.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The processes that did not end, with all their descendants, within the grace period after
    /// SIGTERM.
    pub killed: Vec<String>,
    /// The removed remains; these always include the nodes' shared kubelet directories, which are
    /// mounts.
    pub cleaned: Cleaned,
    /// What is still there; empty after a complete end.
    pub leftovers: Vec<String>,
}

/// Waits until `is_ready` holds. Returns the time since the process was started.
async fn wait_until(
    process: &mut Process,
    is_ready: impl AsyncFn(&Process) -> bool,
) -> Result<Duration> {
    let began = process.started().unwrap_or_else(Instant::now);
    while !is_ready(process).await {
        let what = match step("waiting for a process", process.ended())? {
            Some(status) => format!("ended with {status} before it was ready"),
            None if began.elapsed() > READY => "did not get ready in 30 s".to_owned(),
            None => {
                tokio::time::sleep(Duration::from_micros(500)).await;
                continue;
            }
        };
        return Err(process_error(process, what));
    }
    Ok(began.elapsed())
}

/// Calls Probe until it succeeds. Returns the time since the process was started.
async fn ready(process: &mut Process) -> Result<Duration> {
    let identity = IdentityClient::new(channel(process.socket())?);
    let is_ready = async |_: &Process| {
        let answer = identity.clone().probe(csi::ProbeRequest {}).await;
        answer.is_ok_and(|answer| answer.into_inner().ready != Some(false))
    };
    wait_until(process, is_ready).await
}

fn process_error(process: &Process, what: String) -> WorldError {
    WorldError::Process { process: process.name().to_owned(), what, log: process.log_tail(20) }
}

/// Returns whether all processes of the helper run, each under a filter.
fn helper_is_confined(tree: &[i32]) -> bool {
    let is_filtered = |pid: &i32| {
        let status = std::fs::read(format!("/proc/{pid}/status")).ok();
        let status = status.and_then(|text| Status::parse(&text).ok());
        status.is_some_and(|status| status.seccomp == 2)
    };
    tree.len() > PARTS_OF_HELPER.len() && tree.iter().all(is_filtered)
}
