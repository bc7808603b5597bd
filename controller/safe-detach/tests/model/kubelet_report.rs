//! Kubelet's report, derived with the shipped function.

use std::time::Duration;

use ebs_csi_safe_detach::{FRESH_LEASE, Fact, KubeletReport, NodeReport, kubelet_report};

/// Node A's instance.
pub(crate) const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
/// The volume.
pub(crate) const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";

/// What the API server has of node A: the Ready condition, whether the lease is fresh, and whether
/// `volumesInUse` and `volumesAttached` list the volume.
pub(crate) struct Listed {
    pub(crate) ready: bool,
    pub(crate) fresh: bool,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
}

impl Listed {
    /// Returns kubelet's report about the volume; `None` stands for a missing Node object.
    pub(crate) fn report(node: Option<Self>) -> Fact<KubeletReport> {
        let names = |listed: bool| {
            let name = || format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}");
            listed.then(name).into_iter().collect()
        };
        let node = node.map(|node| NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            ready: node.ready,
            lease_age: Some(if node.fresh {
                Duration::ZERO
            } else {
                FRESH_LEASE + Duration::from_secs(1)
            }),
            in_use: names(node.in_use),
            attached: names(node.attached),
            ..NodeReport::default()
        });
        let (instance, volume) = (INSTANCE.parse().expect("an id"), VOLUME.parse().expect("an id"));
        kubelet_report(node.as_slice(), &instance, &volume, Duration::ZERO)
    }
}
