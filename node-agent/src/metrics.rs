//! Counters of the process, written in Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ebs_csi_wire::HeldVolume;

/// Upper bounds of the latency histogram, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0, 120.0];

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    calls: BTreeMap<(&'static str, &'static str), u64>,
    latencies: BTreeMap<&'static str, Latency>,
    helper: BTreeMap<(&'static str, &'static str), u64>,
    facts: Vec<(&'static str, String)>,
    registered: Option<bool>,
    hung: BTreeSet<String>,
    damaged: BTreeSet<String>,
    by_name: BTreeSet<String>,
    limit_guessed: BTreeSet<String>,
    unanswered: u64,
    origin_unknown: u64,
    beside_copy: u64,
    landlock: Option<u32>,
}

#[derive(Debug, Default)]
struct Latency {
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Metrics {
    /// Counts an answered RPC. `code` is gRPC's name of the code.
    pub fn rpc_answered(&self, method: &'static str, code: &'static str, took: Duration) {
        let mut counted = self.counted();
        *counted.calls.entry((method, code)).or_default() += 1;
        let latency = counted.latencies.entry(method).or_default();
        let seconds = took.as_secs_f64();
        for (bound, within) in BOUNDS.iter().zip(&mut latency.within) {
            if seconds <= *bound {
                *within += 1;
            }
        }
        latency.count += 1;
        latency.seconds += seconds;
    }

    /// Counts an answer of the helper.
    pub fn helper_answered(&self, operation: &'static str, outcome: &'static str) {
        *self.counted().helper.entry((operation, outcome)).or_default() += 1;
    }

    /// Sets whether kubelet has registered the driver.
    pub fn kubelet_registered(&self, registered: bool) {
        self.counted().registered = Some(registered);
    }

    /// Counts a volume's file system that did not report its usage in time.
    pub fn filesystem_hangs(&self, volume: &str) {
        let mut counted = self.counted();
        counted.unanswered += 1;
        counted.hung.insert(volume.to_owned());
    }

    /// Records that a volume's file system answers again, or is gone.
    pub fn filesystem_answers(&self, volume: &str) {
        self.counted().hung.remove(volume);
    }

    /// Records whether the kernel has found errors in a volume's file system. Returns whether the
    /// state changed.
    pub fn filesystem_damaged(&self, volume: &str, damaged: bool) -> bool {
        let known = &mut self.counted().damaged;
        if damaged { known.insert(volume.to_owned()) } else { known.remove(volume) }
    }

    /// Records, from the helper's present inventory, the volumes whose disks have no serial and
    /// were identified by their device name.
    pub fn disks_by_name(&self, held: &[HeldVolume]) {
        let by_name = held.iter().filter(|entry| entry.by_name);
        self.counted().by_name = by_name.map(|entry| entry.volume.to_string()).collect();
    }

    /// Records an instance type whose attachment limit the table lacks. Returns whether the type is
    /// new.
    pub fn attach_limit_guessed(&self, instance_type: &str) -> bool {
        self.counted().limit_guessed.insert(instance_type.to_owned())
    }

    /// Counts a file system that was mounted unchecked because the controller did not send its
    /// origin.
    pub fn staged_with_unknown_origin(&self) {
        self.counted().origin_unknown += 1;
    }

    /// Counts a volume that was released while another mount namespace keeps its file system in
    /// use.
    pub fn released_beside_copy(&self) {
        self.counted().beside_copy += 1;
    }

    /// Sets the version of Landlock that binds the mount-helper's tools; 0 for none.
    pub fn helper_landlock(&self, version: Option<u32>) {
        self.counted().landlock = version;
    }

    /// Adds a fact about the process that does not change: a label of `ebs_csi_node_agent_info`.
    pub fn info(&self, label: &'static str, value: impl Into<String>) {
        self.counted().facts.push((label, value.into()));
    }

    /// Returns the page.
    #[must_use]
    pub fn page(&self) -> String {
        let counted = self.counted();
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = counted.write(&mut page);
        page
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        let head = |page: &mut String, name: &str, kind: &str, help: &str| {
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}")
        };
        let name = "ebs_csi_node_agent_info";
        head(page, name, "gauge", "What this process is.")?;
        let label = |(label, value): &(&str, String)| format!("{label}=\"{}\"", escaped(value));
        let labels: Vec<String> = self.facts.iter().map(label).collect();
        writeln!(page, "{name}{{{}}} 1", labels.join(","))?;

        // Absent where a separate registrar registers the driver.
        if let Some(registered) = self.registered {
            let name = "ebs_csi_node_agent_kubelet_registered";
            let help =
                "Whether kubelet has registered the driver, with --kubelet-registration-path.";
            head(page, name, "gauge", help)?;
            writeln!(page, "{name} {}", u8::from(registered))?;
        }

        let name = "ebs_csi_node_agent_rpcs_total";
        head(page, name, "counter", "CSI calls answered.")?;
        for ((method, code), count) in &self.calls {
            writeln!(page, "{name}{{method=\"{method}\",code=\"{code}\"}} {count}")?;
        }

        let name = "ebs_csi_node_agent_rpc_seconds";
        head(page, name, "histogram", "Time to answer a CSI call.")?;
        for (method, latency) in &self.latencies {
            for (bound, within) in BOUNDS.iter().zip(latency.within) {
                writeln!(page, "{name}_bucket{{method=\"{method}\",le=\"{bound}\"}} {within}")?;
            }
            let (count, seconds) = (latency.count, latency.seconds);
            writeln!(page, "{name}_bucket{{method=\"{method}\",le=\"+Inf\"}} {count}")?;
            writeln!(page, "{name}_sum{{method=\"{method}\"}} {seconds}")?;
            writeln!(page, "{name}_count{{method=\"{method}\"}} {count}")?;
        }

        for (name, help, volumes) in [
            (
                "ebs_csi_node_agent_filesystem_hung",
                "File systems that do not answer now.",
                &self.hung,
            ),
            (
                "ebs_csi_node_agent_filesystem_damaged",
                "File systems in which the kernel met errors, which it made read-only or shut down.",
                &self.damaged,
            ),
            (
                "ebs_csi_node_agent_disk_by_name",
                "Volumes whose disks have no serial (Xen) and were taken by their device name.",
                &self.by_name,
            ),
        ] {
            head(page, name, "gauge", help)?;
            for volume in volumes {
                writeln!(page, "{name}{{volume_id=\"{}\"}} 1", escaped(volume))?;
            }
        }
        let name = "ebs_csi_node_agent_attach_limit_guessed";
        let help =
            "Instance types that the table of attachment limits lacks; 27 slots are assumed.";
        head(page, name, "gauge", help)?;
        for instance_type in &self.limit_guessed {
            writeln!(page, "{name}{{instance_type=\"{}\"}} 1", escaped(instance_type))?;
        }
        for (name, help, value) in [
            (
                "ebs_csi_node_agent_usage_unanswered_total",
                "Questions how full a file system is that it did not answer in time.",
                self.unanswered,
            ),
            (
                "ebs_csi_node_agent_staged_origin_untold_total",
                "File systems mounted without a full check because the controller did not say where they were made.",
                self.origin_unknown,
            ),
            (
                "ebs_csi_node_agent_released_beside_copy_total",
                "Volumes released read-only while another mount namespace keeps their file system.",
                self.beside_copy,
            ),
        ] {
            head(page, name, "counter", help)?;
            writeln!(page, "{name} {value}")?;
        }

        // Absent until a helper has reported it.
        if let Some(version) = self.landlock {
            let name = "ebs_csi_node_agent_helper_landlock";
            let help =
                "Version of Landlock that binds the mount-helper's tools; 0: they run without.";
            head(page, name, "gauge", help)?;
            writeln!(page, "{name} {version}")?;
        }

        let name = "ebs_csi_node_agent_helper_requests_total";
        head(page, name, "counter", "Questions to the mount-helper.")?;
        for ((operation, outcome), count) in &self.helper {
            writeln!(page, "{name}{{operation=\"{operation}\",outcome=\"{outcome}\"}} {count}")?;
        }
        Ok(())
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_page_reports_recorded_events() {
        let metrics = Metrics::default();
        metrics.info("version", "1\"2\\3\n");
        metrics.rpc_answered("NodeStageVolume", "OK", Duration::from_millis(4));
        metrics.rpc_answered("NodeStageVolume", "OK", Duration::from_secs(200));
        metrics.helper_answered("stage", "ok");
        assert!(!metrics.page().contains("kubelet_registered"));
        metrics.kubelet_registered(true);
        metrics.staged_with_unknown_origin();
        metrics.released_beside_copy();
        assert!(!metrics.page().contains("landlock"));
        metrics.helper_landlock(Some(0));
        metrics.filesystem_hangs("vol-1");
        metrics.filesystem_hangs("vol-2");
        metrics.filesystem_answers("vol-2");
        assert!(metrics.filesystem_damaged("vol-3", true));
        assert!(!metrics.filesystem_damaged("vol-3", true));
        assert!(metrics.filesystem_damaged("vol-4", true));
        assert!(metrics.filesystem_damaged("vol-4", false));
        let page = metrics.page();
        for line in [
            r#"ebs_csi_node_agent_info{version="1\"2\\3\n"} 1"#,
            "ebs_csi_node_agent_kubelet_registered 1",
            r#"ebs_csi_node_agent_filesystem_hung{volume_id="vol-1"} 1"#,
            r#"ebs_csi_node_agent_filesystem_damaged{volume_id="vol-3"} 1"#,
            "ebs_csi_node_agent_usage_unanswered_total 2",
            "ebs_csi_node_agent_staged_origin_untold_total 1",
            "ebs_csi_node_agent_released_beside_copy_total 1",
            "ebs_csi_node_agent_helper_landlock 0",
            r#"ebs_csi_node_agent_rpcs_total{method="NodeStageVolume",code="OK"} 2"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{method="NodeStageVolume",le="0.001"} 0"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{method="NodeStageVolume",le="0.005"} 1"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{method="NodeStageVolume",le="+Inf"} 2"#,
            r#"ebs_csi_node_agent_rpc_seconds_count{method="NodeStageVolume"} 2"#,
            r#"ebs_csi_node_agent_helper_requests_total{operation="stage",outcome="ok"} 1"#,
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\n{page}");
        }
        for line in page.lines() {
            assert!(line.starts_with('#') || line.rsplit_once(' ').is_some());
        }
    }
}
