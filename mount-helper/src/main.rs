//! The privileged process: identifies, checks, formats and mounts EBS volumes, and nothing else.
fn main() -> std::process::ExitCode {
    ebs_csi_mount_helper::roles::start::run(std::env::args().skip(1))
}
