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
use rustix::thread::CapabilitySet;

use super::options::WorldOptions;
use super::process::Process;
use super::simulator::Simulator;
use crate::sys::{self, ChildSettings};

/// The uid and gid of the controller's container: the profile's, as in the plain manifest.
const CONTROLLER_ID: u32 = profile::CONTROLLER.identity.uid;

/// The gid through which the node-agent may use the helper's socket.
pub(crate) const NODE_AGENT_ID: u32 = profile::NODE_AGENT.identity.gid;

/// CAP_KILL (linux/capability.h), by which the launcher ends its processes.
pub(super) const KILL: u64 = CapabilitySet::KILL.bits();

pub(super) const HELPER_BOUNDING: u64 = AGENT_BOUNDING
    | CapabilitySet::SYS_ADMIN.bits()
    | CapabilitySet::SYS_RESOURCE.bits()
    | CapabilitySet::DAC_READ_SEARCH.bits();

/// The capabilities that the node-agent needs to give up root.
const AGENT_BOUNDING: u64 =
    CapabilitySet::SETUID.bits() | CapabilitySet::SETGID.bits() | CapabilitySet::SETPCAP.bits();

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
    let mut arguments = leading;
    arguments.extend(["--endpoint".to_owned(), unix(&socket)]);
    arguments.extend_from_slice(&options.controller_arguments);
    let mut environment = credentials(simulator.ec2());
    environment.push(("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()));
    let settings = ChildSettings {
        bounding: Some(0),
        identity: Some((CONTROLLER_ID, CONTROLLER_ID)),
        no_new_privs: true,
        ..ChildSettings::default()
    };
    Ok(contained(name, state_dir, &socket, program, settings, arguments, environment))
}

/// Prepares a process with a container's environment and these settings, without starting it.
pub(super) fn contained(
    name: &str,
    state_dir: &Path,
    socket: &Path,
    program: PathBuf,
    settings: ChildSettings,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
) -> Process {
    Process::new(name, state_dir, socket.to_owned(), move || {
        let mut command = bare_command(&program);
        command.args(&arguments).envs(environment.iter().map(|(key, value)| (key, value)));
        sys::apply_child_settings(&mut command, settings.clone());
        Ok(command)
    })
}

pub(super) fn unix(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

pub(super) fn owned<const N: usize>(variables: [(&str, &str); N]) -> Vec<(String, String)> {
    variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(super) fn credentials(ec2: &str) -> Vec<(String, String)> {
    owned([
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_ENDPOINT", ec2),
        ("AWS_ENDPOINT_URL", ec2),
        ("AWS_ACCESS_KEY_ID", "AKIASANDBOX"),
        ("AWS_SECRET_ACCESS_KEY", "sandbox"),
    ])
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
    let mut arguments = vec![
        format!("--listen={}", unix(socket)),
        format!("--kubelet-root={}", kubelet_root.display()),
        "--sandbox".to_owned(),
    ];
    arguments.extend_from_slice(&options.helper_arguments);
    let settings = in_namespace(namespace, HELPER_BOUNDING);
    let name = format!("{node}/mount-helper");
    Ok(contained(&name, state_dir, socket, program, settings, arguments, Vec::new()))
}

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
    let mut arguments = leading.clone();
    arguments
        .extend([format!("--endpoint={}", unix(socket)), "--metadata-sources=imds".to_owned()]);
    let environment = owned([
        ("AWS_REGION", "us-east-1"),
        ("CSI_NODE_NAME", node),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds),
    ]);
    let settings = ChildSettings { namespace: Some(namespace), ..ChildSettings::default() };
    let name = format!("{node}/other-driver");
    contained(&name, state_dir, socket, program.clone(), settings, arguments, environment)
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
    let mut arguments = vec![
        format!("--endpoint={}", unix(socket)),
        format!("--helper={}", unix(helper)),
        "--metadata-sources=imds".to_owned(),
    ];
    arguments.extend_from_slice(&options.agent_arguments);
    let environment = owned([
        ("CSI_NODE_NAME", node),
        ("POD_UID", &format!("pod-of-{node}")),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds),
    ]);
    let settings = in_namespace(namespace, AGENT_BOUNDING);
    let name = format!("{node}/node-agent");
    Ok(contained(&name, state_dir, socket, program, settings, arguments, environment))
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
