//! Reads what the kernel reports beneath `/proc` (proc(5)).

pub(crate) mod mount_table;
pub(crate) mod process_table;
