//! A memory cgroup like those that a container runtime makes for containers: version 2, or version
//! 1 where the machine uses that.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct MemoryLimit {
    directory: PathBuf,
    outside: PathBuf,
}

/// The membership of this process in the cgroup, until dropped. Children that the process starts
/// meanwhile stay in the cgroup.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    limit: &'a MemoryLimit,
}

fn in_file(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)
        .map_err(|e| io::Error::new(e.kind(), format!("writing {text} to {}: {e}", path.display())))
}

impl MemoryLimit {
    /// Makes a new cgroup beneath this process's own, with a limit of `bytes`.
    pub(crate) fn make(bytes: u64) -> io::Result<Self> {
        let name = format!("ebs-csi-bench-{}", std::process::id());
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        let (outside, file) = if let Some(path) = path_of(&own, "memory") {
            (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes")
        } else {
            let path = path_of(&own, "")
                .ok_or_else(|| io::Error::other("/proc/self/cgroup names no memory controller"))?;
            // Version 2 allows processes only in leaf cgroups.
            let parent = Path::new("/sys/fs/cgroup").join(path);
            in_file(&parent.join("cgroup.subtree_control"), "+memory")?;
            (parent, "memory.max")
        };
        let directory = outside.join(name);
        std::fs::create_dir(&directory).map_err(|e| {
            io::Error::new(e.kind(), format!("making {}: {e}", directory.display()))
        })?;
        let limit = Self { directory, outside };
        in_file(&limit.directory.join(file), &bytes.to_string())?;
        Ok(limit)
    }

    pub(crate) fn enter(&self) -> io::Result<Inside<'_>> {
        let own = std::process::id().to_string();
        in_file(&self.directory.join("cgroup.procs"), &own)?;
        Ok(Inside { limit: self })
    }

    fn number(&self, files: &[&str], key: &str) -> Option<f64> {
        files.iter().find_map(|file| {
            let text = std::fs::read_to_string(self.directory.join(file)).ok()?;
            if key.is_empty() {
                return text.trim().parse().ok();
            }
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        })
    }

    /// Returns how many processes in the cgroup the kernel's OOM killer has killed.
    pub(crate) fn kills(&self) -> f64 {
        self.number(&["memory.oom_control", "memory.events"], "oom_kill ").unwrap_or(0.0)
    }

    /// Returns the greatest amount of memory that was charged so far, in MiB.
    pub(crate) fn most_mib(&self) -> f64 {
        self.number(&["memory.max_usage_in_bytes", "memory.peak"], "").unwrap_or(0.0)
            / f64::from(1 << 20)
    }
}

/// Returns the path behind `:controller:` in `/proc/PID/cgroup` (cgroups(7)), made relative.
fn path_of<'t>(table: &'t str, controller: &str) -> Option<&'t str> {
    table.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let names = parts.next()?;
        names
            .split(',')
            .any(|name| name == controller)
            .then(|| parts.next().map(|path| path.trim_start_matches('/')))?
    })
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let own = std::process::id().to_string();
        let _ = in_file(&self.limit.outside.join("cgroup.procs"), &own);
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The remaining processes move back first, because a cgroup with members cannot be removed.
        let inside = std::fs::read_to_string(self.directory.join("cgroup.procs"));
        for pid in inside.unwrap_or_default().lines() {
            let _ = in_file(&self.outside.join("cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_path_is_parsed_for_v1_and_v2() {
        let first = "4:memory:/pods/a\n3:cpu,cpuacct:/\n0::/unified\n";
        assert_eq!(path_of(first, "memory"), Some("pods/a"));
        assert_eq!(path_of(first, "cpuacct"), Some(""));
        assert_eq!(path_of("0::/system.slice\n", "memory"), None);
        assert_eq!(path_of("0::/system.slice\n", ""), Some("system.slice"));
    }

    #[test]
    fn memory_limit_cgroup_is_removed_on_drop() {
        let limit = match MemoryLimit::make(64 << 20) {
            Ok(limit) => limit,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        let directory = limit.directory.clone();
        assert!(directory.exists() && limit.kills() == 0.0);
        drop(limit);
        assert!(!directory.exists());
    }
}
