//! The whole world: simulator, controller and nodes, started in order and ended without a trace.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use csi::identity_client::IdentityClient;
use ebs_csi_proto::csi;

use crate::binaries::Binaries;
use crate::clean::{self, Cleaned};
use crate::co::{Co, CoError, Kubelet};
use crate::keeper::Keeper;
use crate::process::Process;
use crate::simulator::Simulator;
use crate::sys::{self, Birth};
use crate::{node_namespace, state_dir};

/// The uid and gid that the controller's container is given, as the driver's chart does.
pub(crate) const CONTROLLER_ID: u32 = 1000;

/// The gid by which the node-agent may use the helper's socket.
pub(crate) const NODE_AGENT_ID: u32 = 65532;

/// linux/capability.h.
pub(crate) mod capability {
    pub(crate) const DAC_READ_SEARCH: u64 = 1 << 2;
    pub(crate) const SETGID: u64 = 1 << 6;
    pub(crate) const SETUID: u64 = 1 << 7;
    pub(crate) const SETPCAP: u64 = 1 << 8;
    pub(crate) const SYS_ADMIN: u64 = 1 << 21;
    pub(crate) const SYS_RESOURCE: u64 = 1 << 24;
}

/// What the helper's container is given at its start.
const HELPER_BOUNDING: u64 = capability::SYS_ADMIN
    | capability::SETUID
    | capability::SETGID
    | capability::SETPCAP
    | capability::SYS_RESOURCE
    | capability::DAC_READ_SEARCH;

/// What the node-agent needs to give up root by itself.
const AGENT_BOUNDING: u64 = capability::SETUID | capability::SETGID | capability::SETPCAP;

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

/// One simulated instance that runs the driver's node side.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the node.
    pub name: String,
    /// Instance id.
    pub instance: String,
    /// Instance type.
    pub kind: String,
    /// Its zone.
    pub zone: String,
}

