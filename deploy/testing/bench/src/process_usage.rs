//! Processor time and memory of live processes (proc(5)).

use std::io;

use ebs_csi_sandbox::audit::rollup_kib;

/// Clock ticks per second in `/proc/PID/stat`: USER_HZ, 100 on every current Linux (time(7)).
const TICKS: f64 = 100.0;

/// Returns the seconds of processor time that `pid` and its threads have used, in user and system
/// mode.
pub(crate) fn cpu_seconds(pid: i32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain spaces and parentheses.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_ascii_whitespace().collect())
        .unwrap_or_default();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => Err(io::Error::other(format!("/proc/{pid}/stat is cut short"))),
    }
}

/// Returns the sum of the proportional set sizes of `pids`, in MiB. A process that has ended counts
/// zero.
pub(crate) fn memory_mib(pids: &[i32]) -> f64 {
    let kib: u64 = pids.iter().filter_map(|pid| rollup_kib(*pid, "Pss").ok()).sum();
    kib_to_mib(kib)
}

#[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^53")]
fn kib_to_mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Returns the peak resident set size of `pid`, in MiB.
pub(crate) fn peak_mib(pid: i32) -> io::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.map(kib_to_mib).ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no VmHWM")))
}

/// The kinds of memory in `smaps_rollup` that are told apart.
pub(crate) const MEMORY_KINDS: [&str; 2] = ["anonymous", "pages of files"];

pub(crate) fn memory_kinds(pid: i32) -> io::Result<[f64; 2]> {
    let mib = |field| rollup_kib(pid, field).map(kib_to_mib);
    // Pages of programs on a tmpfs count as shared memory.
    Ok([mib("Pss_Anon")?, mib("Pss_File")? + mib("Pss_Shmem")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_cpu_and_memory_are_measured_by_pid() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = cpu_seconds(own).unwrap();
        let mut sum = 0_u64;
        while cpu_seconds(own).unwrap() - before < 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let whole = memory_mib(&[own]);
        let parts: f64 = memory_kinds(own).unwrap().iter().sum();
        assert!(whole > 0.1 && (whole - parts).abs() < whole, "{whole} {parts}");
        assert!(peak_mib(own).unwrap() > 0.1);
        assert_eq!(memory_mib(&[-1]), 0.0);
        assert!(cpu_seconds(-1).is_err());
    }
}
