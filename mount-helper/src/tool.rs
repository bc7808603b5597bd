//! Running the programs that work on a disk: what the broker, the supervisor and a runner say to
//! each other, and the places for tools.
//!
//! A tool may use memory in proportion to the size of its disk, so only a few run at a time.
//! Formats have places of their own: a check may sleep for minutes, as `e2fsck` does on a file
//! system with `mmp` that was not unmounted. An operation that needs a tool while no place is free
//! stops there and gives up its worker, and is started again when a place is free. An operation
//! that has a place keeps it until the operation ends, and never waits in between.
use crate::lock;
use ebs_csi_policy::tool::{Purpose, Tool, ToolId};
use ebs_csi_wire::Job;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// Message by which the broker asks for a runner, and by which the supervisor answers.
pub const RUNNER_WANTED: &[u8] = b"runner";
/// Largest number of runners at one time, whatever the broker asks for; a further request waits
/// until a runner ends. Each runner is a process, and the broker is not trusted to count them.
pub const RUNNERS: usize = 12;
/// Message that carries the disk to a runner.
pub const DISK_MESSAGE: &[u8] = b"disk";

/// Returns the tool of a job; None when the policy's table has none of this number.
pub(crate) fn of(job: &Job) -> Option<(ToolId, &'static Tool)> {
    let id = ToolId::from_number(job.tool)?;
    Some((id, id.tool()?))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Exited(u8),
    Signalled(i32),
    Deadline,
    /// It never ran. The value is the errno of what prevented it, 0 when there is none.
    NotRun(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) end: RunEnd,
    /// The end of the tool's output. For the journal only: it may repeat content of the disk.
    pub(crate) tail: String,
}

/// Length of the longest tail that is kept, in bytes.
pub(crate) const TAIL: usize = 1024;

impl Report {
    /// Reports a tool that could not be started.
    pub(crate) fn not_run(error: &std::io::Error) -> Self {
        Self { end: RunEnd::NotRun(error.raw_os_error().unwrap_or(0)), tail: error.to_string() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, code) = match self.end {
            RunEnd::Exited(code) => (0_u8, i32::from(code)),
            RunEnd::Signalled(signal) => (1, signal),
            RunEnd::Deadline => (2, 0),
            RunEnd::NotRun(errno) => (3, errno),
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
            0 => RunEnd::Exited(u8::try_from(code).ok()?),
            1 => RunEnd::Signalled(code),
            2 => RunEnd::Deadline,
            3 => RunEnd::NotRun(code),
            _ => return None,
        };
        Some(Self { end, tail: String::from_utf8_lossy(tail).into_owned() })
    }
}

/// Largest number of operations that have a place of one kind.
pub(crate) const PLACES: usize = 4;
/// Largest number of operations that have a tool at one time.
pub(crate) const TOOLS: usize = PLACES * PlaceKind::ALL.len();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// Those that make a file system.
    Format,
    /// Those that check or grow one.
    Check,
}

impl PlaceKind {
    pub(crate) const ALL: [Self; 2] = [Self::Format, Self::Check];

    pub(crate) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Format => Self::Format,
            Purpose::Check | Purpose::Grow => Self::Check,
        }
    }

    /// Returns the place of the kind in an array with one element for each kind.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The places. The table of operations shares them to pass them on, and the operations take them.
#[derive(Debug)]
pub(crate) struct ToolPlaces(Mutex<FreePlaces>);

#[derive(Debug)]
struct FreePlaces {
    free: [usize; PlaceKind::ALL.len()],
    /// The threads whose operation has a place: an operation runs on one thread from its beginning
    /// to its end.
    held_by: Vec<(ThreadId, PlaceKind)>,
}

impl FreePlaces {
    fn is_held(&self, kind: PlaceKind) -> bool {
        self.held_by.contains(&(thread::current().id(), kind))
    }

    /// Takes a free place for nobody in particular; returns whether there was one.
    fn take(&mut self, kind: PlaceKind) -> bool {
        let free = &mut self.free[kind.index()];
        let left = free.checked_sub(1);
        *free = left.unwrap_or(0);
        left.is_some()
    }
}

