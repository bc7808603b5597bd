//! A simulated node: its directories, its mount namespace, its two processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::container::{
    self, HELPER_BOUNDING, KILL, NODE_AGENT_ID, contained, credentials, in_namespace, owned, unix,
};
use super::node_namespace;
use super::options::{NodeOptions, WorldOptions};
use super::process::Process;
use super::simulator::Simulator;
use crate::mount_table;

/// A node of the world.
#[derive(Debug)]
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
        chown(&run, None, Some(NODE_AGENT_ID))?;
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
        Ok(Self {
            helper: container::helper(
                world,
                state_dir,
                &options.name,
                &helper_socket,
                &kubelet_root,
                Arc::clone(&namespace),
            )?,
            agent: match &world.node_program {
                None => container::agent(
                    world,
                    state_dir,
                    &options.name,
                    &csi_socket,
                    &helper_socket,
                    imds,
                    Arc::clone(&namespace),
                )?,
                Some(other) => {
                    let namespace = Arc::clone(&namespace);
                    let (name, socket) = (&options.name, &csi_socket);
                    container::other_node(other, state_dir, name, socket, imds, namespace)
                }
            },
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
        options: &WorldOptions,
        state_dir: &Path,
        simulator: &Simulator,
        flags: &[&str],
    ) -> io::Result<Process> {
        let program = options.driver().path("aws-ebs-csi-driver")?;
        let socket = state_dir.join("all.sock");
        let mut arguments = vec![
            "all".to_owned(),
            format!("--endpoint={}", unix(&socket)),
            format!("--kubelet-root={}", self.kubelet_root.display()),
            format!("--runtime-dir={}", state_dir.join(&self.name).join("all").display()),
            "--sandbox".to_owned(),
            "--metadata-sources=imds".to_owned(),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let mut environment = credentials(simulator.ec2());
        environment.extend(owned([
            ("CSI_NODE_NAME", &self.name),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &self.imds),
        ]));
        let settings = in_namespace(Arc::clone(&self.namespace), HELPER_BOUNDING | KILL);
        let name = format!("{}/all", self.name);
        Ok(contained(&name, state_dir, &socket, program, settings, arguments, environment))
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

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
