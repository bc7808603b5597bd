//! The label sets of the metrics.

use ebs_csi_ec2::Action;
use prometheus_client::encoding::EncodeLabelSet;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByRequest {
    pub(super) request: String,
}

impl ByRequest {
    pub(super) fn of(action: Action) -> Self {
        Self { request: action.name().to_owned() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCode {
    pub(super) request: String,
    pub(super) code: String,
}

/// The Go driver's label for throttles is `operation_name`; `request` is added here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByOperation {
    pub(super) operation_name: String,
    pub(super) request: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCache {
    pub(super) cache: String,
    pub(super) result: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByRpc {
    pub(super) method: String,
    pub(super) code: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByVerdict {
    pub(super) verdict: &'static str,
    pub(super) evidence: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByMode {
    pub(super) mode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByFence {
    pub(super) mode: &'static str,
    pub(super) result: &'static str,
}
