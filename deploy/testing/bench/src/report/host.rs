//! The measuring machine, without its name.

use ebs_csi_sandbox::pod_view::mounted_at;
use serde::{Deserialize, Serialize};

/// The facts about the machine that a reader needs to judge a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    /// The memory in GiB.
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// The file system that holds the loop devices' files.
    pub(crate) file_system: String,
    /// The load average of the minute before the run: above 0.5, other programs were busy too.
    pub(crate) load_before: String,
}

fn line(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let found = text.lines().find(|line| line.starts_with(name))?;
    Some(found.split_once(':')?.1.trim().to_owned())
}

impl Host {
    /// Returns whether other programs kept more than half of the processors busy: measurements of
    /// milliseconds then include waiting for them.
    pub(crate) fn was_busy(&self) -> bool {
        let load = self.load_before.parse::<f64>().unwrap_or(0.0);
        load > f64::from(u32::try_from(self.processors).unwrap_or(u32::MAX)) / 2.0
    }

    pub(crate) fn read() -> Self {
        let kib = line("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
            .unwrap_or(0);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.div_ceil(1 << 20),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: std::env::temp_dir()
                .ancestors()
                .find_map(|directory| Some(mounted_at(directory).ok()?.0))
                .unwrap_or_else(|| "unknown".to_owned()),
            load_before: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_above_half_of_processors_is_busy() {
        let mut host = Host::read();
        host.processors = 2;
        for (load, busy) in [("0.40", false), ("1.00", false), ("1.10", true), ("", false)] {
            load.clone_into(&mut host.load_before);
            assert_eq!(host.was_busy(), busy, "{load}");
        }
    }

    #[test]
    fn host_reports_processors_memory_and_kernel_without_hostname() {
        let host = Host::read();
        assert!(host.processors > 0 && host.memory_gib > 0, "{host:?}");
        assert!(host.kernel.contains('.'), "{host:?}");
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let text = serde_json::to_string(&host).unwrap();
        assert!(name.len() < 4 || !text.contains(&name), "the host's name is nobody's business");
    }
}
