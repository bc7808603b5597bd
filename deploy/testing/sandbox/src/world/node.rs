//! A simulated node: its directories, its mount namespace, its two processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebs_csi_policy::profile::NODE_AGENT;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::CapabilitySet;

use super::container::{contained, credentials, owned, unix};
use super::node_namespace;
use super::options::{NodeOptions, WorldOptions};
use super::process::Process;
use super::simulator::Simulator;
use crate::mount_table;
use crate::sys::ChildSettings;

/// The capabilities that the node-agent needs to give up root.
const AGENT_BOUNDING: u64 =
    CapabilitySet::SETUID.bits() | CapabilitySet::SETGID.bits() | CapabilitySet::SETPCAP.bits();

const HELPER_BOUNDING: u64 = AGENT_BOUNDING
    | CapabilitySet::SYS_ADMIN.bits()
    | CapabilitySet::SYS_RESOURCE.bits()
    | CapabilitySet::DAC_READ_SEARCH.bits();

/// CAP_KILL (linux/capability.h), by which the launcher ends its processes.
const KILL: u64 = CapabilitySet::KILL.bits();

/// A node of the world.
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The instance id.
    pub instance: String,
    /// The kubelet directory.
    pub kubelet_root: PathBuf,
    /// The directory of the node's devices, which its processes see as `/dev`.
    pub dev_dir: PathBuf,
    /// Socket of the node-agent.
    pub csi_socket: PathBuf,
    /// The node-agent, or another driver's program in place of both processes.
    pub agent: Process,
    /// The mount-helper's first process; never started together with another driver's program.
    pub helper: Process,
    namespace: Arc<OwnedFd>,
    imds: String,
}

