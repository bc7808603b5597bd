//! Running the programs that work on a disk: what the broker, the supervisor and a runner say to
//! each other.
pub(crate) mod report;
pub(crate) mod runner_requests;
pub(crate) mod tool_places;

use ebs_csi_policy::tool::{Tool, ToolId};
use ebs_csi_wire::Job;

/// Message by which the broker asks for a runner, and by which the supervisor answers.
pub const RUNNER_WANTED: &[u8] = b"runner";
/// Largest number of runners at one time, whatever the broker asks for; a further request waits
/// until a runner ends. Each runner is a process, and the broker is not trusted to count them.
pub const RUNNERS: usize = 12;
/// Message that carries the disk to a runner.
pub(crate) const DISK_MESSAGE: &[u8] = b"disk";

/// Returns the tool of a job; None when the policy's table has none of this number.
pub(crate) fn of(job: &Job) -> Option<(ToolId, &'static Tool)> {
    let id = ToolId::from_number(job.tool)?;
    Some((id, id.tool()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::FsType;

    #[test]
    fn job_with_unknown_tool_number_has_no_tool() {
        let job = |tool| Job {
            tool,
            fs: FsType::Ext4,
            uuid: [0; 16],
            format: Vec::new(),
            time: 0,
            deadline: 0,
        };
        for id in ToolId::ALL {
            assert_eq!(of(&job(id.number())).map(|(id, _)| id), Some(id));
        }
        assert!(of(&job(200)).is_none());
    }
}
