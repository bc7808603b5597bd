//! One run of a tool: the job that the broker sends to the runner, and the report that the runner
//! sends back.
use ebs_csi_policy::tool::ToolId;
use ebs_csi_wire::format::UncheckedFormatOptions;
use ebs_csi_wire::{FormatOptions, FsType};

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
        Self {
            end: End::NotRun(error.raw_os_error().unwrap_or(0)),
            tail: error.to_string(),
        }
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
        Some(Self {
            end,
            tail: String::from_utf8_lossy(tail).into_owned(),
        })
    }
}

/// The inputs of a tool run: the tool's entry in the policy's table, and the values that the policy
/// leaves open. The runner builds the command line from the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// The program.
    pub(crate) tool: ToolId,
    /// The file system.
    pub(crate) fs: FsType,
    /// Identifier of the file system, when the tool makes one.
    pub(crate) uuid: [u8; 16],
    /// Options of the file system, when the tool makes one.
    pub(crate) format: FormatOptions,
    /// The creation time that the tool writes into a new file system, in seconds since 1970.
    pub(crate) time: u64,
    /// Longest run time, in seconds, where the policy would allow more.
    pub(crate) deadline: u64,
}

/// Length of an encoded job: tool, file system, identifier, seven numbers, one byte of switches.
const JOB: usize = 1 + 1 + 16 + 7 * 8 + 1;

impl Job {
    /// Encodes the job as one datagram.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let format = self.format.unchecked();
        let mut bytes = vec![self.tool.number(), self.fs.to_wire().to_le_bytes()[0]];
        bytes.extend_from_slice(&self.uuid);
        for number in [
            format.block_size,
            format.inode_size,
            format.bytes_per_inode,
            format.number_of_inodes,
            format.ext4_cluster_size,
            self.time,
            self.deadline,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.push(
            u8::from(format.ext4_bigalloc)
                | u8::from(format.ext4_encryption) << 1
                | u8::from(format.legacy_xfs) << 2,
        );
        bytes
    }

    /// Decodes a datagram; returns None when it is not a job. Checks every value again, because the
    /// runner does not trust the broker.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; JOB] = bytes.try_into().ok()?;
        let number = |index: usize| {
            let at = 18 + index * 8;
            bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok()
        };
        let switches = bytes[JOB - 1];
        if switches > 7 {
            return None;
        }
        let format = FormatOptions::check(UncheckedFormatOptions {
            block_size: number(0)?,
            inode_size: number(1)?,
            bytes_per_inode: number(2)?,
            number_of_inodes: number(3)?,
            ext4_cluster_size: number(4)?,
            ext4_bigalloc: switches & 1 != 0,
            ext4_encryption: switches & 2 != 0,
            legacy_xfs: switches & 4 != 0,
        })
        .ok()?;
        let fs = FsType::from_wire(i32::from(bytes[1])).ok()?;
        format.check_for(fs).ok()?;
        Some(Self {
            tool: ToolId::from_number(bytes[0])?,
            fs,
            uuid: bytes[2..18].try_into().ok()?,
            format,
            time: number(5)?,
            deadline: number(6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            tool: ToolId::Mke2fs,
            fs: FsType::Ext4,
            uuid: [7; 16],
            format: FormatOptions::check(UncheckedFormatOptions {
                block_size: 4096,
                number_of_inodes: 1000,
                ext4_bigalloc: true,
                ext4_cluster_size: 65_536,
                ..UncheckedFormatOptions::default()
            })
            .expect("format"),
            time: 1_700_000_000,
            deadline: 60,
        }
    }

    #[test]
    fn job_round_trips_through_encoding() {
        assert_eq!(Job::decode(&job().encode()), Some(job()));
    }

    #[test]
    fn job_with_invalid_value_does_not_decode() {
        let good = job().encode();
        for (at, value) in [(0, 200), (1, 9), (1, 0), (18, 3), (JOB - 1, 8)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Job::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Job::decode(&good[..JOB - 1]), None);
        assert_eq!(Job::decode(&[]), None);
    }

    #[test]
    fn report_round_trips_and_keeps_end_of_tail() {
        for end in [
            End::Exited(4),
            End::Signalled(9),
            End::Deadline,
            End::NotRun(13),
        ] {
            let report = Report {
                end,
                tail: "said".to_owned(),
            };
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        let long = Report {
            end: End::Exited(0),
            tail: format!("{}end", "x".repeat(5000)),
        };
        let back = Report::decode(&long.encode()).expect("a report");
        assert_eq!(back.tail.len(), TAIL);
        assert!(back.tail.ends_with("end"));
        assert_eq!(Report::decode(&[9, 0, 0, 0, 0]), None);
        assert_eq!(Report::decode(&[0, 0, 1, 0, 0]), None);
    }
}
