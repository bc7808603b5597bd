//! Derives what a node knows of one volume from its Node object and from its node-agent's answer.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ebs_csi_wire::{InstanceId, VolumeId, listed_enum};

use super::facts::{AttachTime, Fact, NodeEvidence};

/// The longest time without renewal after which a lease is still fresh: the duration of kubelet's
/// own leases (`nodeLeaseDurationSeconds`, 40 s).
pub const FRESH_LEASE: Duration = Duration::from_secs(40);

/// A Node object counts as older than an attachment only by this many seconds. Kubelet writes the
/// lists of a new object within ten seconds (`nodeStatusUpdateFrequency`), and EC2 and the API
/// server have different clocks.
const AGE_AT_ATTACH: i64 = 60;

listed_enum! {
    /// What counts of a node whose node-agent cannot be asked, because it is older than its page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum OldAgents with pub fn label -> &'static str {
        /// Kubelet's report.
        KubeletReport = "kubelet-report",
        /// Nothing: the detach is refused.
        Refuse = "refuse",
    }
}

#[expect(clippy::derivable_impls, reason = "a value of listed_enum takes no attribute")]
impl Default for OldAgents {
    fn default() -> Self {
        Self::KubeletReport
    }
}

impl fmt::Display for OldAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for OldAgents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.label() == text);
        found.ok_or_else(|| "give kubelet-report or refuse".to_owned())
    }
}

listed_enum! {
    /// How the kernel of a node has a volume, with the words of the node-agent's page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum KernelState with pub fn label -> &'static str {
        /// Mounted, published, or held in another way.
        Held = "held",
        /// The mount-helper works on it.
        Busy = "busy",
        /// The disk is there, and nothing holds it.
        Free = "free",
        /// No disk of the volume is there.
        NoDisk = "no-disk",
    }
}

/// The node-agent's answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAnswer {
    /// The instance that the agent runs on.
    pub instance: String,
    /// The boot that the agent runs in.
    pub boot_id: String,
    /// How the kernel has the volume.
    pub state: KernelState,
    /// Whether the node has promised, for this attachment and this boot, not to use the volume.
    pub promised: bool,
}

/// The node-agent of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Agent {
    /// The node has no single node-agent, or its page could not be read.
    #[default]
    Silent,
    /// The node-agent is older than its page.
    WithoutPage,
    /// The answer, read after the Node object.
    Answered(AgentAnswer),
}

/// What is known of one node, read after the question arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The Node's `spec.providerID`.
    pub provider_id: String,
    /// The node id in the Node's CSINode, for a Node without a provider id.
    pub csi_node_id: String,
    /// The Node's `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// When the Node object was created, in seconds since 1970-01-01T00:00:00Z.
    pub created: Option<i64>,
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
    /// The node-agent, asked after the lists were read.
    pub agent: Agent,
}

/// Returns what the node that identifies itself as `instance` knows of `volume`, which EC2 attached
/// at the time `since`. `waited` is the time since the question.
///
/// The kernel says whether something uses the volume; kubelet's lists say whether kubelet may begin
/// to. Kubelet begins only what it has listed in `volumesInUse`, and only after `volumesAttached`
/// has listed it; it forgets that leave before it takes the volume off `volumesInUse`. So a volume
/// in neither list, read before the kernel answered, stays free. Two cases leave doubt, and need
/// the node's promise: a Node object that was created just before the attach, or after it, has lost
/// its lists while kubelet may still have its leave, and a look that finds no disk shows less than
/// one at a free disk. With the promise no list matters; nobody asks for it while
/// `volumesAttached` lists the volume.
pub fn node_evidence(
    nodes: &[NodeReport],
    instance: &InstanceId,
    volume: &VolumeId,
    since: Option<AttachTime>,
    waited: Duration,
    old_agents: OldAgents,
) -> Fact<NodeEvidence> {
    let node = match nodes {
        [] => return Fact::Absent,
        [node] if is_node_of(node, instance) => node,
        // The node of another instance, or several nodes that claim to be one instance: it is
        // unknown which instance the report is about.
        _ => return Fact::Unknown,
    };
    let answer = match &node.agent {
        Agent::Silent => return Fact::Unknown,
        Agent::WithoutPage => {
            return match old_agents {
                OldAgents::KubeletReport => kubelet_report(node, volume, waited),
                OldAgents::Refuse => Fact::Unknown,
            };
        }
        Agent::Answered(answer) => answer,
    };
    if answer.instance != instance.as_str() || answer.boot_id != node.boot_id {
        return Fact::Unknown;
    }
    let may_begin = is_listed(&node.attached, volume);
    let is_wanted = is_listed(&node.in_use, volume) || !is_older(node, since);
    Fact::Present(match (answer.state, answer.promised) {
        (KernelState::Held | KernelState::Busy, _) => NodeEvidence::InUse,
        (KernelState::Free | KernelState::NoDisk, true) => NodeEvidence::Released,
        (KernelState::Free | KernelState::NoDisk, false) if may_begin => NodeEvidence::InUse,
        (KernelState::Free, false) if !is_wanted => NodeEvidence::Released,
        (KernelState::Free | KernelState::NoDisk, false) => NodeEvidence::PromiseNeeded,
    })
}

