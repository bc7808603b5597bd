//! The unprivileged CSI Node service.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ebs_csi_confine::{Fault, start};
use ebs_csi_node_agent::helper::Target;
use ebs_csi_node_agent::http_endpoint;
use ebs_csi_node_agent::pre_stop::{self, Wait};
use ebs_csi_node_agent::preflight;
use ebs_csi_node_agent::registration::{self, own_directories};
use ebs_csi_node_agent::service::{self, confinement};
use ebs_csi_node_agent::settings::flags::{self, Ended, Job, PreStop};
use ebs_csi_node_agent::settings::{self, Settings};
use ebs_csi_proto::observe::{LogFormat, init_log};

/// The environment variables that are used; no credential is among them.
const ENVIRONMENT: &[&str] = &["CSI_NODE_NAME", "AWS_EC2_METADATA_", "RUST_LOG", "RUST_BACKTRACE"];

fn main() -> ExitCode {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let without_effect = settings::variables_without_effect(names);
    if let Err(error) =
        start::close_inherited_descriptors(&[]).and_then(|()| start::keep_environment(ENVIRONMENT))
    {
        return exit_with(77, format_args!("cannot start clean: {error}"));
    }
    let line = match flags::read(std::env::args_os()) {
        Ok(line) => line,
        Err(Ended::Printed(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Ended::Misused(why)) => return exit_with(64, format_args!("{why}")),
    };
    match line.job {
        Some(Job::PreStopHook(hook)) => return pre_stop_hook(hook),
        Some(Job::Preflight(flags)) => {
            let (report, runs) = preflight::report(&flags);
            let _ = std::io::stdout().write_all(report.as_bytes());
            return ExitCode::from(u8::from(!runs));
        }
        Some(Job::GiveDirectories(given)) => {
            init_log(LogFormat::Text, 2);
            let (sockets, registry) = (&given.socket_directory, &given.plugin_registration_path);
            return match own_directories::give(sockets, registry) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => exit_with(1, format_args!("{error}")),
            };
        }
        Some(Job::Metrics) => {
            let _ = std::io::stdout().write_all(http_endpoint::example_page().as_bytes());
            return ExitCode::SUCCESS;
        }
        Some(Job::EnterProfile) => {
            return match confinement::enter(None, None, [], false) {
                Ok(_) => ExitCode::SUCCESS,
                Err(fault) => exit_with(Fault::EXIT, format_args!("{fault}")),
            };
        }
        None => {}
    }
    let settings = match Settings::check(line.serve, &|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(error) => return exit_with(error.exit(), format_args!("{error}")),
    };
    init_log(settings.log.0, settings.log.1);
    for variable in without_effect {
        tracing::info!(variable, "this variable has no effect");
    }
    match service::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(cause, "{error}");
            ExitCode::from(error.exit())
        }
    }
}

fn pre_stop_hook(hook: PreStop) -> ExitCode {
    init_log(LogFormat::Text, 2);
    let helper = match Target::read(&hook.helper, hook.helper_key_file.as_deref()) {
        Ok(helper) => helper,
        Err(error) => return exit_with(error.exit(), format_args!("{error}")),
    };
    if !pre_stop::is_draining(&hook.node_facts_file) {
        tracing::info!("the node is not being drained");
        remove_registration_socket(&hook.plugin_registration_path);
        return ExitCode::SUCCESS;
    }
    let files = hook.node_facts_file.iter().map(PathBuf::as_path);
    if let Err(fault) = confinement::enter(None, None, files, helper.is_vsock()) {
        return exit_with(Fault::EXIT, format_args!("{fault}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit_with(1, format_args!("the runtime cannot be started: {error}")),
    };
    let timeout = Duration::from_secs(hook.timeout);
    match runtime.block_on(pre_stop::wait(helper, &hook.node_facts_file, timeout)) {
        Wait::NotDraining => tracing::info!("the node is no longer being drained"),
        Wait::Clear => tracing::info!("no volume is staged"),
        Wait::Overdue(held) => {
            let held = held.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
            return exit_with(
                1,
                format_args!(
                    "{held} places of volumes were still mounted after {} s",
                    hook.timeout
                ),
            );
        }
    }
    ExitCode::SUCCESS
}

/// Removes the registration socket before the agent ends. While a node is drained the socket stays,
/// so that kubelet continues to call this driver for unmounts.
fn remove_registration_socket(directory: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let removed = runtime.and_then(|runtime| {
        let _entered = runtime.enter();
        registration::withdraw(directory)
    });
    match removed {
        Ok(true) => tracing::info!("removed the registration socket"),
        Ok(false) => tracing::info!("no registration socket of this container"),
        Err(error) => tracing::warn!(%error, "the registration socket stays"),
    }
}

/// Writes one line to standard error.
fn exit_with(status: u8, why: std::fmt::Arguments<'_>) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ebs-csi-node-agent: {why}");
    ExitCode::from(status)
}
