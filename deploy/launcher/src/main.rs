//! `aws-ebs-csi-driver [controller|node|all|pre-stop-hook] flags`.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use aws_ebs_csi_driver::children::{self, Environment, Running};
use aws_ebs_csi_driver::command_line::{self, Asked, Run};
use aws_ebs_csi_driver::identity::{self, become_unprivileged};
use aws_ebs_csi_driver::route::Backend;
use aws_ebs_csi_driver::router;
use aws_ebs_csi_driver::runtime_directory::RuntimeDirectory;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::observe::{LogFormat, init_log};
use ebs_csi_proto::serve::stop_signal;
use rustix::thread::CapabilitySet;

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

/// Kubernetes gives 30 seconds by default.
const GRACE: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let asked = match command_line::read(&words) {
        Ok(asked) => asked,
        Err(e) => return fail(64, &e.to_string()),
    };
    let result = match asked {
        Asked::Help => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Asked::Version => {
            println!("{{\"driverVersion\":\"v{}\"}}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Asked::Become { program, arguments } => replace(program, &arguments),
        Asked::Run(run) => run_all(&run),
        Asked::Route {
            endpoint,
            runtime_directory,
        } => route(&endpoint, &runtime_directory),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(e) => fail(1, &e.to_string()),
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where this program speaks without the log"
)]
fn fail(code: u8, text: &str) -> ExitCode {
    eprintln!("aws-ebs-csi-driver: {text}");
    ExitCode::from(code)
}

fn replace(program: &str, arguments: &[String]) -> io::Result<u8> {
    let path = children::sibling(program)?;
    let error = Command::new(&path).args(arguments).exec();
    Err(io::Error::new(
        error.kind(),
        format!("running {}: {error}", path.display()),
    ))
}

fn run_all(run: &Run) -> io::Result<u8> {
    init_log(LogFormat::Text, 2);
    let directory = RuntimeDirectory::make(run.runtime_directory.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        let running = start_all(run, &directory)?;
        // From here on this process only waits and signals.
        become_unprivileged(identity::LAUNCHER, CapabilitySet::KILL)?;
        children::supervise(running, GRACE).await
    })?;
    Ok(code)
}

fn start_all(run: &Run, directory: &RuntimeDirectory) -> io::Result<Vec<Running>> {
    let with = |first: &[(&str, String)], rest: &[String]| -> Vec<String> {
        first
            .iter()
            .map(|(flag, value)| format!("--{flag}={value}"))
            .chain(rest.iter().cloned())
            .collect()
    };
    let helper = directory.helper().to_string();
    let agent = if run.all {
        directory.endpoint(Backend::NodeAgent)
    } else {
        run.endpoint.clone()
    };
    let mut running = vec![children::start(
        "mount-helper",
        "ebs-csi-mount-helper",
        &with(&[("listen", helper.clone())], &run.helper),
        Environment::Only(&[]),
    )?];
    let agent = with(
        &[("endpoint", agent.to_string()), ("helper", helper)],
        &run.agent,
    );
    running.push(children::start(
        "node-agent",
        "ebs-csi-node-agent",
        &agent,
        Environment::Only(children::FOR_NODE_AGENT),
    )?);
    if run.all {
        let controller = directory.endpoint(Backend::Controller).to_string();
        let controller = with(&[("endpoint", controller)], &run.controller);
        running.push(children::start(
            "controller",
            "ebs-csi-controller",
            &controller,
            Environment::Whole,
        )?);
        let own = std::env::current_exe()?;
        let own = own
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("aws-ebs-csi-driver")
            .to_owned();
        let mut router = vec!["router".to_owned()];
        router.extend(with(
            &[
                ("endpoint", run.endpoint.to_string()),
                ("runtime-dir", directory.path().display().to_string()),
            ],
            &[],
        ));
        running.push(children::start(
            "router",
            &own,
            &router,
            Environment::Only(&[]),
        )?);
    }
    Ok(running)
}

fn route(endpoint: &Endpoint, runtime_directory: &Path) -> io::Result<u8> {
    init_log(LogFormat::Text, 2);
    let Listener::Unix(listener) = endpoint.bind()? else {
        return Err(io::Error::other(
            "mode all serves unix sockets only; give --endpoint unix:///path",
        ));
    };
    // The directory of the endpoint may be root's alone; everything else is done without any privilege.
    become_unprivileged(identity::ROUTER, CapabilitySet::empty())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let sockets = runtime_directory.join("csi");
        router::serve(listener, &sockets, stop_signal()?, Duration::from_secs(20)).await
    })?;
    Ok(0)
}
