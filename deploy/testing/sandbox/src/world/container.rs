//! The settings that a container runtime applies to each of the driver's processes: identity,
//! capabilities, environment.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_policy::profile;

use super::options::WorldOptions;
use super::process::Process;
use super::simulator::Simulator;
use crate::sys::{self, ChildSettings};

/// The uid and gid of the controller's container: the profile's, as in the plain manifest.
const CONTROLLER_ID: u32 = profile::CONTROLLER.identity.uid;

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
