//! The metrics of the process.

use ebs_csi_proto::metrics;
use ebs_csi_safe_detach::Refusal;
use ebs_csi_safe_detach::lifecycle::NodePhase;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::cluster::RefusedDetach;

pub(crate) mod unidentified_nodes;

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    all: metrics::Metrics,
    pub(crate) startup_tainted: Gauge,
    pub(crate) startup_taints: Family<ResultLabel, Counter>,
    pub(crate) pods_annotated: Family<ResultLabel, Counter>,
    pub(crate) pods_behind: Gauge,
    pub(crate) leads: Gauge,
    nodes: Family<PhaseLabel, Gauge>,
    held: Family<ReasonLabel, Gauge>,
    left_alone: Family<ReasonLabel, Gauge>,
    acts: Family<ActLabels, Counter>,
    pub(crate) queries: Family<ResultLabel, Counter>,
    pub(crate) node_answers: Family<ResultLabel, Counter>,
    pub(crate) connected: Gauge,
    pub(crate) unidentified: Gauge,
    refused: Family<ReasonLabel, Gauge>,
    refused_oldest: Gauge,
    taints: Gauge,
    taint_oldest: Gauge,
    pub(crate) to_proof: Histogram,
    pub(crate) to_recovery: Histogram,
    pub(crate) fences: Histogram,
}

