//! Running the programs that work on a disk: what the broker, the supervisor and a runner say to
//! each other, and the control of the program itself.
pub(crate) mod process_control;
pub(crate) mod report;
pub(crate) mod runner_requests;
pub(crate) mod tool_places;

/// Message by which the broker asks for a runner, and by which the supervisor answers.
pub const RUNNER_WANTED: &[u8] = b"runner";
/// Largest number of runners at one time, whatever the broker asks for; a further request waits
/// until a runner ends. Each runner is a process, and the broker is not trusted to count them.
pub const RUNNERS: usize = 8;
/// Message that carries the disk to a runner.
pub(crate) const DISK_IS_HERE: &[u8] = b"disk";
