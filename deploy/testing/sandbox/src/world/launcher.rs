//! Runs the launcher in place of a node's processes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::container::{
    HELPER_BOUNDING, capability, contained, credentials, in_namespace, owned, unix,
};
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
    let mut arguments = vec![
        "all".to_owned(),
        format!("--endpoint={}", unix(&socket)),
        format!("--kubelet-root={}", node.kubelet_root.display()),
        format!("--runtime-dir={}", state_dir.join(&node.name).join("all").display()),
        "--sandbox".to_owned(),
        "--metadata-sources=imds".to_owned(),
    ];
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    let mut environment = credentials(simulator.ec2());
    environment.extend(owned([
        ("CSI_NODE_NAME", &node.name),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &node.imds),
    ]));
    let settings = in_namespace(Arc::clone(&node.namespace), HELPER_BOUNDING | capability::KILL);
    let name = format!("{}/all", node.name);
    Ok(contained(&name, state_dir, &socket, program, settings, arguments, environment))
}
