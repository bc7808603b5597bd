//! Runs the launcher in place of a node's processes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::container::{HELPER_BOUNDING, capability, contained, credentials, in_namespace};
use super::node::Node;
use super::options::WorldOptions;
use super::process::Process;
use super::simulator::Simulator;

/// Prepares the launcher in mode `all` on a node, with further `flags`, without starting it.
pub(crate) fn all(
    options: &WorldOptions,
    state_dir: &Path,
    simulator: &Simulator,
    node: &Node,
    flags: &[&str],
) -> io::Result<Process> {
    let program = options.driver().path("aws-ebs-csi-driver")?;
    let socket = state_dir.join("all.sock");
    let (endpoint, ec2) = (format!("unix://{}", socket.display()), simulator.ec2().to_owned());
    let (root, imds, node_name) = (node.kubelet_root.clone(), node.imds.clone(), node.name.clone());
    let directory = state_dir.join(&node.name).join("all");
    let settings = in_namespace(Arc::clone(&node.namespace), HELPER_BOUNDING | capability::KILL);
    let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    let name = format!("{}/all", node.name);
    Ok(contained(&name, state_dir, &socket, program, settings, move |command| {
        command
            .arg("all")
            .arg("--endpoint")
            .arg(&endpoint)
            .arg("--kubelet-root")
            .arg(&root)
            .arg("--runtime-dir")
            .arg(&directory)
            .args(["--sandbox", "--metadata-sources=imds"])
            .args(&flags)
            .env("CSI_NODE_NAME", &node_name)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds);
        credentials(command, &ec2);
    }))
}
