//! Running the programs that work on a disk: what the broker, the supervisor and a runner say to
//! each other.
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

/// How a tool ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this status.
    Exited(u8),
    /// It was ended by this signal.
    Signalled(i32),
    /// It was killed because its time was over.
    Deadline,
    /// It never ran. The value is the errno of what prevented it, 0 when there is none.
    NotRun(i32),
}

/// The result of a tool run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// How it ended.
    pub(crate) end: End,
    /// The end of the tool's output. For the journal only: it may repeat content of the disk.
    pub(crate) tail: String,
}

/// Length of the longest tail that is kept, in bytes.
pub(crate) const TAIL: usize = 1024;

impl Report {
    /// Reports a tool that could not be started.
    pub(crate) fn not_run(error: &std::io::Error) -> Self {
        Self { end: End::NotRun(error.raw_os_error().unwrap_or(0)), tail: error.to_string() }
    }

    /// Encodes the report as one datagram.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, code) = match self.end {
            End::Exited(code) => (0_u8, i32::from(code)),
            End::Signalled(signal) => (1, signal),
            End::Deadline => (2, 0),
            End::NotRun(errno) => (3, errno),
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&code.to_le_bytes());
        let tail = self.tail.as_bytes();
        bytes.extend_from_slice(&tail[tail.len().saturating_sub(TAIL)..]);
        bytes
    }

    /// Decodes a datagram; returns None when it is not a report.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (code, tail) = rest.split_at_checked(4)?;
        let code = i32::from_le_bytes(code.try_into().ok()?);
        let end = match kind {
            0 => End::Exited(u8::try_from(code).ok()?),
            1 => End::Signalled(code),
            2 => End::Deadline,
            3 => End::NotRun(code),
            _ => return None,
        };
        Some(Self { end, tail: String::from_utf8_lossy(tail).into_owned() })
    }
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

    #[test]
    fn report_round_trips_and_keeps_end_of_tail() {
        for end in [End::Exited(4), End::Signalled(9), End::Deadline, End::NotRun(13)] {
            let report = Report { end, tail: "said".to_owned() };
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        let long = Report { end: End::Exited(0), tail: format!("{}end", "x".repeat(5000)) };
        let back = Report::decode(&long.encode()).expect("a report");
        assert_eq!(back.tail.len(), TAIL);
        assert!(back.tail.ends_with("end"));
        assert_eq!(Report::decode(&[9, 0, 0, 0, 0]), None);
        assert_eq!(Report::decode(&[0, 0, 1, 0, 0]), None);
    }
}
