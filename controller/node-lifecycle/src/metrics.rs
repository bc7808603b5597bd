//! What the process counts.

use std::fmt::Write as _;

use ebs_csi_safe_detach::lifecycle::Phase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Acted {
    act: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    leads: Gauge,
    nodes: Family<OfPhase, Gauge>,
    held: Family<Why, Gauge>,
    acts: Family<Acted, Counter>,
    rounds: Family<Outcome, Counter>,
    words: Family<Outcome, Counter>,
}

/// The reasons for which a node that could be acted on is not.
const HELD: [&str; 6] = [
    "outage",
    "cluster-share",
    "zone-share",
    "kill-switch",
    "not-advertised",
    "lost-place",
];

/// What is done in Kubernetes.
const ACTS: [&str; 6] = [
    "add-taint",
    "remove-taint",
    "delete-pod",
    "delete-attachment",
    "nudge",
    "fence",
];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("aws_ebs_csi_safe_detach");
        let (leads, nodes, held) = (Gauge::default(), Family::default(), Family::default());
        let (acts, rounds, words) = (Family::default(), Family::default(), Family::default());
        registry.register(
            "failover_leader",
            "1 while this replica may act",
            leads.clone(),
        );
        registry.register(
            "failover_nodes",
            "Nodes that are not healthy, by what they are; of the leader",
            Family::clone(&nodes),
        );
        registry.register(
            "failover_held",
            "Nodes that could be acted on and are not, by reason; of the leader",
            Family::clone(&held),
        );
        registry.register(
            "failover_acts",
            "What was done in Kubernetes, by act and result",
            Family::clone(&acts),
        );
        registry.register(
            "failover_questions",
            "Questions to the controller about suspect nodes, by result",
            Family::clone(&rounds),
        );
        registry.register(
            "node_words",
            "The controller's questions for what nodes say, by what became of them",
            Family::clone(&words),
        );
        let metrics = Self {
            registry,
            leads,
            nodes,
            held,
            acts,
            rounds,
            words,
        };
        metrics.nodes(&[]);
        metrics.held(&[]);
        // A series that is not there cannot be told from one that does not grow.
        for act in ACTS {
            for result in ["done", "overtaken", "failed"] {
                let _ = metrics.acts.get_or_create(&Acted { act, result });
            }
        }
        for result in ["answered", "failed"] {
            let _ = metrics.rounds.get_or_create(&Outcome { result });
        }
        for result in ["told", "failed", "late"] {
            let _ = metrics.words.get_or_create(&Outcome { result });
        }
        metrics
    }
}

impl Metrics {
    /// Whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    /// What the nodes are. Healthy ones are not counted.
    pub fn nodes(&self, phases: &[Phase]) {
        for phase in Phase::ALL.into_iter().filter(|p| *p != Phase::Healthy) {
            let count = phases.iter().filter(|p| **p == phase).count();
            let label = OfPhase {
                phase: phase.label(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.nodes.get_or_create(&label).set(count);
        }
    }

    /// The nodes that are not acted on, each by its reason.
    pub fn held(&self, reasons: &[&str]) {
        for reason in HELD {
            let count = reasons.iter().filter(|r| **r == reason).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.held.get_or_create(&Why { reason }).set(count);
        }
    }

    /// Something was done, or failed.
    pub fn act(&self, act: &'static str, result: &'static str) {
        self.acts.get_or_create(&Acted { act, result }).inc();
    }

    /// The controller was asked.
    pub fn question(&self, result: &'static str) {
        self.rounds.get_or_create(&Outcome { result }).inc();
    }

    /// The controller asked.
    pub fn word(&self, result: &'static str) {
        self.words.get_or_create(&Outcome { result }).inc();
    }

    /// The page that Prometheus reads.
    pub fn page(&self) -> String {
        let mut page = String::new();
        if encode(&mut page, &self.registry).is_err() {
            // Writing to a text does not fail; if it does, the page says so.
            let _ = writeln!(page, "# encoding failed");
        }
        page
    }
}
