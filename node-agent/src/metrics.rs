//! Metrics of the process.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use ebs_csi_proto::metrics::{self, Sampled};
use ebs_csi_wire::HeldVolume;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;

/// Upper bounds of the latency histogram, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0, 120.0];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRpc {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMethod {
    method: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVolume {
    volume_id: String,
}

impl ByVolume {
    fn new(volume: &str) -> Self {
        Self { volume_id: volume.to_owned() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByType {
    instance_type: String,
}

/// A gauge that has no sample until it is set.
#[derive(Clone, Debug, Default)]
struct LateGauge(Arc<Mutex<Option<u32>>>);

impl LateGauge {
    fn set(&self, value: Option<u32>) {
        *lock(&self.0) = value;
    }
}

impl EncodeMetric for LateGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&lock(&self.0).unwrap_or_default())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        lock(&self.0).is_none()
    }
}

impl Sampled for LateGauge {
    fn create_sample(&self) {
        self.set(Some(0));
    }
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    all: metrics::Metrics,
    rpcs: Family<ByRpc, Counter>,
    rpc_seconds: Family<ByMethod, Histogram, fn() -> Histogram>,
    helper_requests: Family<ByRequest, Counter>,
    registered: LateGauge,
    hung: Family<ByVolume, Gauge>,
    damaged: Family<ByVolume, Gauge>,
    by_name: Family<ByVolume, Gauge>,
    limit_guessed: Family<ByType, Gauge>,
    unanswered: Counter,
    origin_unknown: Counter,
    beside_copy: Counter,
    landlock: LateGauge,
    wider: LateGauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(metrics::Metrics::default(), Vec::new())
    }
}

