//! The unprivileged CSI Node service.
fn main() {}
