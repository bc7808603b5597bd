//! Metrics of safe detach: the mode, the decisions, the fences, the observers, the forced detaches.

use std::fmt;

use ebs_csi_proto::metrics;
use ebs_csi_safe_detach::Verdict;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerdict {
    verdict: &'static str,
    evidence: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMode {
    mode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFence {
    mode: &'static str,
    result: &'static str,
}

#[derive(Debug)]
pub(super) struct SafeDetach {
    mode: Family<ByMode, Gauge>,
    decisions: Family<ByVerdict, Counter>,
    fences: Family<ByFence, Counter>,
    observers: Gauge,
    forced: Counter,
}

impl SafeDetach {
    pub(super) fn register(all: &mut metrics::Metrics) -> Self {
        Self {
            mode: all.register(
                "aws_ebs_csi_safe_detach_mode",
                "1 for the mode of safe detach that is in force",
                Family::default(),
            ),
            decisions: all.register(
                "aws_ebs_csi_safe_detach_decisions",
                "Decisions whether a volume may leave a node, by verdict and by the evidence or the reason",
                Family::default(),
            ),
            fences: all.register(
                "aws_ebs_csi_safe_detach_fences",
                "Fences that were asked for, by mode and by what came of it, with --safe-detach-fence",
                Family::default(),
            ),
            observers: all.register(
                "aws_ebs_csi_safe_detach_observers",
                "Processes that are connected to answer what nodes say, with --safe-detach",
                Gauge::default(),
            ),
            forced: all.register(
                "aws_ebs_csi_safe_detach_forced",
                "Detaches that were forced by an override order",
                Counter::default(),
            ),
        }
    }
}

impl Metrics {
    pub(crate) fn safe_detach_mode(&self, mode: impl fmt::Display) {
        self.safe_detach.mode.get_or_create(&ByMode { mode: mode.to_string() }).set(1);
        // Created at the start: the first count of a new series is no increase.
        for verdict in Verdict::all() {
            let (verdict, evidence) = verdict.label();
            let label = ByVerdict { verdict, evidence };
            drop(self.safe_detach.decisions.get_or_create(&label));
        }
    }

    pub(crate) fn safe_detach_decided(&self, (verdict, evidence): (&'static str, &'static str)) {
        self.safe_detach.decisions.get_or_create(&ByVerdict { verdict, evidence }).inc();
    }

    pub(crate) fn fenced(&self, mode: &'static str, result: &'static str) {
        self.safe_detach.fences.get_or_create(&ByFence { mode, result }).inc();
    }

    /// Counts observers of nodes that connected (1) or disconnected (-1).
    pub(crate) fn observer(&self, change: i64) {
        self.safe_detach.observers.inc_by(change);
    }

    pub(crate) fn forced_detach(&self) {
        self.safe_detach.forced.inc();
    }
}
