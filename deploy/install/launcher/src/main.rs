//! `aws-ebs-csi-driver [controller|node|all|pre-stop-hook] flags`.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use aws_ebs_csi_driver::children::{self, Environment, Started};
use aws_ebs_csi_driver::command_line::{self, Invocation, Run};
use aws_ebs_csi_driver::route::Backend;
use aws_ebs_csi_driver::router;
use aws_ebs_csi_driver::runtime_directory::RuntimeDirectory;
use aws_ebs_csi_driver::supervise::{self, Running};
use ebs_csi_confine::{Fault, Places, enter, start};
use ebs_csi_policy::profile;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::observe::{LogFormat, init_log};
use ebs_csi_proto::serve::stop_signal;

const HELP: &str = "\
The AWS EBS CSI driver: runs the processes of a mode, which lie beside this program.

Usage: aws-ebs-csi-driver [MODE] [FLAGS]

Modes:
  controller      CSI Controller (becomes ebs-csi-controller)
  node            CSI Node: ebs-csi-node-agent and ebs-csi-mount-helper
  all             all three, on one socket (default)
  pre-stop-hook   waits for the node's volumes to go (becomes ebs-csi-node-agent)

Own flags:
  --endpoint ENDPOINT   where to serve CSI, unix:///path or tcp://ip:port [default: unix://tmp/csi.sock]
  --runtime-dir DIR     where the processes' own sockets are [default: a fresh directory in /run]
  --version, --help

All other flags go to the processes that know them; each program's --help lists its own.
";

/// Below the 30 seconds that Kubernetes grants by default.
const GRACE: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let invocation = match command_line::parse(&arguments) {
        Ok(invocation) => invocation,
        Err(e) => return fail(64, &e.to_string()),
    };
    let result = match invocation {
        Invocation::Help => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Invocation::Version => {
            println!("{{\"driverVersion\":\"v{}\"}}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Invocation::Become { program, arguments } => exec_program(program, &arguments),
        Invocation::Run(run) => run_all(&run),
        Invocation::Route { endpoint, runtime_directory } => route(&endpoint, &runtime_directory),
        Invocation::Supervise(running) => supervise(running),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(RunError::Failed(e)) => fail(1, &e.to_string()),
        Err(RunError::NotConfined(fault)) => fail(Fault::EXIT, &fault.to_string()),
    }
}

/// The reason why this program fails.
enum RunError {
    /// A failure other than that of the confinement.
    Failed(io::Error),
    /// The process could not be confined as its policy demands.
    NotConfined(Fault),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Fault> for RunError {
    fn from(fault: Fault) -> Self {
        Self::NotConfined(fault)
    }
}

#[expect(clippy::print_stderr, reason = "the one place where this program speaks without the log")]
fn fail(code: u8, text: &str) -> ExitCode {
    eprintln!("aws-ebs-csi-driver: {text}");
    ExitCode::from(code)
}

fn exec_program(program: &str, arguments: &[String]) -> Result<u8, RunError> {
    let path = children::program_path(program)?;
    Err(RunError::Failed(exec(&path, Command::new(&path).args(arguments))))
}

/// Executes the program; returns only when that failed.
fn exec(path: &Path, command: &mut Command) -> io::Error {
    let error = command.exec();
    io::Error::new(error.kind(), format!("running {}: {error}", path.display()))
}

/// Starts the processes, then executes this program again as the supervisor. The new image has
/// neither the environment, which may hold the controller's credentials, nor anything that this
/// image has read.
fn run_all(run: &Run) -> Result<u8, RunError> {
    init_log(LogFormat::Text, 2);
    let directory = RuntimeDirectory::create(run.runtime_directory.clone())?;
    let started = start_all(run, &directory)?;
    let path = std::env::current_exe()?;
    let mut supervisor = Command::new(&path);
    supervisor.arg("supervise").args(started.processes().iter().map(ToString::to_string));
    Environment::Only(&[]).apply(&mut supervisor);
    Err(RunError::Failed(exec(&path, &mut supervisor)))
}

/// Waits for the processes and forwards signals to them.
fn supervise(running: Vec<Running>) -> Result<u8, RunError> {
    init_log(LogFormat::Text, 2);
    start::close_inherited_descriptors(&[])?;
    let confined = enter(profile::LAUNCHER, &Places::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match confined {
        Ok(enforced) => {
            tracing::info!(%enforced, "confined");
            Ok(runtime.block_on(supervise::supervise(running, GRACE))?)
        }
        Err(fault) => {
            runtime.block_on(supervise::end_all(running, GRACE, Fault::EXIT))?;
            Err(fault.into())
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
    let (nothing, node) = (Environment::Only(&[]), Environment::Only(children::FOR_NODE_AGENT));
    let mut started = Started::default();
    started.start("mount-helper", "ebs-csi-mount-helper", &helper, nothing)?;
    started.start("node-agent", "ebs-csi-node-agent", &agent, node)?;
    if run.all {
        let controller = directory.endpoint(Backend::Controller).to_string();
        let controller = with_flags(&[("endpoint", controller)], &run.controller);
        started.start("controller", "ebs-csi-controller", &controller, Environment::Whole)?;
        let launcher = std::env::current_exe()?;
        let launcher = launcher.file_name().and_then(|name| name.to_str());
        let router = [
            "router".to_owned(),
            format!("--endpoint={}", run.endpoint),
            format!("--runtime-dir={}", directory.path().display()),
        ];
        started.start("router", launcher.unwrap_or("aws-ebs-csi-driver"), &router, nothing)?;
    }
    Ok(started)
}

fn route(endpoint: &Endpoint, runtime_directory: &Path) -> Result<u8, RunError> {
    start::close_inherited_descriptors(&[])?;
    start::keep_environment(children::FOR_ALL)?;
    init_log(LogFormat::Text, 2);
    // Binds before the confinement, because only root may be able to write the endpoint's
    // directory.
    let Listener::Unix(listener) = endpoint.bind()? else {
        return Err(RunError::Failed(io::Error::other(
            "mode all serves unix sockets only; give --endpoint unix:///path",
        )));
    };
    let enforced = enter(profile::ROUTER, &Places::new())?;
    tracing::info!(%enforced, "confined");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let sockets = runtime_directory.join("csi");
        router::serve(listener, &sockets, stop_signal()?, Duration::from_secs(20)).await
    })?;
    Ok(0)
}
