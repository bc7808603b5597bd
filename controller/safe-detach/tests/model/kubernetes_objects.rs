//! Kubernetes objects in the form that the shipped functions take. Both simulations use them.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::Attachment;
use ebs_csi_safe_detach::{
    Agent, AgentAnswer, AttachTime, Fact, KernelState, NodeEvidence, NodeReport, OldAgents,
    node_evidence,
};

/// The instance of the node that fails.
pub(crate) const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
pub(crate) const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";
/// When EC2 attached the volume to that instance.
pub(crate) const ATTACHED: AttachTime = AttachTime { seconds: 1000, nanoseconds: 0 };

/// Returns the node's agent that answers how the kernel has the volume, and whether the node has
/// promised not to use it.
pub(crate) fn answered(state: KernelState, promised: bool) -> Agent {
    let (instance, boot_id) = (INSTANCE.to_owned(), String::new());
    Agent::Answered(AgentAnswer { instance, boot_id, state, promised })
}

/// What the API server has of that node, and what its agent answers: the Ready condition, the age
/// of the lease, whether `volumesInUse` and `volumesAttached` list the volume, and whether the Node
/// object was not yet a minute old at the attach.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) ready: bool,
    pub(crate) lease_age: Duration,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
    pub(crate) young: bool,
    pub(crate) agent: Agent,
}

impl NodeView {
    /// Returns what the node knows of the volume; `None` stands for a missing Node object.
    pub(crate) fn evidence(node: Option<Self>, old_agents: OldAgents) -> Fact<NodeEvidence> {
        let names = |listed: bool| {
            let name = || format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}");
            listed.then(name).into_iter().collect()
        };
        let node = node.map(|node| NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            created: Some(if node.young { ATTACHED.seconds } else { 0 }),
            ready: node.ready,
            lease_age: Some(node.lease_age),
            in_use: names(node.in_use),
            attached: names(node.attached),
            agent: node.agent,
            ..NodeReport::default()
        });
        let (instance, volume) = (INSTANCE.parse().expect("an id"), VOLUME.parse().expect("an id"));
        let since = Some(ATTACHED);
        node_evidence(node.as_slice(), &instance, &volume, since, Duration::ZERO, old_agents)
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
