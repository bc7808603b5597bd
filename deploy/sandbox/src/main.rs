//! One command: simulator, the processes and a small container orchestrator, on loop devices.
fn main() {}
