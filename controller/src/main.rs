//! The CSI Controller service; the only crate that links the AWS SDK.
fn main() {}
