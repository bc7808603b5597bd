//! Derives kubelet's report about one volume from Node objects.

use std::time::Duration;

use ebs_csi_wire::{InstanceId, VolumeId};

use super::facts::{Fact, KubeletReport};

/// The longest time without renewal after which a lease is still fresh: the duration of kubelet's
/// own leases (`nodeLeaseDurationSeconds`, 40 s).
pub const FRESH_LEASE: Duration = Duration::from_secs(40);

/// The contents of one Node object, read after the question arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The Node's `spec.providerID`.
    pub provider_id: String,
    /// The node id in the Node's CSINode, for a Node without a provider id.
    pub csi_node_id: String,
    /// Whether the Node's condition Ready is True.
    pub ready: bool,
    /// How long the Node's lease had been seen without a renewal at the time of the report. `None`:
    /// unknown.
    pub lease_age: Option<Duration>,
    /// The unique volume names in `status.volumesInUse`: those that kubelet mounts, or is about to
    /// mount.
    pub in_use: Vec<String>,
    /// The unique volume names in `status.volumesAttached`: those that kubelet may begin to mount.
    pub attached: Vec<String>,
}

/// Returns the report about `volume` of the node that identifies itself as `instance`. `waited` is
/// the time since the question.
///
/// Kubelet adds a volume to `volumesInUse` before it mounts the volume, mounts only volumes that
/// `volumesAttached` lists, and removes a volume after it has unmounted it. So a volume in neither
/// list is not mounted and will not be, according to kubelet's own state. A mount that kubelet's
/// state does not show (because it outlived that state) could only be seen by the node's kernel.
pub fn kubelet_report(
    nodes: &[NodeReport],
    instance: &InstanceId,
    volume: &VolumeId,
    waited: Duration,
) -> Fact<KubeletReport> {
    let node = match nodes {
        [] => return Fact::Absent,
        [node] if is_node_of(node, instance) => node,
        // The node of another instance, or several nodes that claim to be one instance: it is
        // unknown which instance the report is about.
        _ => return Fact::Unknown,
    };
    if !node.ready {
        return Fact::Present(KubeletReport::NotReady);
    }
    if node.lease_age.is_none_or(|age| age.saturating_add(waited) > FRESH_LEASE) {
        return Fact::Unknown;
    }
    let is_listed = |names: &[String]| names.iter().any(|name| name.contains(volume.as_str()));
    Fact::Present(if is_listed(&node.in_use) || is_listed(&node.attached) {
        KubeletReport::InUse
    } else {
        KubeletReport::Released
    })
}

/// Returns whether the node is that of the instance. `aws:///us-east-1a/i-0123456789abcdef0` names
/// the instance by its last part. A provider id that names another instance is never overruled.
fn is_node_of(node: &NodeReport, instance: &InstanceId) -> bool {
    match node.provider_id.as_str() {
        "" => node.csi_node_id == instance.as_str(),
        id => id.starts_with("aws://") && id.rsplit('/').next() == Some(instance.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
    const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";
    const OTHER: &str = "i-0bbbbbbbbbbbbbbb2";
    const OTHER_ID: &str = "aws:///us-east-1a/i-0bbbbbbbbbbbbbbb2";
    const JUST_FRESH: Duration = FRESH_LEASE.saturating_sub(Duration::from_millis(1));

    fn released() -> NodeReport {
        let other = || vec!["kubernetes.io/csi/ebs.csi.aws.com^vol-0bbbbbbbbbbbbbbb2".to_owned()];
        NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            csi_node_id: String::new(),
            ready: true,
            lease_age: Some(Duration::from_secs(9)),
            in_use: other(),
            attached: other(),
        }
    }

    fn report(nodes: &[NodeReport], waited: Duration) -> Fact<KubeletReport> {
        let (instance, volume) = (INSTANCE.parse().unwrap(), VOLUME.parse().unwrap());
        kubelet_report(nodes, &instance, &volume, waited)
    }

    fn named(plugin: &str) -> Vec<String> {
        vec![format!("kubernetes.io/{plugin}{VOLUME}")]
    }

    fn name(node: &mut NodeReport, provider_id: &str, csi_node_id: &str) {
        provider_id.clone_into(&mut node.provider_id);
        csi_node_id.clone_into(&mut node.csi_node_id);
    }

    /// A node that is not Ready gives the report `NotReady`; two nodes or a late answer give no
    /// report.
    #[test]
    fn report_needs_own_instance_and_fresh_lease() {
        const RELEASED: Fact<KubeletReport> = Fact::Present(KubeletReport::Released);
        const IN_USE: Fact<KubeletReport> = Fact::Present(KubeletReport::InUse);
        type Change = fn(&mut NodeReport);
        let rows: [(&str, Change, Fact<KubeletReport>); 14] = [
            ("released", |_| (), RELEASED),
            ("in use", |n| n.in_use = named("csi/ebs.csi.aws.com^"), IN_USE),
            ("in use, in-tree name", |n| n.in_use = named("aws-ebs/aws://us-east-1a/"), IN_USE),
            ("may begin to use it", |n| n.attached = named("csi/ebs.csi.aws.com^"), IN_USE),
            ("not ready", |n| n.ready = false, Fact::Present(KubeletReport::NotReady)),
            ("no lease", |n| n.lease_age = None, Fact::Unknown),
            ("lease that is just fresh", |n| n.lease_age = Some(JUST_FRESH), RELEASED),
            ("stale lease", |n| n.lease_age = Some(FRESH_LEASE), Fact::Unknown),
            ("endless lease", |n| n.lease_age = Some(Duration::MAX), Fact::Unknown),
            ("no provider id", |n| n.provider_id.clear(), Fact::Unknown),
            ("this instance by its CSINode", |n| name(n, "", INSTANCE), RELEASED),
            ("another instance by its CSINode", |n| name(n, "", OTHER), Fact::Unknown),
            ("the provider id counts first", |n| name(n, OTHER_ID, INSTANCE), Fact::Unknown),
            ("F32: another instance under the name", |n| name(n, OTHER_ID, ""), Fact::Unknown),
        ];
        let waited = Duration::from_millis(1);
        for (what, change, want) in rows {
            let mut node = released();
            change(&mut node);
            assert_eq!(report(&[node], waited), want, "{what}");
        }
        assert_eq!(report(&[released(), released()], waited), Fact::Unknown, "two nodes");
        assert_eq!(report(&[], waited), Fact::Absent, "no node");
        let late = report(&[released()], Duration::from_secs(32));
        assert_eq!(late, Fact::Unknown, "the answer took too long");
    }
}