impl Default for ToolPlaces {
    fn default() -> Self {
        Self(Mutex::new(FreePlaces { free: [PLACES; PlaceKind::ALL.len()], held_by: Vec::new() }))
    }
}

impl ToolPlaces {
    /// Takes a place for the operation on this thread, until the operation ends; returns whether it
    /// has one.
    pub(crate) fn take(&self, kind: PlaceKind) -> bool {
        let mut places = self.lock();
        if places.is_held(kind) {
            return true;
        }
        let taken = places.take(kind);
        if taken {
            places.held_by.push((thread::current().id(), kind));
        }
        taken
    }

    /// Returns whether [`Self::take`] would succeed on this thread now.
    pub(crate) fn is_available(&self, kind: PlaceKind) -> bool {
        let places = self.lock();
        places.free[kind.index()] > 0 || places.is_held(kind)
    }

    /// Takes a place for an operation that is on no thread yet; returns whether there was one.
    pub(crate) fn reserve(&self, kind: PlaceKind) -> bool {
        self.lock().take(kind)
    }

    /// Gives a reserved place to the operation that begins on this thread.
    pub(crate) fn take_reserved(&self, kind: PlaceKind) {
        self.lock().held_by.push((thread::current().id(), kind));
    }

    /// Notes that the operation on this thread has ended. Returns the places that it had, which are
    /// reserved from then on.
    pub(crate) fn end_operation(&self) -> Vec<PlaceKind> {
        let mut places = self.lock();
        let this = thread::current().id();
        let ended = places.held_by.extract_if(.., |(thread, _)| *thread == this);
        ended.map(|(_, kind)| kind).collect()
    }

    /// Frees a reserved place that nobody needs.
    pub(crate) fn give_back(&self, kind: PlaceKind) {
        self.lock().free[kind.index()] += 1;
    }

    fn lock(&self) -> MutexGuard<'_, FreePlaces> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceKind::{Check, Format};
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
        for id in ToolId::ALL.iter().copied() {
            assert_eq!(of(&job(id.number())).map(|(id, _)| id), Some(id));
        }
        assert!(of(&job(200)).is_none());
    }

    #[test]
    fn report_round_trips_and_keeps_end_of_tail() {
        for end in [RunEnd::Exited(4), RunEnd::Signalled(9), RunEnd::Deadline, RunEnd::NotRun(13)] {
            let report = Report { end, tail: "said".to_owned() };
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        let long = Report { end: RunEnd::Exited(0), tail: format!("{}end", "x".repeat(5000)) };
        let back = Report::decode(&long.encode()).expect("a report");
        assert_eq!(back.tail.len(), TAIL);
        assert!(back.tail.ends_with("end"));
        assert_eq!(Report::decode(&[9, 0, 0, 0, 0]), None);
        assert_eq!(Report::decode(&[0, 0, 1, 0, 0]), None);
    }

    #[test]
    fn an_operation_keeps_its_place_until_it_ends() {
        let places = ToolPlaces::default();
        for _ in 1..PLACES {
            assert!(places.reserve(Check));
        }
        assert!(places.take(Check));
        assert!(!places.reserve(Check));
        assert!(places.take(Check) && places.is_available(Check));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                places.take(Check)
                    || places.is_available(Check)
                    || !places.end_operation().is_empty()
            });
            assert!(!other.join().expect("join"));
        });
        assert_eq!(places.end_operation(), [Check]);
        assert_eq!(places.end_operation(), []);
        // The place stays reserved for the next operation.
        assert!(!places.take(Check));
        places.take_reserved(Check);
        assert!(places.take(Check) && places.end_operation() == [Check]);
        places.give_back(Check);
        assert!(places.reserve(Check));
    }

    #[test]
    fn formats_have_places_when_checks_have_none() {
        let places = ToolPlaces::default();
        while places.reserve(Check) {}
        for _ in 1..PLACES {
            assert!(places.reserve(Format));
        }
        assert!(places.is_available(Format) && places.take(Format));
        assert!(!places.reserve(Format));
        assert_eq!(places.end_operation(), [Format]);
    }
}