/// Returns kubelet's report: what its lists say, where nothing asks the kernel. A mount that
/// kubelet's state does not show, because it outlived that state, is overlooked.
fn kubelet_report(node: &NodeReport, volume: &VolumeId, waited: Duration) -> Fact<NodeEvidence> {
    if !node.ready {
        return Fact::Present(NodeEvidence::NotReady);
    }
    if node.lease_age.is_none_or(|age| age.saturating_add(waited) > FRESH_LEASE) {
        return Fact::Unknown;
    }
    Fact::Present(if is_listed(&node.in_use, volume) || is_listed(&node.attached, volume) {
        NodeEvidence::InUse
    } else {
        NodeEvidence::ReleasedByKubelet
    })
}

fn is_listed(names: &[String], volume: &VolumeId) -> bool {
    names.iter().any(|name| name.contains(volume.as_str()))
}

/// Returns whether the Node object was old at the attach: its lists have known the volume from the
/// beginning.
fn is_older(node: &NodeReport, since: Option<AttachTime>) -> bool {
    node.created
        .zip(since)
        .is_some_and(|(created, since)| created.saturating_add(AGE_AT_ATTACH) <= since.seconds)
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

    const RELEASED: Fact<NodeEvidence> = Fact::Present(NodeEvidence::Released);
    const IN_USE: Fact<NodeEvidence> = Fact::Present(NodeEvidence::InUse);
    const PROMISE: Fact<NodeEvidence> = Fact::Present(NodeEvidence::PromiseNeeded);
    const BY_KUBELET: Fact<NodeEvidence> = Fact::Present(NodeEvidence::ReleasedByKubelet);
    const ATTACHED: AttachTime = AttachTime { seconds: 1_767_225_600, nanoseconds: 0 };

    /// Returns the report of a node that has released the volume, and whose agent answers.
    fn released() -> NodeReport {
        let other = || vec!["kubernetes.io/csi/ebs.csi.aws.com^vol-0bbbbbbbbbbbbbbb2".to_owned()];
        NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            csi_node_id: String::new(),
            boot_id: "boot-1".to_owned(),
            created: Some(ATTACHED.seconds - AGE_AT_ATTACH),
            ready: true,
            lease_age: Some(Duration::from_secs(9)),
            in_use: other(),
            attached: other(),
            agent: Agent::Answered(AgentAnswer {
                instance: INSTANCE.to_owned(),
                boot_id: "boot-1".to_owned(),
                state: KernelState::Free,
                promised: false,
            }),
        }
    }

    fn evidence(nodes: &[NodeReport], waited: Duration, old: OldAgents) -> Fact<NodeEvidence> {
        let (instance, volume) = (INSTANCE.parse().unwrap(), VOLUME.parse().unwrap());
        node_evidence(nodes, &instance, &volume, Some(ATTACHED), waited, old)
    }

    fn named(plugin: &str) -> Vec<String> {
        vec![format!("kubernetes.io/{plugin}{VOLUME}")]
    }

    fn name(node: &mut NodeReport, provider_id: &str, csi_node_id: &str) {
        provider_id.clone_into(&mut node.provider_id);
        csi_node_id.clone_into(&mut node.csi_node_id);
    }

    fn answered(node: &mut NodeReport) -> &mut AgentAnswer {
        match &mut node.agent {
            Agent::Answered(answer) => answer,
            Agent::Silent | Agent::WithoutPage => panic!("an answer"),
        }
    }

    fn answer(node: &mut NodeReport, state: KernelState, promised: bool) {
        (answered(node).state, answered(node).promised) = (state, promised);
    }

    type Change = fn(&mut NodeReport);

    /// The kernel's answer decides; what kubelet may still do needs a promise.
    #[test]
    fn kernel_lists_and_promise_decide_together() {
        use KernelState::{Busy, Free, Held, NoDisk};
        let rows: &[(&str, Change, Fact<NodeEvidence>)] = &[
            ("free, in no list", |_| (), RELEASED),
            ("held", |n| answer(n, Held, false), IN_USE),
            ("held, though promised", |n| answer(n, Held, true), IN_USE),
            ("busy", |n| answer(n, Busy, false), IN_USE),
            ("no disk", |n| answer(n, NoDisk, false), PROMISE),
            ("no disk, promised", |n| answer(n, NoDisk, true), RELEASED),
            ("wanted", |n| n.in_use = named("csi/ebs.csi.aws.com^"), PROMISE),
            ("wanted, in-tree name", |n| n.in_use = named("aws-ebs/aws://us-east-1a/"), PROMISE),
            (
                "wanted, promised",
                |n| {
                    n.in_use = named("csi/ebs.csi.aws.com^");
                    answer(n, Free, true);
                },
                RELEASED,
            ),
            ("may begin", |n| n.attached = named("csi/ebs.csi.aws.com^"), IN_USE),
            (
                "may begin, promised",
                |n| {
                    n.attached = named("csi/ebs.csi.aws.com^");
                    answer(n, Free, true);
                },
                RELEASED,
            ),
            ("young Node", |n| n.created = Some(ATTACHED.seconds - 59), PROMISE),
            ("Node of unknown age", |n| n.created = None, PROMISE),
            ("not ready, no lease", |n| (n.ready, n.lease_age) = (false, None), RELEASED),
            ("silent", |n| n.agent = Agent::Silent, Fact::Unknown),
            ("another boot", |n| n.boot_id = "boot-2".to_owned(), Fact::Unknown),
            ("another agent", |n| answered(n).instance = OTHER.to_owned(), Fact::Unknown),
            ("no provider id", |n| n.provider_id.clear(), Fact::Unknown),
            ("F32: another instance under the name", |n| name(n, OTHER_ID, ""), Fact::Unknown),
        ];
        for (what, change, want) in rows {
            let mut node = released();
            change(&mut node);
            for old in OldAgents::ALL {
                assert_eq!(evidence(&[node.clone()], Duration::ZERO, old), *want, "{what}");
            }
        }
        let nodes = [released(), released()];
        assert_eq!(evidence(&nodes, Duration::ZERO, OldAgents::Refuse), Fact::Unknown);
        assert_eq!(evidence(&[], Duration::ZERO, OldAgents::Refuse), Fact::Absent);
        let (instance, volume) = (INSTANCE.parse().unwrap(), VOLUME.parse().unwrap());
        let timeless = node_evidence(
            &[released()],
            &instance,
            &volume,
            None,
            Duration::ZERO,
            OldAgents::Refuse,
        );
        assert_eq!(timeless, PROMISE, "an attachment without a time");
    }

    /// A node that is not Ready gives the report `NotReady`; two nodes or a late answer give no
    /// report.
    #[test]
    fn report_needs_own_instance_and_fresh_lease() {
        let rows: [(&str, Change, Fact<NodeEvidence>); 14] = [
            ("released", |_| (), BY_KUBELET),
            ("in use", |n| n.in_use = named("csi/ebs.csi.aws.com^"), IN_USE),
            ("in use, in-tree name", |n| n.in_use = named("aws-ebs/aws://us-east-1a/"), IN_USE),
            ("may begin to use it", |n| n.attached = named("csi/ebs.csi.aws.com^"), IN_USE),
            ("not ready", |n| n.ready = false, Fact::Present(NodeEvidence::NotReady)),
            ("no lease", |n| n.lease_age = None, Fact::Unknown),
            ("lease that is just fresh", |n| n.lease_age = Some(JUST_FRESH), BY_KUBELET),
            ("stale lease", |n| n.lease_age = Some(FRESH_LEASE), Fact::Unknown),
            ("endless lease", |n| n.lease_age = Some(Duration::MAX), Fact::Unknown),
            ("no provider id", |n| n.provider_id.clear(), Fact::Unknown),
            ("this instance by its CSINode", |n| name(n, "", INSTANCE), BY_KUBELET),
            ("another instance by its CSINode", |n| name(n, "", OTHER), Fact::Unknown),
            ("the provider id counts first", |n| name(n, OTHER_ID, INSTANCE), Fact::Unknown),
            ("F32: another instance under the name", |n| name(n, OTHER_ID, ""), Fact::Unknown),
        ];
        let waited = Duration::from_millis(1);
        let old = || NodeReport { agent: Agent::WithoutPage, ..released() };
        let report = |nodes: &[NodeReport], waited| {
            assert!(!matches!(evidence(nodes, waited, OldAgents::Refuse), Fact::Present(_)));
            evidence(nodes, waited, OldAgents::KubeletReport)
        };
        for (what, change, want) in rows {
            let mut node = old();
            change(&mut node);
            assert_eq!(report(&[node], waited), want, "{what}");
        }
        assert_eq!(report(&[old(), old()], waited), Fact::Unknown, "two nodes");
        assert_eq!(report(&[], waited), Fact::Absent, "no node");
        let late = report(&[old()], Duration::from_secs(32));
        assert_eq!(late, Fact::Unknown, "the answer took too long");
    }

    #[test]
    fn choices_for_old_agents_round_trip() {
        for choice in OldAgents::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!("on".parse::<OldAgents>().is_err());
    }
}
