//! The labels of the metrics, and the values that each label can have.

use prometheus_client::encoding::EncodeLabelSet;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfPhase {
    pub(super) phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Acted {
    pub(super) act: &'static str,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Why {
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

/// The tokens with which the controller refuses a detach; any other token counts as the last one.
pub(super) const REFUSALS: [&str; 10] = [
    "attachment-unknown",
    "instance-unknown",
    "strange-state",
    "instance-missing",
    "hibernated",
    "hibernation-unknown",
    "in-use",
    "node-not-ready",
    "no-report",
    "other",
];

/// The reasons for which a node that could be acted on is held.
pub(super) const HELD: [&str; 6] =
    ["outage", "cluster-share", "zone-share", "kill-switch", "not-advertised", "lost-place"];

/// The reasons for which a running instance that may be fenced is left alone.
pub(super) const LEFT_ALONE: [&str; 2] = ["checks-pass", "checks-unknown"];

/// The labels of the acts.
pub(super) const ACTS: [&str; 6] =
    ["add-taint", "remove-taint", "delete-pod", "delete-attachment", "nudge", "fence"];
