//! The unprivileged CSI Node service.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ebs_csi_confine::{Places, start};
use ebs_csi_node_agent::helper::Target;
use ebs_csi_node_agent::http_endpoint;
use ebs_csi_node_agent::pre_stop::{self, Wait};
use ebs_csi_node_agent::preflight;
use ebs_csi_node_agent::registration::{self, own_directories};
use ebs_csi_node_agent::service::{self, confinement};
use ebs_csi_node_agent::settings::flags::{CommandLine, Job, PreStop};
use ebs_csi_node_agent::settings::{self, Settings};
use ebs_csi_policy::profile;
use ebs_csi_proto::observe::{LogFlags, init_log};
use ebs_csi_proto::program::{self, Exit};

fn main() -> ExitCode {
    program::run("ebs-csi-node-agent", || {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let without_effect = settings::variables_without_effect(names);
        start::clean(profile::NODE_AGENT).map_err(Exit::not_confined)?;
        let line: CommandLine = program::parse(std::env::args_os().skip(1))?;
        if let Some(job) = line.job {
            return run_job(job);
        }
        let settings = Settings::check(line.serve, &|name| std::env::var(name).ok())?;
        init_log(settings.log);
        for variable in without_effect {
            tracing::info!(variable, "this variable has no effect");
        }
        service::run(settings)
    })
}

fn run_job(job: Job) -> Result<(), Exit> {
    match job {
        Job::PreStopHook(hook) => pre_stop_hook(hook),
        Job::Preflight(flags) => {
            let (report, runs) = preflight::report(&flags);
            program::print(&report)?;
            if runs { Ok(()) } else { Err(Exit::Status(1)) }
        }
        Job::GiveDirectories(given) => {
            init_log(LogFlags::default());
            own_directories::give(&given.socket_directory, &given.plugin_registration_path)
                .map_err(Exit::failed)
        }
        Job::Metrics => Err(Exit::Print(http_endpoint::example_page())),
        Job::EnterProfile => {
            confinement::enter(Places::new(), false).map(drop).map_err(Exit::not_confined)
        }
    }
}

fn pre_stop_hook(hook: PreStop) -> Result<(), Exit> {
    init_log(LogFlags::default());
    let helper = Target::read(&hook.helper, hook.helper_key_file.as_deref())?;
    if !pre_stop::is_draining(&hook.node_facts_file) {
        tracing::info!("the node is not being drained");
        return remove_registration_socket(&hook.plugin_registration_path);
    }
    let files = hook.node_facts_file.iter().map(PathBuf::as_path);
    confinement::places(None, None, files, helper.socket())
        .and_then(|places| confinement::enter(places, helper.is_vsock()))
        .map_err(|fault| Exit::new(fault.exit_status(), fault))?;
    program::block_on(async {
        let timeout = Duration::from_secs(hook.timeout);
        match pre_stop::wait(helper, &hook.node_facts_file, timeout).await {
            Wait::NotDraining => tracing::info!("the node is no longer being drained"),
            Wait::Clear => tracing::info!("no volume is staged"),
            Wait::Overdue(held) => {
                let held =
                    held.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
                return Err(Exit::failed(format_args!(
                    "{held} places of volumes were still mounted after {} s",
                    hook.timeout
                )));
            }
        }
        Ok(())
    })
}

/// Removes the registration socket before the agent ends. While a node is drained the socket stays,
/// so that kubelet continues to call this driver for unmounts.
fn remove_registration_socket(directory: &Path) -> Result<(), Exit> {
    program::block_on(async {
        match registration::withdraw(directory) {
            Ok(true) => tracing::info!("removed the registration socket"),
            Ok(false) => tracing::info!("no registration socket of this container"),
            Err(error) => tracing::warn!(%error, "the registration socket stays"),
        }
        Ok(())
    })
}
