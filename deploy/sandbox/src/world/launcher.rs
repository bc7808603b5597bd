//! Runs the launcher in place of a node's processes.

use std::io;
use std::path::Path;

use super::container::{HELPER_BOUNDING, bare_command, capability, credentials};
use super::node::Node;
use super::options::WorldOptions;
use super::process::Process;
use super::simulator::Simulator;
use crate::sys::{self, ChildSettings};

/// Prepares the launcher in mode `all` on a node, serving `socket`, without starting it.
pub(crate) fn all(
    options: &WorldOptions,
    state_dir: &Path,
    simulator: &Simulator,
    node: &Node,
    socket: &Path,
) -> io::Result<Process> {
    let program = options.driver().path("aws-ebs-csi-driver")?;
    let (endpoint, ec2) = (format!("unix://{}", socket.display()), simulator.ec2().to_owned());
    let (root, imds, name) = (node.kubelet_root.clone(), node.imds.clone(), node.name.clone());
    let directory = state_dir.join(&node.name).join("all");
    let namespace = node.namespace.try_clone()?;
    Ok(Process::new(&format!("{}/all", node.name), state_dir, Some(socket.to_owned()), move || {
        let mut command = bare_command(&program);
        command
            .arg("all")
            .arg("--endpoint")
            .arg(&endpoint)
            .arg("--kubelet-root")
            .arg(&root)
            .arg("--runtime-dir")
            .arg(&directory)
            .args(["--sandbox", "--metadata-sources=imds"])
            .env("CSI_NODE_NAME", &name)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds);
        credentials(&mut command, &ec2);
        let birth = ChildSettings {
            namespace: Some(namespace.try_clone()?),
            bounding: Some(HELPER_BOUNDING | capability::KILL),
            no_new_privs: true,
            ..ChildSettings::default()
        };
        sys::apply_child_settings(&mut command, birth);
        Ok(command)
    }))
}
