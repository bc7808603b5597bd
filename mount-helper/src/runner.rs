//! One job: receive it, run its tool, report, end. Forked from the confined supervisor, with nothing to gain.
use crate::channel;
use crate::fault_point;
use crate::job::{Job, Report};
use crate::tools;
use ebs_csi_confine::tool::Filters;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::time::Duration;

/// A runner that has no job by then was asked for in vain: it takes the place of another. A broker
/// that looks at a disk gives it one between the first two reads.
const JOB_COMES_WITHIN: Duration = Duration::from_secs(30);

/// Serve one job on `socket`, where its disk comes behind it; the exit status of this process.
pub fn serve(socket: &OwnedFd, filters: &Filters, allow_missing_landlock: bool) -> u8 {
    let Ok((request, descriptors)) = job(socket, JOB_COMES_WITHIN) else {
        return 1;
    };
    fault_point::reached("runner-started");
    let report = match Job::decode(&request) {
        Some(job) if descriptors.is_empty() => {
            tools::run(&job, socket, filters, allow_missing_landlock)
                .unwrap_or_else(|e| Report::not_run(&e))
        }
        _ => Report::not_run(&io::ErrorKind::InvalidInput.into()),
    };
    fault_point::reached("runner-finished");
    match channel::send(socket, &report.encode(), &[]) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// The first word of the broker, unless it takes longer than `patience`.
fn job(socket: &OwnedFd, patience: Duration) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => channel::receive(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_waited_for_and_not_for_ever() {
        let (broker, runner) = channel::pair().expect("pair");
        let none = job(&runner, Duration::from_millis(1)).expect_err("none came");
        assert_eq!(none.kind(), io::ErrorKind::TimedOut);
        channel::send(&broker, b"job", &[]).expect("send");
        assert_eq!(job(&runner, JOB_COMES_WITHIN).expect("a job").0, b"job");
        drop(broker);
        assert!(job(&runner, JOB_COMES_WITHIN).expect("end").0.is_empty());
    }
}