impl Metrics {
    /// Registers the metrics. `facts` about the process do not change: they are the labels of
    /// `ebs_csi_node_agent_info`.
    pub fn new(mut all: metrics::Metrics, facts: Vec<(&'static str, String)>) -> Self {
        all.registry().register("ebs_csi_node_agent", "What this process is", Info::new(facts));
        all.set_prefix("ebs_csi_node_agent_");
        Self {
            registered: all.register(
                "kubelet_registered",
                "Whether kubelet has registered the driver, with --kubelet-registration-path",
                LateGauge::default(),
            ),
            rpcs: all.register("rpcs", "CSI calls answered", Family::default()),
            rpc_seconds: all.register(
                "rpc_seconds",
                "Time to answer a CSI call",
                Family::new_with_constructor((|| Histogram::new(BOUNDS)) as fn() -> Histogram),
            ),
            hung: all.register(
                "filesystem_hung",
                "File systems that do not answer now",
                Family::default(),
            ),
            damaged: all.register(
                "filesystem_damaged",
                "File systems in which the kernel met errors, which it made read-only or shut down",
                Family::default(),
            ),
            by_name: all.register(
                "disk_by_name",
                "Volumes whose disks have no serial (Xen) and were taken by their device name",
                Family::default(),
            ),
            limit_guessed: all.register(
                "attach_limit_guessed",
                "Instance types whose attachment limit neither EC2 has said nor the table has; 27 slots are assumed",
                Family::default(),
            ),
            unanswered: all.register(
                "usage_unanswered",
                "Questions how full a file system is that it did not answer in time",
                Counter::default(),
            ),
            origin_unknown: all.register(
                "staged_origin_untold",
                "File systems mounted without a full check because the controller did not say where they were made",
                Counter::default(),
            ),
            beside_copy: all.register(
                "released_beside_copy",
                "Volumes released read-only while another mount namespace keeps their file system",
                Counter::default(),
            ),
            landlock: all.register(
                "helper_landlock",
                "Version of Landlock that binds the mount-helper's tools; 0: they run without",
                LateGauge::default(),
            ),
            wider: all.register(
                "helper_wider_settings",
                "Settings of the mount-helper that permit more than the policy; its log names them",
                LateGauge::default(),
            ),
            helper_requests: all.register(
                "helper_requests",
                "Questions to the mount-helper",
                Family::default(),
            ),
            all,
        }
    }

    /// Adds metrics that are collected when the page is read.
    pub fn register_collector(&mut self, collector: Box<dyn Collector>) {
        self.all.registry().register_collector(collector);
    }

    /// Counts an answered RPC. `code` is gRPC's name of the code.
    pub fn rpc_answered(&self, method: &'static str, code: &'static str, took: Duration) {
        self.rpcs.get_or_create(&ByRpc { method, code }).inc();
        self.rpc_seconds.get_or_create(&ByMethod { method }).observe(took.as_secs_f64());
    }

    /// Counts an answer of the helper.
    pub fn helper_answered(&self, operation: &'static str, outcome: &'static str) {
        self.helper_requests.get_or_create(&ByRequest { operation, outcome }).inc();
    }

    /// Sets whether kubelet has registered the driver.
    pub fn kubelet_registered(&self, registered: bool) {
        self.registered.set(Some(registered.into()));
    }

    /// Counts a volume's file system that did not report its usage in time.
    pub fn filesystem_hangs(&self, volume: &str) {
        self.unanswered.inc();
        mark(&self.hung, ByVolume::new(volume));
    }

    /// Records that a volume's file system answers again, or is gone.
    pub fn filesystem_answers(&self, volume: &str) {
        self.hung.remove(&ByVolume::new(volume));
    }

    /// Records whether the kernel has found errors in a volume's file system. Returns whether the
    /// state changed.
    pub fn filesystem_damaged(&self, volume: &str, damaged: bool) -> bool {
        match damaged {
            true => mark(&self.damaged, ByVolume::new(volume)),
            false => self.damaged.remove(&ByVolume::new(volume)),
        }
    }

    /// Records, from the helper's present inventory, the volumes whose disks have no serial and
    /// were identified by their device name.
    pub fn disks_by_name(&self, held: &[HeldVolume]) {
        self.by_name.clear();
        for entry in held.iter().filter(|entry| entry.by_name) {
            mark(&self.by_name, ByVolume::new(entry.volume.as_str()));
        }
    }

    /// Records an instance type whose attachment limit is not known. Returns whether the type is
    /// new.
    pub fn attach_limit_guessed(&self, instance_type: &str) -> bool {
        mark(&self.limit_guessed, ByType { instance_type: instance_type.to_owned() })
    }

    /// Records that the attachment limit is known.
    pub fn attach_limit_known(&self) {
        self.limit_guessed.clear();
    }

    /// Counts a file system that was mounted unchecked because the controller did not send its
    /// origin.
    pub fn staged_with_unknown_origin(&self) {
        self.origin_unknown.inc();
    }

    /// Counts a volume that was released while another mount namespace keeps its file system in
    /// use.
    pub fn released_beside_copy(&self) {
        self.beside_copy.inc();
    }

    /// Sets the version of Landlock that binds the mount-helper's tools, 0 for none, and the number
    /// of its settings that permit more than the policy.
    pub fn helper_answers(&self, landlock: Option<u32>, wider: usize) {
        self.landlock.set(landlock);
        self.wider.set(Some(u32::try_from(wider).unwrap_or(u32::MAX)));
    }

    /// Returns the page, as OpenMetrics.
    pub fn page(&self) -> String {
        self.all.page()
    }
}

/// Marks a thing. Returns whether it was not marked before.
fn mark<S>(marks: &Family<S, Gauge>, thing: S) -> bool
where
    S: Clone + Eq + std::hash::Hash,
{
    marks.get_or_create(&thing).set(1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_page_reports_recorded_events() {
        let metrics =
            Metrics::new(metrics::Metrics::default(), vec![("version", "1\"2\\3\n".to_owned())]);
        metrics.rpc_answered("NodeStageVolume", "OK", Duration::from_millis(4));
        metrics.rpc_answered("NodeStageVolume", "OK", Duration::from_secs(200));
        metrics.helper_answered("stage", "ok");
        assert!(!metrics.page().contains("kubelet_registered"));
        metrics.kubelet_registered(true);
        metrics.staged_with_unknown_origin();
        metrics.released_beside_copy();
        assert!(!metrics.page().contains("landlock"));
        metrics.helper_answers(Some(0), 0);
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
            "ebs_csi_node_agent_helper_wider_settings 0",
            r#"ebs_csi_node_agent_rpcs_total{method="NodeStageVolume",code="OK"} 2"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{le="0.001",method="NodeStageVolume"} 0"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{le="0.005",method="NodeStageVolume"} 1"#,
            r#"ebs_csi_node_agent_rpc_seconds_bucket{le="+Inf",method="NodeStageVolume"} 2"#,
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
