//! One job: receive it, run its tool, report, end. Forked from the confined supervisor, with nothing to gain.
use crate::channel;
use crate::fault_point;
use crate::job::{Job, Report};
use crate::tools;
use ebs_csi_confine::tool::Filters;
use rustix::fd::OwnedFd;

/// Serve one job on `socket`, where its disk comes behind it; the exit status of this process.
pub fn serve(socket: &OwnedFd, filters: &Filters, allow_missing_landlock: bool) -> u8 {
    let Ok((request, descriptors)) = channel::receive(socket) else {
        return 1;
    };
    fault_point::reached("runner-started");
    let report = match Job::decode(&request) {
        Some(job) if descriptors.is_empty() => {
            tools::run(&job, socket, filters, allow_missing_landlock)
                .unwrap_or_else(|e| Report::not_run(&e))
        }
        _ => Report::not_run(&std::io::ErrorKind::InvalidInput.into()),
    };
    fault_point::reached("runner-finished");
    match channel::send(socket, &report.encode(), &[]) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
