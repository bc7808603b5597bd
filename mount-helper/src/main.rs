//! The privileged process: identifies, checks, formats and mounts EBS volumes, and nothing else.
fn main() {}
