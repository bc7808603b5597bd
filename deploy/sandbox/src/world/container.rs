//! The settings that a container runtime applies to each of the driver's processes: identity,
//! capabilities, namespace, environment.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ebs_csi_policy::profile;

use super::options::WorldOptions;
use super::process::Process;
use super::simulator::Simulator;
use crate::sys::{self, ChildSettings};

/// The uid and gid of the controller's container: the profile's, as in the plain manifest.
const CONTROLLER_ID: u32 = profile::CONTROLLER.identity.uid;

/// The gid through which the node-agent may use the helper's socket.
pub(crate) const NODE_AGENT_ID: u32 = profile::NODE_AGENT.identity.gid;

/// The capabilities' bits, from linux/capability.h.
pub(crate) mod capability {
    pub(crate) const DAC_READ_SEARCH: u64 = 1 << 2;
    pub(crate) const KILL: u64 = 1 << 5;
    pub(crate) const SETGID: u64 = 1 << 6;
    pub(crate) const SETUID: u64 = 1 << 7;
    pub(crate) const SETPCAP: u64 = 1 << 8;
    pub(crate) const SYS_ADMIN: u64 = 1 << 21;
    pub(crate) const SYS_RESOURCE: u64 = 1 << 24;
}

/// The capabilities with which the helper's container starts.
pub(super) const HELPER_BOUNDING: u64 = capability::SYS_ADMIN
    | capability::SETUID
    | capability::SETGID
    | capability::SETPCAP
    | capability::SYS_RESOURCE
    | capability::DAC_READ_SEARCH;

/// The capabilities that the node-agent needs to give up root.
const AGENT_BOUNDING: u64 = capability::SETUID | capability::SETGID | capability::SETPCAP;

/// Prepares the controller `name`, with a socket in its own directory, without starting it.
pub(crate) fn controller(
    name: &str,
    options: &WorldOptions,
    state_dir: &Path,
    simulator: &Simulator,
) -> io::Result<Process> {
    let own = state_dir.join(name);
    std::fs::create_dir_all(&own)?;
    chown(&own, Some(CONTROLLER_ID), Some(CONTROLLER_ID))?;
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755))?;
    let socket = own.join("csi.sock");
    // The controller's user may be unable to reach the directory where the program was built.
    let (built, leading) = match &options.controller_program {
        Some(given) => given.clone(),
        // The simulator's reads lag less than the default wait.
        None => (
            options.driver().path("ebs-csi-controller")?,
            vec!["--snapshot-takeover-wait=1s".to_owned()],
        ),
    };
    let program = state_dir.join(built.file_name().unwrap_or(OsStr::new("controller-program")));
    // A replica that runs already has the copy open.
    if !program.exists() {
        std::fs::copy(&built, &program)?;
    }
    let (endpoint, ec2) = (format!("unix://{}", socket.display()), simulator.ec2().to_owned());
    let (arguments, environment) =
        (options.controller_arguments.clone(), options.controller_environment.clone());
    let settings = ChildSettings {
        bounding: Some(0),
        identity: Some((CONTROLLER_ID, CONTROLLER_ID)),
        no_new_privs: true,
        ..ChildSettings::default()
    };
    Ok(contained(name, state_dir, &socket, program, settings, move |command| {
        command.args(&leading).arg("--endpoint").arg(&endpoint).args(&arguments);
        credentials(command, &ec2);
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(environment.iter().map(|(key, value)| (key, value)));
    }))
}

/// Prepares a process with a container's environment and these settings, without starting it.
/// `configure` adds arguments and variables.
pub(super) fn contained(
    name: &str,
    state_dir: &Path,
    socket: &Path,
    program: PathBuf,
    settings: ChildSettings,
    configure: impl Fn(&mut Command) + Send + Sync + 'static,
) -> Process {
    Process::new(name, state_dir, socket.to_owned(), move || {
        let mut command = bare_command(&program);
        configure(&mut command);
        sys::apply_child_settings(&mut command, settings.clone());
        Ok(command)
    })
}

