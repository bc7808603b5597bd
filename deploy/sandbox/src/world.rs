//! The whole world: simulator, controller and nodes, started in order and ended without a trace.

pub mod clean;
pub(crate) mod container;
pub mod keeper;
mod launcher;
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
use ebs_csi_proto::csi;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::co::{Co, CoError, Kubelet};
use crate::procfs::mount_table;
use crate::tier::helper_is_confined;
use clean::Cleaned;
use keeper::Keeper;
use node::Node;
use options::{WorldOptions, ZONE};
use process::Process;
use simulator::Simulator;

/// Why the world could not be made, changed or ended.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Not run as root, or not on Linux with the calls that are needed.
    #[error("{0}")]
    Host(String),
    /// A step of the world's own.
    #[error("{what}: {source}")]
    Step {
        /// What was done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A process ended or did not answer.
    #[error("{process} {what}\nits log ends with:\n{log}")]
    Process {
        /// Name in the world.
        process: String,
        /// What happened.
        what: String,
        /// End of its log.
        log: String,
    },
    /// The orchestrator's side.
    #[error(transparent)]
    Co(#[from] CoError),
}

/// Simulator, controller and nodes.
#[derive(Debug)]
pub struct World {
    options: WorldOptions,
    state_dir: PathBuf,
    /// The EC2 simulator.
    pub simulator: Simulator,
    /// The controller.
    pub controller: Process,
    controller_socket: PathBuf,
    /// Further controllers of the same cluster.
    pub replicas: Vec<Replica>,
    /// The nodes, in the order of the options.
    pub nodes: Vec<Node>,
    /// The launcher, where it runs in the place of the others.
    pub launcher: Option<Process>,
    // Last: when the world is dropped, it cleans after everything else has gone.
    keeper: Option<Keeper>,
}

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

fn step<T>(what: &str, result: io::Result<T>) -> Result<T, WorldError> {
    result.map_err(|source| WorldError::Step {
        what: what.to_owned(),
        source,
    })
}

impl World {
    /// Starts everything and waits until each socket answers. When it fails, nothing is left behind.
    ///
    /// # Errors
    /// [`WorldError::Host`] when this is not root; otherwise what failed, with the log of the process concerned.
    pub async fn start(options: WorldOptions) -> Result<Self, WorldError> {
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
                return Err(WorldError::Step {
                    what: "starting the keeper".to_owned(),
                    source,
                });
            }
        };
        let simulator = step(
            "starting the simulator",
            Simulator::start(
                &options.binaries,
                &state_dir,
                &options.scenario(),
                &options.devices,
            )
            .await,
        )?;
        let controller_socket = state_dir.join("controller/csi.sock");
        let controller = step(
            "preparing the controller",
            container::controller(
                "controller",
                &options,
                &state_dir,
                &simulator,
                &controller_socket,
            ),
        )?;
        let mut world = Self {
            options,
            state_dir,
            simulator,
            controller,
            controller_socket,
            replicas: Vec::new(),
            nodes: Vec::new(),
            launcher: None,
            keeper: Some(keeper),
        };
        world.start_controller().await?;
        if world.options.devices == "loop" {
            for node in world.options.nodes.clone() {
                let made = step(
                    "preparing a node",
                    Node::make(
                        &world.options,
                        &world.state_dir,
                        &world.simulator,
                        &node,
                        &world.nodes,
                    ),
                )?;
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

    /// Ends the controller and the processes of node `index`, and runs the launcher in mode `all` in their place.
    ///
    /// # Errors
    /// When a process does not end, or the launcher's socket does not answer in 30 s.
    pub async fn start_all(&mut self, index: usize) -> Result<Duration, WorldError> {
        let node = &mut self.nodes[index];
        for process in [&mut node.agent, &mut node.helper, &mut self.controller] {
            step("stopping a process", process.stop(GRACE).await)?;
        }
        let socket = self.state_dir.join("all.sock");
        let mut launcher = step(
            "preparing the launcher",
            launcher::all(
                &self.options,
                &self.state_dir,
                &self.simulator,
                node,
                &socket,
            ),
        )?;
        step("starting the launcher", launcher.start())?;
        let took = ready(&mut launcher, &socket).await?;
        node.csi_socket.clone_from(&socket);
        self.controller_socket = socket;
        self.launcher = Some(launcher);
        Ok(took)
    }

    /// Everything that the world makes lies in this directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// What it was made of.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// Socket of the controller.
    pub fn controller_socket(&self) -> &Path {
        &self.controller_socket
    }

    /// Sidecars of the controller.
    ///
    /// # Errors
    /// As [`Co::new`].
    pub fn co(&self) -> Result<Co, CoError> {
        Co::new(&self.controller_socket, ZONE)
    }

    /// The kubelet of node `index`.
    ///
    /// # Errors
    /// As [`Kubelet::new`].
    pub fn kubelet(&self, index: usize) -> Result<Kubelet, CoError> {
        let node = self.nodes.get(index).ok_or_else(|| CoError::Own {
            what: format!("finding node {index}"),
            why: "there is none".to_owned(),
        })?;
        Kubelet::new(&node.csi_socket, &node.kubelet_root)
    }

    /// Starts another controller of the same cluster and waits until its Probe is good.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn add_replica(&mut self) -> Result<(), WorldError> {
        let name = format!("controller-{}", self.replicas.len() + 2);
        let socket = self.state_dir.join(&name).join("csi.sock");
        let made = container::controller(
            &name,
            &self.options,
            &self.state_dir,
            &self.simulator,
            &socket,
        );
        let mut process = step("preparing a replica", made)?;
        step("starting a replica", process.start())?;
        ready(&mut process, &socket).await?;
        self.replicas.push(Replica { process, socket });
        Ok(())
    }

    /// Starts the controller and waits until its Probe is good. Answers the time from exec until then.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn start_controller(&mut self) -> Result<Duration, WorldError> {
        step("starting the controller", self.controller.start())?;
        ready(&mut self.controller, &self.controller_socket).await
    }

    /// Ends the controller and starts it with these arguments beside its own.
    ///
    /// # Errors
    /// When it does not end, or as [`start_controller`](Self::start_controller).
    pub async fn restart_controller(&mut self, more: &[String]) -> Result<Duration, WorldError> {
        step("stopping the controller", self.controller.stop(GRACE).await)?;
        let mut options = self.options.clone();
        options.controller_arguments.extend_from_slice(more);
        self.controller = step(
            "preparing the controller",
            container::controller(
                "controller",
                &options,
                &self.state_dir,
                &self.simulator,
                &self.controller_socket,
            ),
        )?;
        self.start_controller().await
    }

    /// Cuts the power of node `index`: its processes are gone, and with them its mounts.
    ///
    /// # Errors
    /// When a process cannot be ended, or as umount2(2).
    pub async fn cut_power(&mut self, index: usize) -> Result<(), WorldError> {
        let node = &mut self.nodes[index];
        for process in [&mut node.agent, &mut node.helper] {
            step("ending a process", process.kill_family().await)?;
        }
        let root = &node.kubelet_root;
        let mounts = step("reading the mount table", mount_table::beneath(root))?;
        for mount in mounts.iter().filter(|mount| mount.point != *root) {
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
            match unmount(&mount.point, flags) {
                // Went with another one.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(error) => step("taking a mount away", Err(error.into()))?,
            }
        }
        Ok(())
    }

    /// Starts the node-agent of node `index` and waits until its Probe is good. Answers the time from exec until then.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn start_agent(&mut self, index: usize) -> Result<Duration, WorldError> {
        let node = &mut self.nodes[index];
        step("starting the node-agent", node.agent.start())?;
        ready(&mut node.agent, &node.csi_socket).await
    }

    /// Starts the mount-helper of node `index` and waits until its socket is there and its parts are confined.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn start_helper(&mut self, index: usize) -> Result<Duration, WorldError> {
        let node = &mut self.nodes[index];
        step("starting the mount-helper", node.helper.start())?;
        let began = Instant::now();
        loop {
            if node.helper_socket.exists() && helper_is_confined(&node.helper.family()) {
                return Ok(began.elapsed());
            }
            still_running(&mut node.helper, began)?;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    /// All processes of the world.
    pub fn processes(&self) -> Vec<&Process> {
        let mut all = vec![self.simulator.process(), &self.controller];
        all.extend(self.replicas.iter().map(|replica| &replica.process));
        all.extend(&self.launcher);
        for node in &self.nodes {
            all.extend([&node.agent, &node.helper]);
        }
        all
    }

    /// The driver's processes that have ended without being told to.
    ///
    /// # Errors
    /// As wait(2).
    pub fn fallen(&mut self) -> Result<Vec<String>, WorldError> {
        let mut fallen = Vec::new();
        let nodes = self
            .nodes
            .iter_mut()
            .flat_map(|node| [&mut node.agent, &mut node.helper]);
        for process in [&mut self.simulator.process, &mut self.controller]
            .into_iter()
            .chain(nodes)
        {
            if step("waiting for a process", process.ended())?.is_some() {
                fallen.push(process.name().to_owned());
            }
        }
        Ok(fallen)
    }

    /// Starts again what has ended, as a container runtime does. Answers the names.
    ///
    /// # Errors
    /// When the simulator has ended, or a process does not get ready.
    pub async fn revive(&mut self) -> Result<Vec<String>, WorldError> {
        let fallen = self.fallen()?;
        for name in &fallen {
            if name == self.controller.name() {
                self.start_controller().await?;
            } else if let Some(index) = self
                .nodes
                .iter()
                .position(|node| node.helper.name() == name)
            {
                self.start_helper(index).await?;
            } else if let Some(index) = self.nodes.iter().position(|node| node.agent.name() == name)
            {
                self.start_agent(index).await?;
            } else {
                let log = self.simulator.process.log_tail(20);
                return Err(WorldError::Process {
                    process: name.clone(),
                    what: "has ended".to_owned(),
                    log,
                });
            }
        }
        Ok(fallen)
    }

    /// The end of every log, for a report of a failure.
    pub fn logs(&self, lines: usize) -> BTreeMap<String, String> {
        self.processes()
            .into_iter()
            .map(|process| (process.name().to_owned(), process.log_tail(lines)))
            .collect()
    }

    /// Ends everything, politely first. Answers what had to be removed by force and what is still there.
    ///
    /// # Errors
    /// When a process could not be waited for; the keeper cleans then.
    pub async fn shutdown(mut self) -> Result<Ended, WorldError> {
        let mut unwilling = Vec::new();
        let nodes = self
            .nodes
            .iter_mut()
            .flat_map(|node| [&mut node.agent, &mut node.helper]);
        let replicas = self.replicas.iter_mut();
        let processes = replicas
            .map(|replica| &mut replica.process)
            .chain(self.launcher.iter_mut())
            .chain(nodes);
        for process in processes.chain([&mut self.controller, &mut self.simulator.process]) {
            if !step("stopping a process", process.stop(GRACE).await)? {
                unwilling.push(process.name().to_owned());
            }
        }
        let cleaned = clean::clean(&self.state_dir, &self.options.binaries);
        let leftovers = clean::leftovers(&self.state_dir);
        self.keeper.take();
        Ok(Ended {
            unwilling,
            cleaned,
            leftovers,
        })
    }
}

