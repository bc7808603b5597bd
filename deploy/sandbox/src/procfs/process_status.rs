//! Fields of `/proc/PID/status` and `smaps_rollup` (proc_pid_status(5)).

use std::io;

/// Returns the text after `name:`.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the numbers after `name:`.
pub(crate) fn numbers(status: &str, name: &str) -> Vec<u32> {
    field(status, name)
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Returns how many threads of `pid` are confined differently from its main thread, whose status is
/// `main`.
pub(crate) fn differently_confined_threads(pid: i32, main: &str) -> usize {
    let confinement = |status: &str| -> Vec<String> {
        ["Uid", "Gid", "CapEff", "CapPrm", "CapBnd", "Seccomp", "NoNewPrivs"]
            .iter()
            .map(|name| field(status, name).unwrap_or_default().to_owned())
            .collect()
    };
    let expected = confinement(main);
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter(|status| confinement(status) != expected)
        .count()
}

/// Returns the proportional set size of a process, in KiB (proc(5), `smaps_rollup`).
///
/// # Errors
/// Returns an error when the process ends meanwhile.
pub fn pss_kib(pid: i32) -> io::Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(field(&rollup, "Pss").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0))
}