impl NodeOptions {
    /// An m7i.large.
    pub fn new(name: &str, instance: &str, zone: &str) -> Self {
        Self {
            name: name.to_owned(),
            instance: instance.to_owned(),
            kind: "m7i.large".to_owned(),
            zone: zone.to_owned(),
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Where the programs are.
    pub binaries: Binaries,
    /// The driver's programs, when they are not among `binaries` (for example a release build).
    pub driver: Option<Binaries>,
    /// The nodes that run the driver. Volumes move only between nodes of one zone.
    pub nodes: Vec<NodeOptions>,
    /// `loop` (real block devices), `file` or `none`. Without `loop` no node process is started.
    pub devices: String,
    /// TOML appended to the simulator's scenario, for example `[latency]`.
    pub scenario: String,
    /// Further arguments of the controller.
    pub controller_arguments: Vec<String>,
    /// Further arguments of every node-agent.
    pub agent_arguments: Vec<String>,
    /// Further environment of the controller.
    pub controller_environment: Vec<(String, String)>,
}

impl WorldOptions {
    /// Two nodes in one zone, a third instance without the driver in another, loop devices.
    pub fn new(binaries: Binaries) -> Self {
        Self {
            binaries,
            driver: None,
            nodes: vec![
                NodeOptions::new("node-a", "i-0aaaaaaaaaaaaaaa1", ZONE),
                NodeOptions::new("node-b", "i-0aaaaaaaaaaaaaaa2", ZONE),
            ],
            devices: "loop".to_owned(),
            scenario: String::new(),
            controller_arguments: Vec::new(),
            agent_arguments: Vec::new(),
            controller_environment: Vec::new(),
        }
    }

    fn scenario(&self) -> String {
        let mut text = String::from(
            "seed = 1\naccount = \"111122223333\"\nregion = \"us-east-1\"\n\
             zones = [ { name = \"us-east-1a\", id = \"use1-az6\" }, { name = \"us-east-1b\", id = \"use1-az1\" } ]\n",
        );
        // Top-level keys of the addition must come before the first table.
        let (keys, tables) = match self.scenario.find("\n[") {
            _ if self.scenario.starts_with('[') => ("", self.scenario.as_str()),
            Some(at) => self.scenario.split_at(at),
            None => (self.scenario.as_str(), ""),
        };
        text.push_str(keys);
        let elsewhere = NodeOptions::new("elsewhere", "i-0bbbbbbbbbbbbbbb1", "us-east-1b");
        for node in self.nodes.iter().chain([&elsewhere]) {
            let _ = write!(
                text,
                "\n[[instances]]\nid = \"{}\"\ntype = \"{}\"\nzone = \"{}\"\ntags = {{ Name = \"{}\" }}\n",
                node.instance, node.kind, node.zone, node.name
            );
        }
        text.push('\n');
        text.push_str(tables);
        text
    }
}

/// The zone in which the volumes of a world are made.
pub const ZONE: &str = "us-east-1a";

/// A node of the world.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its instance id.
    pub instance: String,
    /// Its kubelet directory.
    pub kubelet_root: PathBuf,
    /// Its devices, which are `/dev` to its processes.
    pub dev_dir: PathBuf,
    /// Socket of the node-agent.
    pub csi_socket: PathBuf,
    /// Socket of the mount-helper.
    pub helper_socket: PathBuf,
    /// The node-agent.
    pub agent: Process,
    /// The mount-helper's first process.
    pub helper: Process,
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
    /// The nodes, in the order of the options.
    pub nodes: Vec<Node>,
    // Last: when the world is dropped, it cleans after everything else has gone.
    keeper: Option<Keeper>,
}

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
            controller(&options, &state_dir, &simulator, &controller_socket),
        )?;
        let mut world = Self {
            options,
            state_dir,
            simulator,
            controller,
            controller_socket,
            nodes: Vec::new(),
            keeper: Some(keeper),
        };
        world.start_controller().await?;
        if world.options.devices == "loop" {
            for node in world.options.nodes.clone() {
                let made = step("preparing a node", world.node(&node))?;
                world.nodes.push(made);
            }
            for index in 0..world.nodes.len() {
                world.start_helper(index).await?;
                world.start_agent(index).await?;
            }
        }
        Ok(world)
    }

    /// Everything that the world makes lies in this directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Socket of the controller.
    pub fn controller_socket(&self) -> &Path {
        &self.controller_socket
    }

    /// The driver's programs.
    pub fn driver(&self) -> &Binaries {
        self.options
            .driver
            .as_ref()
            .unwrap_or(&self.options.binaries)
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

    /// Starts the controller and waits until its Probe is good. Answers the time from exec until then.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn start_controller(&mut self) -> Result<Duration, WorldError> {
        step("starting the controller", self.controller.start())?;
        ready(&mut self.controller, &self.controller_socket).await
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

    /// Starts the mount-helper of node `index` and waits until its socket is there.
    ///
    /// # Errors
    /// When it ends or does not get ready in 30 s.
    pub async fn start_helper(&mut self, index: usize) -> Result<Duration, WorldError> {
        let node = &mut self.nodes[index];
        step("starting the mount-helper", node.helper.start())?;
        let began = Instant::now();
        loop {
            if node.helper_socket.exists() {
                return Ok(began.elapsed());
            }
            still_running(&mut node.helper, began)?;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    fn node(&self, options: &NodeOptions) -> io::Result<Node> {
        let directory = self.state_dir.join(&options.name);
        let kubelet_root = directory.join("kubelet");
        let run = directory.join("run");
        for made in [&directory, &kubelet_root, &run] {
            std::fs::create_dir_all(made)?;
            std::fs::set_permissions(made, std::fs::Permissions::from_mode(0o755))?;
        }
        // Where a kubelet that runs as root has its directories: mode 0750.
        std::fs::set_permissions(&kubelet_root, std::fs::Permissions::from_mode(0o750))?;
        for made in ["plugins", "pods", "plugins_registry"] {
            std::fs::create_dir_all(kubelet_root.join(made))?;
            std::fs::set_permissions(
                kubelet_root.join(made),
                std::fs::Permissions::from_mode(0o750),
            )?;
        }
        let csi_socket = directory.join("csi/csi.sock");
        let helper_socket = run.join("helper.sock");
        if let Some(parent) = csi_socket.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // The helper's socket is reached by the agent's group only.
        chown(&run, None, Some(NODE_AGENT_ID))?;
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o2750))?;
        node_namespace::share(&kubelet_root)?;
        let dev_dir = self
            .simulator
            .dev_dir(&options.instance)
            .ok_or_else(|| {
                io::Error::other(format!(
                    "the simulator has no device directory for {}",
                    options.instance
                ))
            })?
            .to_owned();
        node_namespace::furnish(&dev_dir)?;
        let others: Vec<PathBuf> = self
            .nodes
            .iter()
            .map(|node| node.kubelet_root.clone())
            .collect();
        let namespace = node_namespace::create(&dev_dir, &kubelet_root, &others)?;
        let imds = self
            .simulator
            .imds(&options.instance)
            .unwrap_or_default()
            .to_owned();
        let helper = self.helper(
            &options.name,
            &helper_socket,
            &kubelet_root,
            namespace.try_clone()?,
        )?;
        let agent = self.agent(&options.name, &csi_socket, &helper_socket, imds, namespace)?;
        Ok(Node {
            name: options.name.clone(),
            instance: options.instance.clone(),
            kubelet_root,
            dev_dir,
            csi_socket,
            helper_socket,
            agent,
            helper,
        })
    }

    fn helper(
        &self,
        node: &str,
        socket: &Path,
        kubelet_root: &Path,
        namespace: OwnedFd,
    ) -> io::Result<Process> {
        let program = self.driver().path("ebs-csi-mount-helper")?;
        let (listen, root) = (
            format!("unix://{}", socket.display()),
            kubelet_root.to_owned(),
        );
        Ok(Process::new(
            &format!("{node}/mount-helper"),
            &self.state_dir,
            Some(socket.to_owned()),
            move || {
                let mut command = bare_command(&program);
                command
                    .arg("--listen")
                    .arg(&listen)
                    .arg("--kubelet-root")
                    .arg(&root)
                    .arg("--sandbox");
                let birth = Birth {
                    namespace: Some(namespace.try_clone()?),
                    bounding: Some(HELPER_BOUNDING),
                    no_new_privs: true,
                    ..Birth::default()
                };
                sys::born(&mut command, birth);
                Ok(command)
            },
        ))
    }

    fn agent(
        &self,
        node: &str,
        socket: &Path,
        helper: &Path,
        imds: String,
        namespace: OwnedFd,
    ) -> io::Result<Process> {
        let program = self.driver().path("ebs-csi-node-agent")?;
        let (endpoint, helper) = (
            format!("unix://{}", socket.display()),
            format!("unix://{}", helper.display()),
        );
        let (name, arguments) = (node.to_owned(), self.options.agent_arguments.clone());
        Ok(Process::new(
            &format!("{node}/node-agent"),
            &self.state_dir,
            Some(socket.to_owned()),
            move || {
                let mut command = bare_command(&program);
                command
                    .arg("--endpoint")
                    .arg(&endpoint)
                    .arg("--helper")
                    .arg(&helper);
                command
                    .args(["--metadata-sources", "imds"])
                    .args(&arguments);
                command
                    .env("CSI_NODE_NAME", &name)
                    .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds);
                let birth = Birth {
                    namespace: Some(namespace.try_clone()?),
                    bounding: Some(AGENT_BOUNDING),
                    no_new_privs: true,
                    ..Birth::default()
                };
                sys::born(&mut command, birth);
                Ok(command)
            },
        ))
    }

    /// All processes of the world.
    pub fn processes(&self) -> Vec<&Process> {
        let mut all = vec![self.simulator.process(), &self.controller];
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
        let grace = Duration::from_secs(10);
        let mut unwilling = Vec::new();
        let nodes = self
            .nodes
            .iter_mut()
            .flat_map(|node| [&mut node.agent, &mut node.helper]);
        for process in nodes.chain([&mut self.controller, &mut self.simulator.process]) {
            if !step("stopping a process", process.stop(grace).await)? {
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

fn controller(
    options: &WorldOptions,
    state_dir: &Path,
    simulator: &Simulator,
    socket: &Path,
) -> io::Result<Process> {
    if let Some(parent) = socket.parent() {
        std::fs::create_dir_all(parent)?;
        chown(parent, Some(CONTROLLER_ID), Some(CONTROLLER_ID))?;
        std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755))?;
    }
    let program = options
        .driver
        .as_ref()
        .unwrap_or(&options.binaries)
        .path("ebs-csi-controller")?;
    let (endpoint, ec2) = (
        format!("unix://{}", socket.display()),
        simulator.ec2().to_owned(),
    );
    let (arguments, environment) = (
        options.controller_arguments.clone(),
        options.controller_environment.clone(),
    );
    Ok(Process::new(
        "controller",
        state_dir,
        Some(socket.to_owned()),
        move || {
            let mut command = bare_command(&program);
            command.arg("--endpoint").arg(&endpoint).args(&arguments);
            command
                .env("AWS_REGION", "us-east-1")
                .env("AWS_EC2_ENDPOINT", &ec2)
                .env("AWS_ENDPOINT_URL", &ec2)
                .env("AWS_ACCESS_KEY_ID", "AKIASANDBOX")
                .env("AWS_SECRET_ACCESS_KEY", "sandbox")
                .env("AWS_EC2_METADATA_DISABLED", "true")
                .envs(environment.iter().map(|(key, value)| (key, value)));
            let birth = Birth {
                bounding: Some(0),
                identity: Some((CONTROLLER_ID, CONTROLLER_ID)),
                no_new_privs: true,
                ..Birth::default()
            };
            sys::born(&mut command, birth);
            Ok(command)
        },
    ))
}

/// A command with the environment of a container: nothing of the caller's.
fn bare_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    for passed in ["RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(passed) {
            command.env(passed, value);
        }
    }
    command.current_dir("/");
    command
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_scenario_may_have_keys_and_tables() {
        let mut options = WorldOptions::new(Binaries::at("/nowhere"));
        for (added, key, table) in [
            ("profile = \"fast\"\n[latency]\nattach = 1\n", true, true),
            ("[latency]\nattach = 1\n", false, true),
            ("profile = \"fast\"\n", true, false),
            ("", false, false),
        ] {
            options.scenario = added.to_owned();
            let text = options.scenario();
            let instances = text.find("[[instances]]").unwrap();
            assert_eq!(
                text.find("profile").is_some_and(|at| at < instances),
                key,
                "{text}"
            );
            assert_eq!(
                text.find("[latency]").is_some_and(|at| at > instances),
                table,
                "{text}"
            );
            assert_eq!(text.matches("[[instances]]").count(), 3);
        }
    }
}