/// One more controller.
#[derive(Debug)]
pub struct Replica {
    /// Its process.
    pub process: Process,
    /// Its CSI socket.
    pub socket: PathBuf,
}

/// How a world ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Processes that did not end by SIGTERM within the grace period, with all their descendants.
    pub unwilling: Vec<String>,
    /// What had to be removed; the nodes' shared kubelet directories are mounts that always are.
    pub cleaned: Cleaned,
    /// What is still there: empty, or the world was not ended.
    pub leftovers: Vec<String>,
}

fn still_running(process: &mut Process, began: Instant) -> Result<(), WorldError> {
    let ended = step("waiting for a process", process.ended())?;
    let what = match ended {
        Some(status) => format!("ended with {status} before it was ready"),
        None if began.elapsed() > Duration::from_secs(30) => "did not get ready in 30 s".to_owned(),
        None => return Ok(()),
    };
    Err(WorldError::Process {
        process: process.name().to_owned(),
        what,
        log: process.log_tail(20),
    })
}

/// Asks Probe until it is good. Answers the time since the process was started.
async fn ready(process: &mut Process, socket: &Path) -> Result<Duration, WorldError> {
    let began = process.started().unwrap_or_else(Instant::now);
    loop {
        if socket.exists()
            && let Ok(endpoint) =
                tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display()))
            && let Ok(channel) = endpoint.connect().await
        {
            let mut client = IdentityClient::new(channel);
            while let Ok(answer) = client.probe(csi::ProbeRequest {}).await {
                if answer.into_inner().ready != Some(false) {
                    return Ok(began.elapsed());
                }
                still_running(process, began)?;
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
        still_running(process, began)?;
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}
