//! One job: receives it, runs its tool, reports, and ends. Forked from the confined supervisor,
//! with nothing to gain.
use crate::channel;
use crate::fault_point;
use crate::job::{Job, Report};
use crate::tools;
use ebs_csi_confine::tool::Filters;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::time::Duration;

/// Longest wait for a job. A runner that has none by then was started in vain and occupies the
/// place of another. A broker that reads a disk sends the job between the first two reads.
const JOB_COMES_WITHIN: Duration = Duration::from_secs(30);

/// Serves one job on `socket`, on which the disk follows the job; returns the exit status of this
/// process.
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

/// Receives the first message of the broker; fails when it takes longer than `patience`.
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
