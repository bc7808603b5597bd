//! The driver's entry point: `aws-ebs-csi-driver [controller|node|all|pre-stop-hook] flags` runs
//! the processes of a mode.

mod children;
mod command_line;
mod flags;
mod runtime_directory;
mod supervise;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use aws_ebs_csi_driver::route::Backend;
use aws_ebs_csi_driver::router;
use children::{Started, limit_environment};
use command_line::{Invocation, Run};
use ebs_csi_confine::{Fault, Places, enter, start};
use ebs_csi_policy::profile;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::observe::{LogFlags, init_log};
use ebs_csi_proto::program::{self, Exit};
use ebs_csi_proto::serve::stop_signal;
use runtime_directory::RuntimeDirectory;
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
    let path = children::program_path(program)?;
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
    limit_environment(&mut supervisor, profile::LAUNCHER);
    Err(Exit::failed(exec(&path, &mut supervisor)))
}

/// Waits for the processes and forwards signals to them.
fn supervise(running: Vec<Running>) -> Result<(), Exit> {
    init_log(LogFlags::default());
    start::close_inherited_descriptors(&[])?;
    let confined = enter(profile::LAUNCHER, &Places::new());
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
