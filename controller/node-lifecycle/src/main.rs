//! Failover and onboarding of nodes through the Kubernetes API.

use std::ffi::OsString;
use std::process::ExitCode;

use ebs_csi_confine::start;
use ebs_csi_node_lifecycle::flags::Config;
use ebs_csi_node_lifecycle::metrics::Metrics;
use ebs_csi_node_lifecycle::process::{self, confinement, kubeconfig};
use ebs_csi_node_lifecycle::{events, preflight};
use ebs_csi_policy::profile;
use ebs_csi_proto::observe;
use ebs_csi_proto::program::{self, Exit};
use kube::config::Kubeconfig;

fn main() -> ExitCode {
    program::run("ebs-csi-node-lifecycle", || {
        let mut arguments = std::env::args_os().skip(1).peekable();
        if arguments.next_if(|first| first == preflight::SUBCOMMAND).is_some() {
            return run_preflight(arguments);
        }
        if arguments.next_if(|first| first == "metrics").is_some() {
            return Err(Exit::Print(Metrics::example_page()));
        }
        if arguments.next_if(|first| first == "events").is_some() {
            return Err(Exit::Print(events::rows()));
        }
        serve(arguments)
    })
}

/// Runs the preflight. With a kubeconfig file, a person runs the command, and it may start the
/// program that authenticates for the file; the command is therefore confined only in a pod.
fn run_preflight(arguments: impl Iterator<Item = OsString>) -> Result<(), Exit> {
    let flags = preflight::Flags::read(arguments)?;
    let kubeconfig = flags.kubeconfig.as_deref().map(Kubeconfig::read_from);
    let kubeconfig = kubeconfig.transpose().map_err(Exit::setting)?;
    if kubeconfig.is_none() {
        confinement::enter(None, &[], None).map_err(Exit::not_confined)?;
    }
    program::block_on(async {
        let client = process::connect(kubeconfig).await?;
        match preflight::run(client, flags.output).await.map_err(Exit::failed)? {
            true => Err(Exit::Status(1)),
            false => Ok(()),
        }
    })
}

fn serve(arguments: impl Iterator<Item = OsString>) -> Result<(), Exit> {
    start::clean(profile::NODE_LIFECYCLE).map_err(Exit::not_confined)?;
    let config = Config::read(arguments)?;
    observe::init_log(config.log);
    let listener = config.http.bind()?;
    let kubeconfig = config.kubeconfig.as_deref().map(kubeconfig::read);
    let kubeconfig = kubeconfig.transpose().map_err(Exit::setting)?;
    let tokens = kubeconfig.as_ref().map(kubeconfig::token_files);
    let tokens = tokens.unwrap_or_default();
    let enforced = confinement::enter(config.kubeconfig.as_deref(), &tokens, Some(&config.socket))
        .map_err(|fault| Exit::new(fault.exit_status(), fault))?;
    tracing::info!(%enforced, "confined");
    program::block_on(process::run(config, kubeconfig, listener))
}
