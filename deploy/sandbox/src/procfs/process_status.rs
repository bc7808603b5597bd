//! Fields of `/proc/PID/status` and `smaps_rollup` (proc_pid_status(5)).

use std::io;

/// Returns the text after `name:`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the proportional set size of a process, in KiB (proc(5), `smaps_rollup`).
///
/// # Errors
/// Returns an error when the process ends meanwhile.
pub fn pss_kib(pid: i32) -> io::Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(field(&rollup, "Pss").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0))
}
