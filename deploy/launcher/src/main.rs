//! The driver's entry point: runs a mode's processes, routes one socket in mode all.
fn main() {}
