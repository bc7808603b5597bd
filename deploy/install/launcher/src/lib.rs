//! The driver's entry point: `aws-ebs-csi-driver MODE flags` runs the processes of a mode and, in
//! mode `all`, serves their services on one socket.

pub mod children;
pub mod command_line;
pub mod flags;
pub mod mode;
pub mod route;
pub mod router;
pub mod runtime_directory;
pub mod supervise;
