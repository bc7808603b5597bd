//! The metrics of the process.

use std::fmt::Write as _;
use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::Phase;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::cluster::RefusedDetach;

use labels::{ACTS, Acted, HELD, LEFT_ALONE, OfPhase, Outcome, REFUSALS, Why};

pub(crate) mod http_endpoint;
mod labels;

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    starting: Gauge,
    startup_taints: Family<Outcome, Counter>,
    pods_annotated: Family<Outcome, Counter>,
    pods_behind: Gauge,
    leads: Gauge,
    nodes: Family<OfPhase, Gauge>,
    held: Family<Why, Gauge>,
    left_alone: Family<Why, Gauge>,
    acts: Family<Acted, Counter>,
    rounds: Family<Outcome, Counter>,
    words: Family<Outcome, Counter>,
    connected: Gauge,
    unidentified: Gauge,
    refused: Family<Why, Gauge>,
    refused_oldest: Gauge,
    taints: Gauge,
    taint_oldest: Gauge,
    to_proof: Histogram,
    to_recovery: Histogram,
    fences: Histogram,
}

/// Bounds in seconds: the targets are 5 s from the evidence and 120 s to the end.
const SECONDS: [f64; 11] = [1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            starting: Gauge::default(),
            startup_taints: Family::default(),
            pods_annotated: Family::default(),
            pods_behind: Gauge::default(),
            leads: Gauge::default(),
            nodes: Family::default(),
            held: Family::default(),
            left_alone: Family::default(),
            acts: Family::default(),
            rounds: Family::default(),
            words: Family::default(),
            connected: Gauge::default(),
            unidentified: Gauge::default(),
            refused: Family::default(),
            refused_oldest: Gauge::default(),
            taints: Gauge::default(),
            taint_oldest: Gauge::default(),
            to_proof: Histogram::new(SECONDS),
            to_recovery: Histogram::new(SECONDS),
            fences: Histogram::new(SECONDS),
        };
        let all = &mut metrics.registry;
        let onboarding = all.sub_registry_with_prefix("aws_ebs_csi_onboarding");
        onboarding.register(
            "nodes_waiting",
            "Nodes that have the startup taint; of the leader",
            metrics.starting.clone(),
        );
        onboarding.register(
            "taints_removed",
            "What became of taking the startup taint off, by result",
            metrics.startup_taints.clone(),
        );
        onboarding.register(
            "pods_annotated",
            "What became of writing node facts and drains to the node-agents' pods, by result",
            metrics.pods_annotated.clone(),
        );
        onboarding.register(
            "pods_behind",
            "Pods of node-agents that have lacked a fact or a change of a drain for 30 s; of the leader",
            metrics.pods_behind.clone(),
        );
        let registry = all.sub_registry_with_prefix("aws_ebs_csi_safe_detach");
        registry.register("failover_leader", "1 while this replica may act", metrics.leads.clone());
        registry.register(
            "failover_nodes",
            "Nodes that are not healthy, by what they are; of the leader",
            metrics.nodes.clone(),
        );
        registry.register(
            "failover_held",
            "Nodes that could be acted on and are not, by reason; of the leader",
            metrics.held.clone(),
        );
        registry.register(
            "failover_left_alone",
            "Nodes whose instance runs, may be fenced and is not, by what EC2's status checks say; of the leader",
            metrics.left_alone.clone(),
        );
        registry.register(
            "failover_acts",
            "What was done in Kubernetes, by act and result",
            metrics.acts.clone(),
        );
        registry.register(
            "failover_questions",
            "Questions to the controller about suspect nodes, by result",
            metrics.rounds.clone(),
        );
        registry.register(
            "node_words",
            "The controller's questions for what nodes say, by what became of them",
            metrics.words.clone(),
        );
        registry.register(
            "controller_connected",
            "1 while the controller beside this replica listens to the words of nodes; 0 with safe detach off",
            metrics.connected.clone(),
        );
        registry.register(
            "nodes_unidentified",
            "Nodes with neither a providerID nor an entry of this driver in their CSINode",
            metrics.unidentified.clone(),
        );
        registry.register(
            "refused_volumes",
            "VolumeAttachments whose detach is asked for and refused, by reason; of the leader",
            metrics.refused.clone(),
        );
        registry.register(
            "refused_oldest_seconds",
            "How long the oldest of them has been asked for, by the API server's clock; of the leader",
            metrics.refused_oldest.clone(),
        );
        registry.register(
            "failover_taints",
            "Nodes that have our taint; of the leader",
            metrics.taints.clone(),
        );
        registry.register(
            "failover_taint_oldest_seconds",
            "How long the node that has had it longest has it; of the leader",
            metrics.taint_oldest.clone(),
        );
        registry.register(
            "time_to_proof_seconds",
            "From the first look that found a node lost to the proof that it, or a volume of it, may be acted on",
            metrics.to_proof.clone(),
        );
        registry.register(
            "time_to_recover_seconds",
            "From the first look that found a node lost to the end of its last attachment, of nodes that were proved",
            metrics.to_recovery.clone(),
        );
        registry.register(
            "fence_seconds",
            "From the request to power an instance off until EC2 showed it off",
            metrics.fences.clone(),
        );
        metrics.nodes(&[]);
        metrics.held(&[]);
        metrics.left_alone(&[]);
        metrics.refused(&[], Timestamp::UNIX_EPOCH);
        // A missing series cannot be distinguished from one that does not grow.
        let patched = ["done", "overtaken", "failed"];
        for (act, result) in ACTS.iter().flat_map(|act| patched.map(|result| (*act, result))) {
            let _ = metrics.acts.get_or_create(&Acted { act, result });
        }
        let others: [(&Family<Outcome, Counter>, &[&'static str]); 4] = [
            (&metrics.startup_taints, &patched),
            (&metrics.pods_annotated, &patched),
            (&metrics.rounds, &["answered", "failed"]),
            (&metrics.words, &["told", "failed", "late"]),
        ];
        for (family, results) in others {
            for &result in results {
                let _ = family.get_or_create(&Outcome { result });
            }
        }
        metrics
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Sets how often each of the reasons is among those found.
fn set_each(family: &Family<Why, Gauge>, reasons: &[&'static str], found: &[&str]) {
    for &reason in reasons {
        let count = found.iter().filter(|found| **found == reason).count();
        family.get_or_create(&Why { reason }).set(number(count));
    }
}

impl Metrics {
    /// Sets whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    /// Sets the number of nodes in each phase. Healthy nodes are not counted.
    pub fn nodes(&self, phases: &[Phase]) {
        for phase in Phase::ALL.into_iter().filter(|p| *p != Phase::Healthy) {
            let count = phases.iter().filter(|p| **p == phase).count();
            let label = OfPhase { phase: phase.label() };
            self.nodes.get_or_create(&label).set(number(count));
        }
    }

    /// Sets the number of held nodes for each reason.
    pub fn held(&self, reasons: &[&str]) {
        set_each(&self.held, &HELD, reasons);
    }

    /// Sets the number of nodes whose instances are left alone for each reason.
    pub fn left_alone(&self, reasons: &[&str]) {
        set_each(&self.left_alone, &LEFT_ALONE, reasons);
    }

    /// Sets the number of refused detaches for each reason.
    pub fn refused(&self, all: &[RefusedDetach], now: Timestamp) {
        let known = |refused: &RefusedDetach| {
            let token = REFUSALS.iter().find(|token| **token == refused.token);
            token.copied().unwrap_or("other")
        };
        let reasons: Vec<_> = all.iter().map(known).collect();
        set_each(&self.refused, &REFUSALS, &reasons);
        let oldest = all.iter().map(|refused| refused.since).min();
        let age = oldest.map_or(0, |oldest| now.duration_since(oldest).as_secs().max(0));
        self.refused_oldest.set(age);
    }

    /// Sets the number of nodes with the driver's taint, and the age of the oldest taint whose time
    /// is known.
    pub fn taints(&self, all: &[Option<Timestamp>], now: Timestamp) {
        self.taints.set(number(all.len()));
        let oldest = all.iter().flatten().min();
        let age = oldest.map_or(0, |oldest| now.duration_since(*oldest).as_secs().max(0));
        self.taint_oldest.set(age);
    }

    /// Observes the time from a node's loss to its proof.
    pub fn proved(&self, took: Duration) {
        self.to_proof.observe(took.as_secs_f64());
    }

    /// Observes the time from a node's loss to the end of its last attachment.
    pub fn recovered(&self, took: Duration) {
        self.to_recovery.observe(took.as_secs_f64());
    }

    /// Observes the time from the request to power off an instance until it was off.
    pub fn fenced(&self, took: Duration) {
        self.fences.observe(took.as_secs_f64());
    }

    /// Counts an act and its result.
    pub fn act(&self, act: &'static str, result: &'static str) {
        self.acts.get_or_create(&Acted { act, result }).inc();
    }

    /// Counts a query of the controller.
    pub fn question(&self, result: &'static str) {
        self.rounds.get_or_create(&Outcome { result }).inc();
    }

    /// Counts a question of the controller about a node.
    pub fn word(&self, result: &'static str) {
        self.words.get_or_create(&Outcome { result }).inc();
    }

    /// Sets whether the controller listens to kubelet's reports.
    pub fn connected(&self, connected: bool) {
        self.connected.set(i64::from(connected));
    }

    /// Sets the number of nodes with the startup taint.
    pub fn starting(&self, count: usize) {
        self.starting.set(number(count));
    }

    /// Counts the result of removing a startup taint.
    pub fn startup_taint(&self, result: &'static str) {
        self.startup_taints.get_or_create(&Outcome { result }).inc();
    }

    /// Counts the result of annotating a node-agent's pod.
    pub fn pod_annotated(&self, result: &'static str) {
        self.pods_annotated.get_or_create(&Outcome { result }).inc();
    }

    /// Sets the number of pods that have lacked something for long.
    pub fn pods_behind(&self, count: usize) {
        self.pods_behind.set(number(count));
    }

    /// Sets the number of nodes whose instance is unknown.
    pub fn unidentified(&self, count: usize) {
        self.unidentified.set(number(count));
    }

    /// Returns the page for Prometheus.
    pub fn page(&self) -> String {
        let mut page = String::new();
        if encode(&mut page, &self.registry).is_err() {
            // Writing to a String cannot fail; if it did, the page would say so.
            let _ = writeln!(page, "# encoding failed");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_detach_metrics_show_reasons_and_oldest_age() {
        let metrics = Metrics::default();
        let refused = |token: &str, since: &str| RefusedDetach {
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
        metrics.refused(&all, now);
        let holds = |line: &str| {
            let line = format!("aws_ebs_csi_safe_detach_refused_{line}");
            assert!(metrics.page().lines().any(|l| l == line), "{line}");
        };
        holds("volumes{reason=\"no-report\"} 2");
        holds("volumes{reason=\"other\"} 1");
        holds("oldest_seconds 600");
        metrics.refused(&[], now);
        holds("volumes{reason=\"no-report\"} 0");
        holds("oldest_seconds 0");
    }

    /// Both read 0 without taints; a taint without a time still counts.
    #[test]
    fn taint_metrics_show_count_and_oldest_age() {
        let metrics = Metrics::default();
        let at = |text: &str| text.parse::<Timestamp>().ok();
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let holds = |line: &str| {
            let line = format!("aws_ebs_csi_safe_detach_failover_taint{line}");
            assert!(metrics.page().lines().any(|l| l == line), "{line}");
        };
        let all = [at("2026-01-01T00:59:00Z"), None, at("2026-01-01T00:30:00Z")];
        metrics.taints(&all, now);
        holds("s 3");
        holds("_oldest_seconds 1800");
        metrics.taints(&[], now);
        holds("s 0");
        holds("_oldest_seconds 0");
    }
}
