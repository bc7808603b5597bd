//! Failover and onboarding of nodes through the Kubernetes API.
//!
//! Everything before the start of the runtime is synchronous and single-threaded, because the
//! process confines itself before it starts its first thread.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;

use ebs_csi_confine::{Fault, start};
use ebs_csi_node_lifecycle::flags::{Config, Stop};
use ebs_csi_node_lifecycle::preflight;
use ebs_csi_node_lifecycle::process::{self, confinement, kubeconfig};
use ebs_csi_proto::exit::{self, Exit};
use ebs_csi_proto::observe;
use kube::config::Kubeconfig;

fn main() -> ExitCode {
    exit::status_of("ebs-csi-node-lifecycle", || main_of(std::env::args_os().skip(1)))
}

fn main_of(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Exit> {
    let word = arguments.next();
    if word.as_deref() == Some(OsStr::new(preflight::WORD)) {
        return look(arguments);
    }
    begin(word.into_iter().chain(arguments)).map(|()| ExitCode::SUCCESS)
}

/// Runs the preflight. With a kubeconfig file, a person runs the command, and it may start the
/// program that authenticates for the file; the command is therefore confined only in a pod.
fn look(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Exit> {
    let flags = match preflight::Flags::read(arguments) {
        Ok(flags) => flags,
        Err(stopped) => return said(stopped).map(|()| ExitCode::SUCCESS),
    };
    let read = flags.kubeconfig.as_deref().map(Kubeconfig::read_from);
    let read = read.transpose().map_err(|error| Exit::new(78, error))?;
    if read.is_none() {
        confinement::enter(None, &[]).map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    }
    runtime()?.block_on(async {
        let client = process::connect(read).await;
        let client = client.map_err(|ended| Exit::new(ended.status(), ended))?;
        let status = preflight::run(client, flags.output).await;
        status.map_err(|error| Exit::new(1, error))
    })
}

fn said(stopped: Stop) -> Result<(), Exit> {
    match stopped {
        Stop::Say(text) => {
            let mut stdout = std::io::stdout();
            stdout.write_all(text.as_bytes()).map_err(|e| Exit::new(1, e))
        }
        Stop::Usage(line) => Err(Exit::new(64, format!("{line}; see --help"))),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::new(1, format!("starting the runtime: {error}")))
}

fn begin(arguments: impl Iterator<Item = OsString>) -> Result<(), Exit> {
    let faulty = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Exit::new(Fault::EXIT, format!("{what}: {error}"))
    };
    start::close_strays(&[]).map_err(faulty("closing inherited descriptors"))?;
    start::keep_environment(&confinement::KEPT_VARIABLES)
        .map_err(faulty("clearing the environment"))?;
    let config = match Config::read(arguments) {
        Ok(config) => config,
        Err(stopped) => return said(stopped),
    };
    observe::init_log(config.log_format, config.verbosity);
    let listener = config
        .http
        .map(|address| {
            std::net::TcpListener::bind(address)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|error| Exit::new(1, format!("--http-endpoint {address}: {error}")))
        })
        .transpose()?;
    let read = config.kubeconfig.as_deref().map(kubeconfig::read);
    let read = read.transpose().map_err(|why| Exit::new(78, why))?;
    let tokens = read.as_ref().map(kubeconfig::token_directories);
    let enforced = confinement::enter(config.kubeconfig.as_deref(), &tokens.unwrap_or_default())
        .map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    tracing::info!(%enforced, "confined");
    let runtime = runtime()?;
    let ended = runtime.block_on(process::run(config, read, listener));
    runtime.shutdown_background();
    ended.map_err(|ended| Exit::new(ended.status(), ended))
}