pub(super) fn credentials(command: &mut Command, ec2: &str) {
    command
        .env("AWS_REGION", "us-east-1")
        .env("AWS_EC2_ENDPOINT", ec2)
        .env("AWS_ENDPOINT_URL", ec2)
        .env("AWS_ACCESS_KEY_ID", "AKIASANDBOX")
        .env("AWS_SECRET_ACCESS_KEY", "sandbox");
}

/// Prepares the mount-helper of `node`, without starting it.
pub(crate) fn helper(
    options: &WorldOptions,
    state_dir: &Path,
    node: &str,
    socket: &Path,
    kubelet_root: &Path,
    namespace: Arc<OwnedFd>,
) -> io::Result<Process> {
    let program = options.driver().path("ebs-csi-mount-helper")?;
    let listen = format!("unix://{}", socket.display());
    let (root, arguments) = (kubelet_root.to_owned(), options.helper_arguments.clone());
    let settings = in_namespace(namespace, HELPER_BOUNDING);
    let name = format!("{node}/mount-helper");
    Ok(contained(&name, state_dir, socket, program, settings, move |command| {
        command.arg("--listen").arg(&listen).arg("--kubelet-root").arg(&root);
        command.arg("--sandbox").args(&arguments);
    }))
}

/// Returns the settings of a process in a node's namespace, with this bounding set.
pub(super) fn in_namespace(namespace: Arc<OwnedFd>, bounding: u64) -> ChildSettings {
    ChildSettings {
        namespace: Some(namespace),
        bounding: Some(bounding),
        no_new_privs: true,
        identity: None,
    }
}

/// Prepares another driver's node service on `node`, without starting it: one privileged process,
/// in the place of node-agent and mount-helper.
pub(crate) fn other_node(
    (program, leading): &(PathBuf, Vec<String>),
    state_dir: &Path,
    node: &str,
    socket: &Path,
    imds: &str,
    namespace: Arc<OwnedFd>,
) -> Process {
    let leading = leading.clone();
    let endpoint = format!("--endpoint=unix://{}", socket.display());
    let (node_name, imds) = (node.to_owned(), imds.to_owned());
    let settings = ChildSettings { namespace: Some(namespace), ..ChildSettings::default() };
    let name = format!("{node}/other-driver");
    contained(&name, state_dir, socket, program.clone(), settings, move |command| {
        command
            .args(&leading)
            .arg(&endpoint)
            .arg("--metadata-sources=imds")
            .env("AWS_REGION", "us-east-1")
            .env("CSI_NODE_NAME", &node_name)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds);
    })
}

/// Prepares the node-agent of `node`, without starting it.
pub(crate) fn agent(
    options: &WorldOptions,
    state_dir: &Path,
    node: &str,
    socket: &Path,
    helper: &Path,
    imds: &str,
    namespace: Arc<OwnedFd>,
) -> io::Result<Process> {
    let program = options.driver().path("ebs-csi-node-agent")?;
    let (endpoint, helper) =
        (format!("unix://{}", socket.display()), format!("unix://{}", helper.display()));
    let (node_name, imds) = (node.to_owned(), imds.to_owned());
    let arguments = options.agent_arguments.clone();
    let settings = in_namespace(namespace, AGENT_BOUNDING);
    let name = format!("{node}/node-agent");
    Ok(contained(&name, state_dir, socket, program, settings, move |command| {
        command.arg("--endpoint").arg(&endpoint).arg("--helper").arg(&helper);
        command.args(["--metadata-sources", "imds"]).args(&arguments);
        command.env("CSI_NODE_NAME", &node_name).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds);
    }))
}

/// Returns a command with a container's environment, which inherits only logging and coverage
/// variables from the caller.
fn bare_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for passed in ["RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(passed) {
            command.env(passed, value);
        }
    }
    command.current_dir("/");
    command
}
