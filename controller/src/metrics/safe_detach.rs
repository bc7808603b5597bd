//! Metrics of safe detach: the mode, the decisions, the fences, the observers, the forced detaches.

use std::fmt;

use ebs_csi_safe_detach::Verdict;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{ByFence, ByMode, ByVerdict};
use super::register;

/// The metrics of safe detach.
#[derive(Debug)]
pub(super) struct SafeDetach {
    mode: Family<ByMode, Gauge>,
    decisions: Family<ByVerdict, Counter>,
    fences: Family<ByFence, Counter>,
    observers: Gauge,
    forced: Counter,
}

impl SafeDetach {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            mode: register(
                registry,
                "aws_ebs_csi_safe_detach_mode",
                "1 for the mode of safe detach that is in force",
                Family::default(),
            ),
            decisions: register(
                registry,
                "aws_ebs_csi_safe_detach_decisions",
                "Decisions whether a volume may leave a node, by verdict and by the evidence or the reason",
                Family::default(),
            ),
            fences: register(
                registry,
                "aws_ebs_csi_safe_detach_fences",
                "Fences that were asked for, by mode and by what came of it",
                Family::default(),
            ),
            observers: register(
                registry,
                "aws_ebs_csi_safe_detach_observers",
                "Processes that are connected to answer what nodes say",
                Gauge::default(),
            ),
            forced: register(
                registry,
                "aws_ebs_csi_safe_detach_forced",
                "Detaches that were forced by a person's order",
                Counter::default(),
            ),
        }
    }

    pub(super) fn mode(&self, mode: impl fmt::Display) {
        self.mode.get_or_create(&ByMode { mode: mode.to_string() }).set(1);
        // Created at the start: the first count of a new series is no increase.
        for verdict in Verdict::all() {
            let (verdict, evidence) = verdict.label();
            let label = ByVerdict { verdict, evidence };
            drop(self.decisions.get_or_create(&label));
        }
    }

    pub(super) fn decided(&self, verdict: &'static str, evidence: &'static str) {
        self.decisions.get_or_create(&ByVerdict { verdict, evidence }).inc();
    }

    pub(super) fn fenced(&self, mode: &'static str, result: &'static str) {
        self.fences.get_or_create(&ByFence { mode, result }).inc();
    }

    pub(super) fn observer(&self, change: i64) {
        self.observers.inc_by(change);
    }

    pub(super) fn forced(&self) {
        self.forced.inc();
    }
}