/// Bounds in seconds: the targets are 5 s from the evidence and 120 s to the end.
const SECONDS: [f64; 11] = [1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

impl Default for Metrics {
    fn default() -> Self {
        Self::new(metrics::Metrics::default())
    }
}

impl Metrics {
    /// Returns a page on which each metric has a sample.
    pub fn example_page() -> String {
        Self::new(metrics::Metrics::new(true)).page()
    }

    fn new(mut all: metrics::Metrics) -> Self {
        all.set_prefix("aws_ebs_csi_");
        let metrics = Self {
            startup_tainted: all.register("onboarding_nodes_waiting", "Nodes that have the startup taint; of the leader", Gauge::default()),
            startup_taints: all.register("onboarding_taints_removed", "Removals of the startup taint, by result", Family::default()),
            pods_annotated: all.register("onboarding_pods_annotated", "Patches that write node facts and drains to the node-agents' pods, by result", Family::default()),
            pods_behind: all.register("onboarding_pods_behind", "Pods of node-agents that have lacked a fact or a change of a drain for 30 s; of the leader", Gauge::default()),
            leads: all.register("safe_detach_failover_leader", "1 while this replica may act", Gauge::default()),
            nodes: all.register("safe_detach_failover_nodes", "Nodes that are not healthy, by phase; of the leader", Family::default()),
            held: all.register("safe_detach_failover_held", "Nodes that could be acted on and are not, by reason; of the leader", Family::default()),
            left_alone: all.register("safe_detach_failover_left_alone", "Nodes whose instance runs, may be fenced and is not, by what EC2's status checks say, with --fence; of the leader", Family::default()),
            acts: all.register("safe_detach_failover_acts", "Acts in Kubernetes, by act and result", Family::default()),
            queries: all.register("safe_detach_failover_questions", "Questions to the controller about suspect nodes, by result", Family::default()),
            node_answers: all.register("safe_detach_node_answers", "The controller's questions for nodes' answers, by result", Family::default()),
            connected: all.register("safe_detach_controller_connected", "1 while the controller in this replica's pod asks for nodes' answers; 0 with safe detach off", Gauge::default()),
            unidentified: all.register("safe_detach_nodes_unidentified", "Nodes with neither a providerID nor an entry of this driver in their CSINode", Gauge::default()),
            refused: all.register("safe_detach_refused_volumes", "VolumeAttachments whose detach is requested and refused, by reason; of the leader", Family::default()),
            refused_oldest: all.register("safe_detach_refused_oldest_seconds", "Time since the oldest of these detaches was requested, by the API server's clock; of the leader", Gauge::default()),
            taints: all.register("safe_detach_failover_taints", "Nodes that have the driver's out-of-service taint; of the leader", Gauge::default()),
            taint_oldest: all.register("safe_detach_failover_taint_oldest_seconds", "Age of the oldest of these taints; of the leader", Gauge::default()),
            to_proof: all.register("safe_detach_time_to_proof_seconds", "From the first round that found a node lost to the proof that it, or a volume of it, may be acted on", Histogram::new(SECONDS)),
            to_recovery: all.register("safe_detach_time_to_recover_seconds", "From the first round that found a node lost to the end of its last attachment, of nodes that were proved", Histogram::new(SECONDS)),
            fences: all.register("safe_detach_fence_seconds", "From the request to power an instance off until EC2 showed it off, with --fence", Histogram::new(SECONDS)),
            all,
        };
        metrics.clear_failover();
        metrics.set_refused(&[], Timestamp::UNIX_EPOCH);
        // A missing series cannot be distinguished from one that does not grow.
        let patched = ["done", "overtaken", "failed"];
        for (act, result) in ACTS.iter().flat_map(|act| patched.map(|result| (*act, result))) {
            let _ = metrics.acts.get_or_create(&ActLabels { act, result });
        }
        let others: [(&Family<ResultLabel, Counter>, &[&'static str]); 4] = [
            (&metrics.startup_taints, &patched),
            (&metrics.pods_annotated, &patched),
            (&metrics.queries, &["answered", "failed"]),
            (&metrics.node_answers, &["answered", "failed", "late"]),
        ];
        for (family, results) in others {
            for &result in results {
                let _ = family.get_or_create(&ResultLabel { result });
            }
        }
        metrics
    }
}

pub(crate) fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the age of the oldest of these times in seconds, 0 without any.
fn age_of_oldest(times: impl Iterator<Item = Timestamp>, now: Timestamp) -> i64 {
    times.min().map_or(0, |oldest| now.duration_since(oldest).as_secs().max(0))
}

fn set_each(family: &Family<ReasonLabel, Gauge>, reasons: &[&'static str], found: &[&str]) {
    for &reason in reasons {
        let count = found.iter().filter(|found| **found == reason).count();
        family.get_or_create(&ReasonLabel { reason }).set(as_gauge(count));
    }
}

impl Metrics {
    /// Sets the number of nodes in each phase. Healthy nodes are not counted.
    pub(crate) fn set_phases(&self, phases: &[NodePhase]) {
        for phase in NodePhase::ALL.into_iter().filter(|p| *p != NodePhase::Healthy) {
            let count = phases.iter().filter(|p| **p == phase).count();
            let label = PhaseLabel { phase: phase.label() };
            self.nodes.get_or_create(&label).set(as_gauge(count));
        }
    }

    pub(crate) fn set_held(&self, reasons: &[&str]) {
        set_each(&self.held, &HELD_REASONS, reasons);
    }

    pub(crate) fn set_left_alone(&self, reasons: &[&str]) {
        set_each(&self.left_alone, &LEFT_ALONE_REASONS, reasons);
    }

    pub(crate) fn set_refused(&self, all: &[RefusedDetach], now: Timestamp) {
        let known = refusal_reasons();
        let reason = |refused: &RefusedDetach| {
            known.iter().find(|token| **token == refused.token).copied().unwrap_or("other")
        };
        let reasons: Vec<_> = all.iter().map(reason).collect();
        set_each(&self.refused, &known, &reasons);
        self.refused_oldest.set(age_of_oldest(all.iter().map(|refused| refused.since), now));
    }

    /// Sets the number of nodes with the driver's taint, and the age of the oldest taint whose time
    /// is known.
    pub(crate) fn set_taints(&self, all: &[Option<Timestamp>], now: Timestamp) {
        self.taints.set(as_gauge(all.len()));
        self.taint_oldest.set(age_of_oldest(all.iter().flatten().copied(), now));
    }

    pub(crate) fn count_act(&self, act: &'static str, result: &'static str) {
        self.acts.get_or_create(&ActLabels { act, result }).inc();
    }

    pub(crate) fn count(family: &Family<ResultLabel, Counter>, result: &'static str) {
        family.get_or_create(&ResultLabel { result }).inc();
    }

    /// Sets the metrics of failover to those of a replica that observes no node.
    pub(crate) fn clear_failover(&self) {
        self.set_phases(&[]);
        self.set_held(&[]);
        self.set_left_alone(&[]);
        self.set_taints(&[], Timestamp::UNIX_EPOCH);
    }

    /// Returns the page for Prometheus.
    pub fn page(&self) -> String {
        self.all.page()
    }
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ActLabels {
    act: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    result: &'static str,
}

/// Returns the tokens with which the controller refuses a detach, and `other` for those of another
/// version.
fn refusal_reasons() -> Vec<&'static str> {
    let of_detaches = Refusal::ALL.into_iter().filter(|refusal| *refusal != Refusal::Running);
    of_detaches.map(Refusal::token).chain(["other"]).collect()
}

/// The reasons for which a node that could be acted on is held.
const HELD_REASONS: [&str; 6] =
    ["outage", "cluster-share", "zone-share", "kill-switch", "not-advertised", "lost-place"];

/// The reasons for which a running instance that may be fenced is left alone.
const LEFT_ALONE_REASONS: [&str; 2] = ["checks-pass", "checks-unknown"];

const ACTS: [&str; 6] =
    ["add-taint", "remove-taint", "delete-pod", "delete-attachment", "nudge", "fence"];

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_line(metrics: &Metrics, line: &str) {
        let line = format!("aws_ebs_csi_safe_detach_{line}");
        assert!(metrics.page().lines().any(|l| l == line), "{line}");
    }

    #[test]
    fn refused_detach_metrics_show_reasons_and_oldest_age() {
        let metrics = Metrics::default();
        let refused = |token: &str, since: &str| RefusedDetach {
            node: String::new(),
            name: String::new(),
            uid: String::new(),
            token: token.to_owned(),
            since: since.parse().unwrap(),
        };
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let all = [
            refused("no-report", "2026-01-01T00:00:00Z"),
            refused("no-report", "2026-01-01T00:05:00Z"),
            refused("of-a-later-version", "2026-01-01T00:09:00Z"),
        ];
        metrics.set_refused(&all, now);
        let assert_line = |line: &str| assert_line(&metrics, &format!("refused_{line}"));
        assert_line("volumes{reason=\"no-report\"} 2");
        assert_line("volumes{reason=\"other\"} 1");
        assert_line("oldest_seconds 600");
        metrics.set_refused(&[], now);
        assert_line("volumes{reason=\"no-report\"} 0");
        assert_line("oldest_seconds 0");
    }

    /// Both read 0 without taints; a taint without a time still counts.
    #[test]
    fn taint_metrics_show_count_and_oldest_age() {
        let metrics = Metrics::default();
        let at = |text: &str| text.parse::<Timestamp>().ok();
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let assert_line = |line: &str| assert_line(&metrics, &format!("failover_taint{line}"));
        let all = [at("2026-01-01T00:59:00Z"), None, at("2026-01-01T00:30:00Z")];
        metrics.set_taints(&all, now);
        assert_line("s 3");
        assert_line("_oldest_seconds 1800");
        metrics.set_taints(&[], now);
        assert_line("s 0");
        assert_line("_oldest_seconds 0");
    }
}
