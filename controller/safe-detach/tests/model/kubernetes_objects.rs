//! Kubernetes objects in the form that the shipped functions take. Both simulations use them.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::Attachment;
use ebs_csi_safe_detach::{Fact, KubeletReport, NodeReport, kubelet_report};

/// The instance of the node that fails.
pub(crate) const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
pub(crate) const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";

/// What the API server has of that node: the Ready condition, the age of the lease, and whether
/// `volumesInUse` and `volumesAttached` list the volume.
pub(crate) struct NodeView {
    pub(crate) ready: bool,
    pub(crate) lease_age: Duration,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
}

impl NodeView {
    /// Returns kubelet's report about the volume; `None` stands for a missing Node object.
    pub(crate) fn report(node: Option<Self>) -> Fact<KubeletReport> {
        let names = |listed: bool| {
            let name = || format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}");
            listed.then(name).into_iter().collect()
        };
        let node = node.map(|node| NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            ready: node.ready,
            lease_age: Some(node.lease_age),
            in_use: names(node.in_use),
            attached: names(node.attached),
            ..NodeReport::default()
        });
        let (instance, volume) = (INSTANCE.parse().expect("an id"), VOLUME.parse().expect("an id"));
        kubelet_report(node.as_slice(), &instance, &volume, Duration::ZERO)
    }
}

/// Returns the VolumeAttachment of the volume at that node; the values are whether it is being
/// deleted, and whether it has the annotation for a retry.
pub(crate) fn attachment((deleting, retry_requested): (bool, bool)) -> Attachment {
    Attachment {
        volume: VOLUME.to_owned(),
        instance: Some(INSTANCE.to_owned()),
        deleting,
        retry_requested,
        ..Attachment::default()
    }
}
