//! The labels of the metrics, and the values that each label can have.

use ebs_csi_safe_detach::Refusal;
use prometheus_client::encoding::EncodeLabelSet;

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct PhaseLabel {
    pub(super) phase: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ActLabels {
    pub(super) act: &'static str,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    pub(super) result: &'static str,
}

/// Returns the tokens with which the controller refuses a detach, and `other` for those of another
/// version.
pub(super) fn refusal_reasons() -> Vec<&'static str> {
    let of_detaches = Refusal::ALL.into_iter().filter(|refusal| *refusal != Refusal::Running);
    of_detaches.map(Refusal::token).chain(["other"]).collect()
}

/// The reasons for which a node that could be acted on is held.
pub(super) const HELD_REASONS: [&str; 6] =
    ["outage", "cluster-share", "zone-share", "kill-switch", "not-advertised", "lost-place"];

/// The reasons for which a running instance that may be fenced is left alone.
pub(super) const LEFT_ALONE_REASONS: [&str; 2] = ["checks-pass", "checks-unknown"];

pub(super) const ACTS: [&str; 6] =
    ["add-taint", "remove-taint", "delete-pod", "delete-attachment", "nudge", "fence"];
