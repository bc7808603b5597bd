//! The unprivileged CSI Node service.

use std::process::ExitCode;

use ebs_csi_confine::{Places, start};
use ebs_csi_node_agent::registration::own_directories;
use ebs_csi_node_agent::service::{self, confinement};
use ebs_csi_node_agent::settings::flags::{CommandLine, Job};
use ebs_csi_node_agent::settings::{self, Settings};
use ebs_csi_node_agent::{http_endpoint, pre_stop, preflight};
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
        Job::PreStopHook(hook) => pre_stop::run(&hook),
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
