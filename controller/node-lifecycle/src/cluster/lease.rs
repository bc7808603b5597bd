//! The Leases that kubelets renew.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Object, Retained};

/// A node's Lease.
#[derive(Clone, Debug)]
pub(crate) struct SeenLease {
    pub(crate) node: String,
    /// The time of the last renewal, by the node's clock.
    pub(crate) renewed: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    renew_time: Option<MicroTime>,
}

impl Retained for SeenLease {
    type Kind = Lease;
    type Spec = Spec;
    type Status = IgnoredAny;

    fn new(object: Object<Spec, IgnoredAny>) -> Option<Self> {
        Some(Self {
            node: object.metadata.name,
            renewed: object.spec.renew_time.map(|time| time.0),
        })
    }
}
