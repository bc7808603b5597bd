//! Failover and onboarding of nodes through the Kubernetes API.
//!
//! Everything before the start of the runtime is synchronous and single-threaded, because the
//! process confines itself before it starts its first thread.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;

use ebs_csi_confine::{Fault, start};
use ebs_csi_node_lifecycle::events;
use ebs_csi_node_lifecycle::flags::{Config, EarlyExit};
use ebs_csi_node_lifecycle::metrics::Metrics;
use ebs_csi_node_lifecycle::preflight;
use ebs_csi_node_lifecycle::process::{self, confinement, kubeconfig};
use ebs_csi_proto::exit::{self, Exit};
use ebs_csi_proto::observe;
use kube::config::Kubeconfig;

fn main() -> ExitCode {
    exit::run_main("ebs-csi-node-lifecycle", || run_command(std::env::args_os().skip(1)))
}

fn run_command(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Exit> {
    let first_argument = arguments.next();
    if first_argument.as_deref() == Some(OsStr::new(preflight::SUBCOMMAND)) {
        return run_preflight(arguments);
    }
    if first_argument.as_deref() == Some(OsStr::new("metrics")) {
        print(&Metrics::example_page())?;
        return Ok(ExitCode::SUCCESS);
    }
    if first_argument.as_deref() == Some(OsStr::new("events")) {
        print(&events::rows())?;
        return Ok(ExitCode::SUCCESS);
    }
    run_process(first_argument.into_iter().chain(arguments)).map(|()| ExitCode::SUCCESS)
}

/// Runs the preflight. With a kubeconfig file, a person runs the command, and it may start the
/// program that authenticates for the file; the command is therefore confined only in a pod.
fn run_preflight(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Exit> {
    let flags = match preflight::Flags::read(arguments) {
        Ok(flags) => flags,
        Err(early_exit) => return report_early_exit(early_exit).map(|()| ExitCode::SUCCESS),
    };
    let kubeconfig = flags.kubeconfig.as_deref().map(Kubeconfig::read_from);
    let kubeconfig = kubeconfig.transpose().map_err(|error| Exit::new(78, error))?;
    if kubeconfig.is_none() {
        confinement::enter(None, &[]).map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    }
    build_runtime()?.block_on(async {
        let client = process::connect(kubeconfig).await;
        let client = client.map_err(|error| Exit::new(error.status(), error))?;
        let status = preflight::run(client, flags.output).await;
        status.map_err(|error| Exit::new(1, error))
    })
}

fn report_early_exit(early_exit: EarlyExit) -> Result<(), Exit> {
    match early_exit {
        EarlyExit::Print(text) => print(&text),
        EarlyExit::Usage(line) => Err(Exit::new(64, format!("{line}; see --help"))),
    }
}

fn print(text: &str) -> Result<(), Exit> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Exit::new(1, error))
}

fn build_runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::new(1, format!("starting the runtime: {error}")))
}

fn run_process(arguments: impl Iterator<Item = OsString>) -> Result<(), Exit> {
    let confinement_error = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Exit::new(Fault::EXIT, format!("{what}: {error}"))
    };
    start::close_inherited_descriptors(&[])
        .map_err(confinement_error("closing inherited descriptors"))?;
    start::keep_environment(&confinement::KEPT_VARIABLES)
        .map_err(confinement_error("clearing the environment"))?;
    let config = match Config::read(arguments) {
        Ok(config) => config,
        Err(early_exit) => return report_early_exit(early_exit),
    };
    observe::init_log(config.log_format, config.verbosity);
    let listener = config
        .http_address
        .map(|address| {
            std::net::TcpListener::bind(address)
                .map_err(|error| Exit::new(1, format!("--http-endpoint {address}: {error}")))
        })
        .transpose()?;
    let kubeconfig = config.kubeconfig.as_deref().map(kubeconfig::read);
    let kubeconfig = kubeconfig.transpose().map_err(|why| Exit::new(78, why))?;
    let tokens = kubeconfig.as_ref().map(kubeconfig::token_directories);
    let enforced = confinement::enter(config.kubeconfig.as_deref(), &tokens.unwrap_or_default())
        .map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    tracing::info!(%enforced, "confined");
    let runtime = build_runtime()?;
    let ended = runtime.block_on(process::run(config, kubeconfig, listener));
    runtime.shutdown_background();
    ended.map_err(|error| Exit::new(error.status(), error))
}