impl Node {
    /// Makes the directories and the namespace of the node `options`, in which the mounts of the
    /// nodes `others` are hidden. Does not start the node's processes.
    pub(crate) fn make(
        world: &WorldOptions,
        state_dir: &Path,
        simulator: &Simulator,
        options: &NodeOptions,
        others: &[Self],
    ) -> io::Result<Self> {
        let directory = state_dir.join(&options.name);
        let (kubelet_root, run) = (directory.join("kubelet"), directory.join("run"));
        let csi = directory.join("csi");
        for made in [&directory, &run, &csi] {
            make_directory(made, 0o755)?;
        }
        // The mode of the directories that a kubelet running as root makes.
        for made in ["", "plugins", "pods", "plugins_registry"] {
            make_directory(&kubelet_root.join(made), 0o750)?;
        }
        // Only the agent's group can reach the helper's socket.
        chown(&run, None, Some(NODE_AGENT.identity.gid))?;
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o2750))?;
        node_namespace::share(&kubelet_root)?;
        let instance = &options.instance;
        let unknown =
            || io::Error::other(format!("the simulator has no devices or metadata for {instance}"));
        let dev_dir = simulator.dev_dir(instance).ok_or_else(unknown)?.to_owned();
        let imds = simulator.imds(instance).ok_or_else(unknown)?;
        node_namespace::create_standard_devices(&dev_dir)?;
        let hidden: Vec<PathBuf> = others.iter().map(|node| node.kubelet_root.clone()).collect();
        let namespace = Arc::new(node_namespace::create(&dev_dir, &kubelet_root, &hidden)?);
        let (csi_socket, helper_socket) = (csi.join("csi.sock"), run.join("helper.sock"));
        let place = Place { world, state_dir, node: &options.name, imds, namespace: &namespace };
        Ok(Self {
            helper: place.helper(&helper_socket, &kubelet_root)?,
            agent: place.agent(&csi_socket, &helper_socket)?,
            namespace,
            imds: imds.to_owned(),
            name: options.name.clone(),
            instance: instance.clone(),
            kubelet_root,
            dev_dir,
            csi_socket,
        })
    }

    /// Prepares the launcher in mode `all` on this node, with further `flags`, without starting it.
    pub(crate) fn launcher(
        &self,
        world: &WorldOptions,
        state_dir: &Path,
        simulator: &Simulator,
        flags: &[&str],
    ) -> io::Result<Process> {
        let (node, imds) = (self.name.as_str(), self.imds.as_str());
        let place = Place { world, state_dir, node, imds, namespace: &self.namespace };
        let program = world.driver().path("aws-ebs-csi-driver")?;
        let socket = state_dir.join("all.sock");
        let mut arguments = vec![
            "all".to_owned(),
            format!("--endpoint={}", unix(&socket)),
            format!("--kubelet-root={}", self.kubelet_root.display()),
            format!("--runtime-dir={}", state_dir.join(node).join("all").display()),
            "--sandbox".to_owned(),
            "--metadata-sources=imds".to_owned(),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let mut environment = credentials(simulator.ec2());
        environment.extend(place.environment());
        let bounding = Some(HELPER_BOUNDING | KILL);
        Ok(place.process("all", &socket, program, bounding, arguments, environment))
    }

    /// Kills the node's processes and removes its mounts.
    pub(crate) async fn cut_power(&mut self) -> io::Result<()> {
        for process in [&mut self.agent, &mut self.helper] {
            process.kill_tree().await?;
        }
        for mount in mount_table::beneath(&self.kubelet_root)? {
            if mount.point == self.kubelet_root {
                continue;
            }
            match unmount(&mount.point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
                // The mount disappeared with another one.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What all processes of a node have in common.
struct Place<'a> {
    world: &'a WorldOptions,
    state_dir: &'a Path,
    node: &'a str,
    imds: &'a str,
    namespace: &'a Arc<OwnedFd>,
}

impl Place<'_> {
    /// Prepares a process, without starting it: one with this bounding set, or a privileged one.
    fn process(
        &self,
        name: &str,
        socket: &Path,
        program: PathBuf,
        bounding: Option<u64>,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> Process {
        let settings = ChildSettings {
            namespace: Some(Arc::clone(self.namespace)),
            bounding,
            no_new_privs: bounding.is_some(),
            identity: None,
        };
        let name = format!("{}/{name}", self.node);
        contained(&name, self.state_dir, socket, program, settings, arguments, environment)
    }

    fn environment(&self) -> Vec<(String, String)> {
        owned([("CSI_NODE_NAME", self.node), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", self.imds)])
    }

    fn helper(&self, socket: &Path, kubelet_root: &Path) -> io::Result<Process> {
        let program = self.world.driver().path("ebs-csi-mount-helper")?;
        let mut arguments = vec![
            format!("--listen={}", unix(socket)),
            format!("--kubelet-root={}", kubelet_root.display()),
            "--sandbox".to_owned(),
        ];
        arguments.extend_from_slice(&self.world.helper_arguments);
        let bounding = Some(HELPER_BOUNDING);
        Ok(self.process("mount-helper", socket, program, bounding, arguments, Vec::new()))
    }

    /// Prepares the node-agent, or the other driver's node service: one privileged process, in the
    /// place of node-agent and mount-helper.
    fn agent(&self, socket: &Path, helper: &Path) -> io::Result<Process> {
        let mut environment = self.environment();
        let own = [format!("--endpoint={}", unix(socket)), "--metadata-sources=imds".to_owned()];
        if let Some((program, leading)) = &self.world.node_program {
            let arguments = [&leading[..], &own].concat();
            environment.extend(owned([("AWS_REGION", "us-east-1")]));
            let program = program.clone();
            return Ok(self.process("other-driver", socket, program, None, arguments, environment));
        }
        let program = self.world.driver().path("ebs-csi-node-agent")?;
        let mut arguments = own.to_vec();
        arguments.push(format!("--helper={}", unix(helper)));
        arguments.extend_from_slice(&self.world.agent_arguments);
        environment.extend(owned([("POD_UID", &format!("pod-of-{}", self.node))]));
        let bounding = Some(AGENT_BOUNDING);
        Ok(self.process("node-agent", socket, program, bounding, arguments, environment))
    }
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
