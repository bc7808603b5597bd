//! The CSI Controller service.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

use ebs_csi_confine::{Fault, start};
use ebs_csi_controller::metrics::Metrics;
use ebs_csi_controller::process::config::Config;
use ebs_csi_controller::process::orphans::{self, Known, OrphansArguments};
use ebs_csi_controller::process::{self, Sockets, confinement, traces};
use ebs_csi_policy::profile;
use ebs_csi_proto::program::{self, Exit};
use ebs_csi_proto::{Endpoint, observe};
use mimalloc::MiMalloc;

mod sys;

/// The SDK allocates hundreds of small pieces for each call. The C library's allocator spent a
/// fifth to a quarter of the processor time on them; this one spends a fraction of that, for half a
/// MiB more at rest (`deploy/testing/bench/results/reasons.md`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    program::run("ebs-csi-controller", || {
        start::clean(profile::CONTROLLER).map_err(Exit::not_confined)?;
        let environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let mut arguments = std::env::args_os().skip(1).peekable();
        if arguments.next_if(|first| first == orphans::NAME).is_some() {
            return list_orphans(arguments, &environment);
        }
        if arguments.next_if(|first| first == "metrics").is_some() {
            return Err(Exit::Print(Metrics::example_page()));
        }
        serve(Config::read(arguments, &environment)?, &environment)
    })
}

fn serve(config: Config, environment: &BTreeMap<String, String>) -> Result<(), Exit> {
    let (collect, exporter) = config.traces.clone().map(traces::channel).unzip();
    observe::init_log_with_layer(
        config.log,
        config.sdk_levels,
        collect.map(|collect| Box::new(collect) as observe::ExtraLayer),
    );
    for (flag, instead) in &config.without_effect {
        tracing::info!("--{flag} has no meaning here: {instead}");
    }
    for (variable, instead) in &config.variables_without_effect {
        tracing::info!("{variable} has no meaning here: {instead}");
    }

    let bind = |flag: &str, endpoint: &Endpoint| {
        program::bind(flag, endpoint, profile::CONTROLLER.socket_mode(flag))
    };
    let safe_detach = config.safe_detach_socket.as_ref();
    let sockets = Sockets {
        csi: bind("--endpoint", &config.endpoint)?,
        safe_detach: safe_detach
            .map(|socket| bind("--safe-detach-endpoint", &socket.endpoint))
            .transpose()?,
        http: config.http.bind()?,
        traces: exporter,
    };
    let enforced =
        confinement::enter(environment, config.certificate.as_ref()).map_err(unconfined)?;
    tracing::info!(%enforced, "confined");
    program::block_on(process::run(config, sockets, sys::give_back_memory))
}

fn unconfined(fault: Fault) -> Exit {
    Exit::new(fault.exit_status(), fault)
}

/// Runs the command that lists what a cluster left behind, as confined as the service.
fn list_orphans(
    arguments: impl Iterator<Item = OsString>,
    environment: &BTreeMap<String, String>,
) -> Result<(), Exit> {
    let command_arguments = OrphansArguments::read(arguments)?;
    let config = Config::read([], environment)?;
    let mut handles = String::new();
    std::io::stdin()
        .read_to_string(&mut handles)
        .map_err(|error| Exit::failed(format_args!("standard input: {error}")))?;
    let known = Known::read(&handles).map_err(Exit::usage)?;
    confinement::enter(environment, None).map_err(unconfined)?;
    let (orphans_found, summary) = program::block_on(command_arguments.run(&config, &known))?;
    let lines: String = orphans_found.iter().map(|orphan| format!("{orphan}\n")).collect();
    std::io::stdout()
        .write_all(lines.as_bytes())
        .and_then(|()| writeln!(std::io::stderr(), "ebs-csi-controller: {summary}"))
        .map_err(Exit::failed)
}
