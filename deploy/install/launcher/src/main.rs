//! The driver's entry point: `aws-ebs-csi-driver [controller|node|all|pre-stop-hook] flags` runs
//! the processes of a mode.

mod command_line;
mod flags;
mod runtime_directory;
mod supervise;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use aws_ebs_csi_driver::route::Backend;
use aws_ebs_csi_driver::router;
use command_line::{Invocation, Run};
use ebs_csi_confine::{Fault, Places, enter, start};
use ebs_csi_policy::profile::{self, LAUNCHER, Profile};
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::observe::{LogFlags, init_log};
use ebs_csi_proto::program::{self, Exit};
use ebs_csi_proto::serve::stop_signal;
use runtime_directory::RuntimeDirectory;
use rustix::process::{Pid, Signal, kill_process};
use supervise::Running;

/// Below the 30 seconds that Kubernetes grants by default.
const GRACE: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    program::run("aws-ebs-csi-driver", || {
        let arguments: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        match command_line::parse(&arguments)? {
            Invocation::Become { program, arguments } => exec_program(program, &arguments),
            Invocation::Run(run) => run_all(&run),
            Invocation::Route { endpoint, runtime_directory } => {
                route(&endpoint, &runtime_directory)
            }
            Invocation::Supervise(running) => supervise(running),
        }
    })
}

fn exec_program(program: &str, arguments: &[String]) -> Result<(), Exit> {
    let path = program_path(program)?;
    Err(Exit::failed(exec(&path, Command::new(&path).args(arguments))))
}

/// Executes the program; returns only when that failed.
fn exec(path: &Path, command: &mut Command) -> io::Error {
    let error = command.exec();
    io::Error::new(error.kind(), format!("running {}: {error}", path.display()))
}

/// Starts the processes, then executes this program again as the supervisor. The new image has
/// neither the environment, which may hold the controller's credentials, nor anything that this
/// image has read.
fn run_all(run: &Run) -> Result<(), Exit> {
    init_log(LogFlags::default());
    let directory =
        RuntimeDirectory::create(run.runtime_directory.clone()).map_err(Exit::setting)?;
    let started = start_all(run, &directory)?;
    let path = std::env::current_exe()?;
    let mut supervisor = Command::new(&path);
    supervisor.arg("supervise").args(started.processes().iter().map(ToString::to_string));
    limit_environment(&mut supervisor, LAUNCHER);
    Err(Exit::failed(exec(&path, &mut supervisor)))
}

/// Waits for the processes and forwards signals to them.
fn supervise(running: Vec<Running>) -> Result<(), Exit> {
    init_log(LogFlags::default());
    start::close_inherited_descriptors(&[])?;
    let confined = enter(LAUNCHER, &Places::new());
    program::block_on(async {
        match confined {
            Ok(enforced) => {
                tracing::info!(%enforced, "confined");
                Err(Exit::Status(supervise::supervise(running, GRACE).await?))
            }
            Err(fault) => {
                supervise::end_all(running, GRACE, Fault::EXIT).await?;
                Err(Exit::not_confined(fault))
            }
        }
    })
}

/// Returns the path of a program of the driver, in the directory of this program.
fn program_path(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

/// Leaves `command` the variables that a process with the profile keeps, and those that the
/// launcher keeps itself: only the controller inherits credentials and the variables that refer to
/// them.
fn limit_environment(command: &mut Command, profile: &Profile) {
    let passed = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_str();
        name.is_some_and(|name| profile.keeps_variable(name) || LAUNCHER.keeps_variable(name))
    });
    command.env_clear().envs(passed);
}

/// The processes that have been started. Dropping the value kills them with SIGKILL.
#[derive(Debug, Default)]
struct Started(Vec<Running>);

impl Started {
    /// Starts `program`, whose first process has the profile, from the directory of this program,
    /// and logs it as `name`.
    fn start(
        &mut self,
        name: &str,
        program: &str,
        arguments: &[String],
        profile: &Profile,
    ) -> io::Result<()> {
        let path = program_path(program)?;
        let mut command = Command::new(&path);
        command.args(arguments);
        limit_environment(&mut command, profile);
        let child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("starting {}: {e}", path.display())))?;
        tracing::info!(process = name, pid = child.id(), "started");
        // The next image of this process (`supervise`) waits for the child.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.0.extend(pid.map(|pid| Running { name: name.to_owned(), pid }));
        Ok(())
    }

    fn processes(&self) -> &[Running] {
        &self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for process in &self.0 {
            // The process may have ended already.
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

fn start_all(run: &Run, directory: &RuntimeDirectory) -> io::Result<Started> {
    let with_flags = |first: &[(&str, String)], rest: &[String]| -> Vec<String> {
        first
            .iter()
            .map(|(flag, value)| format!("--{flag}={value}"))
            .chain(rest.iter().cloned())
            .collect()
    };
    let helper = directory.helper().to_string();
    let agent = if run.all { directory.endpoint(Backend::NodeAgent) } else { run.endpoint.clone() };
    let agent =
        with_flags(&[("endpoint", agent.to_string()), ("helper", helper.clone())], &run.agent);
    let helper = with_flags(&[("listen", helper)], &run.helper);
    let mut started = Started::default();
    started.start("mount-helper", "ebs-csi-mount-helper", &helper, profile::SUPERVISOR)?;
    started.start("node-agent", "ebs-csi-node-agent", &agent, profile::NODE_AGENT)?;
    if run.all {
        let controller = directory.endpoint(Backend::Controller).to_string();
        let controller = with_flags(&[("endpoint", controller)], &run.controller);
        started.start("controller", "ebs-csi-controller", &controller, profile::CONTROLLER)?;
        let launcher = std::env::current_exe()?;
        let launcher = launcher.file_name().and_then(|name| name.to_str());
        let router = [
            "router".to_owned(),
            format!("--endpoint={}", run.endpoint),
            format!("--runtime-dir={}", directory.path().display()),
        ];
        started.start(
            "router",
            launcher.unwrap_or("aws-ebs-csi-driver"),
            &router,
            profile::ROUTER,
        )?;
    }
    Ok(started)
}

fn route(endpoint: &Endpoint, runtime_directory: &Path) -> Result<(), Exit> {
    start::clean(profile::ROUTER).map_err(Exit::not_confined)?;
    init_log(LogFlags::default());
    // Binds before the confinement, because only root may be able to write the endpoint's
    // directory.
    let Listener::Unix(listener) = endpoint.bind(profile::ROUTER.socket_mode("--endpoint"))? else {
        return Err(Exit::failed(
            "mode all serves unix sockets only; give --endpoint unix:///path",
        ));
    };
    let sockets = runtime_directory.join("csi");
    let enforced = Places::new()
        .with("backend-socket-directory", &sockets)
        .and_then(|places| enter(profile::ROUTER, &places))
        .map_err(Exit::not_confined)?;
    tracing::info!(%enforced, "confined");
    program::block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(router::serve(listener, &sockets, stop_signal()?, Duration::from_secs(20)).await?)
    })
}
