//! The CSI Controller service.
//!
//! Everything until the runtime starts is synchronous and single-threaded, because the process
//! confines itself before its first thread. The order is: read the command line, bind the sockets,
//! confine, serve.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

use ebs_csi_confine::{Fault, start};
use ebs_csi_controller::metrics::Metrics;
use ebs_csi_controller::process::config::{Config, Stop};
use ebs_csi_controller::process::confinement;
use ebs_csi_controller::process::orphans::{Known, command};
use ebs_csi_controller::process::traces;
use ebs_csi_controller::process::{self, Sockets};
use ebs_csi_proto::exit::{self, Exit};
use ebs_csi_proto::observe;
use mimalloc::MiMalloc;

mod sys;

/// The SDK allocates hundreds of small pieces for each call. The C library's allocator spent a
/// fifth to a quarter of the processor time on them; this one spends a fraction of that, for half a
/// MiB more at rest (`deploy/testing/bench/results/reasons.md`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    exit::run_main("ebs-csi-controller", || run().map(|()| ExitCode::SUCCESS))
}

fn run() -> Result<(), Exit> {
    let startup_fault = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Exit::new(Fault::EXIT, format!("{what}: {error}"))
    };
    start::close_inherited_descriptors(&[])
        .map_err(startup_fault("closing inherited descriptors"))?;
    start::keep_environment(&confinement::KEPT_VARIABLES)
        .map_err(startup_fault("clearing the environment"))?;
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == command::NAME).is_some() {
        return orphans(arguments, &environment);
    }
    if arguments.next_if(|first| first == "metrics").is_some() {
        return print(&Metrics::example_page());
    }
    let config = match Config::read(arguments, &environment) {
        Ok(config) => config,
        Err(stop) => return exit_before_serving(stop),
    };
    let (collect, exporter) = config.traces.clone().map(traces::channel).unzip();
    observe::init_log_with_layer(
        config.log_format,
        config.verbosity,
        config.sdk_levels,
        collect.map(|collect| Box::new(collect) as observe::ExtraLayer),
    );
    for (flag, instead) in &config.without_effect {
        tracing::info!("--{flag} has no meaning here: {instead}");
    }
    for (variable, instead) in &config.variables_without_effect {
        tracing::info!("{variable} has no meaning here: {instead}");
    }

    let csi = config
        .endpoint
        .bind()
        .map_err(|error| Exit::new(1, format!("--endpoint {}: {error}", config.endpoint)))?;
    let safe_detach = config
        .safe_detach_socket
        .as_ref()
        .map(|socket| {
            let refused = |error| {
                let endpoint = &socket.endpoint;
                Exit::new(1, format!("--safe-detach-endpoint {endpoint}: {error}"))
            };
            socket.endpoint.bind().map_err(refused)
        })
        .transpose()?;
    let http = config
        .http
        .map(|address| {
            std::net::TcpListener::bind(address)
                .map_err(|error| Exit::new(1, format!("--http-endpoint {address}: {error}")))
        })
        .transpose()?;

    let enforced = confinement::enter(&config.sockets(), &environment, config.certificate.as_ref())
        .map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    tracing::info!(%enforced, "confined");

    let runtime = runtime()?;
    let ended = runtime.block_on(process::run(
        config,
        Sockets { csi, safe_detach, http, traces: exporter },
        sys::give_back_memory,
    ));
    // The remaining tasks belong to calls whose grace period has ended; their callers retry.
    runtime.shutdown_background();
    ended.map_err(|ended| Exit::new(ended.status(), ended))
}

/// Prints help or version, or returns the error of a wrong command line, one line.
fn exit_before_serving(stop: Stop) -> Result<(), Exit> {
    match stop {
        Stop::Print(text) => print(&text),
        Stop::Usage(line) => Err(Exit::new(64, format!("{line}; see --help"))),
    }
}

fn print(text: &str) -> Result<(), Exit> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Exit::new(1, error))
}

fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::new(1, format!("starting the runtime: {error}")))
}

/// Runs the command that lists what a cluster left behind, as confined as the service.
fn orphans(
    arguments: impl Iterator<Item = OsString>,
    environment: &BTreeMap<String, String>,
) -> Result<(), Exit> {
    let command_arguments = match command::OrphansArguments::read(arguments) {
        Ok(command_arguments) => command_arguments,
        Err(stop) => return exit_before_serving(stop),
    };
    let config = match Config::read([], environment) {
        Ok(config) => config,
        Err(stop) => return exit_before_serving(stop),
    };
    let mut handles = String::new();
    std::io::stdin()
        .read_to_string(&mut handles)
        .map_err(|error| Exit::new(1, format!("standard input: {error}")))?;
    let known = Known::read(&handles).map_err(|why| Exit::new(64, why))?;
    confinement::enter(&[], environment, None).map_err(|fault| Exit::new(Fault::EXIT, fault))?;
    let (orphans_found, summary) = runtime()?
        .block_on(command_arguments.run(&config, &known))
        .map_err(|ended| Exit::new(ended.status(), ended))?;
    let lines: String = orphans_found.iter().map(|orphan| format!("{orphan}\n")).collect();
    std::io::stdout()
        .write_all(lines.as_bytes())
        .and_then(|()| writeln!(std::io::stderr(), "ebs-csi-controller: {summary}"))
        .map_err(|error| Exit::new(1, error))
}
