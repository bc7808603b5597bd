//! The transition function. It is total and pure: no clock, no I/O, no memory.

use ebs_csi_wire::listed_enum;

use crate::facts::Fact;
use crate::lifecycle::{
    Attachment, InstanceEvidence, Node, NodeFacts, ObjectVersion, OutOfService, Pod, TaintedBoot,
    Toleration, eligible,
};

/// The condition under which a pod is force-deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailoverMode {
    /// All volumes of the pod are proved free.
    #[default]
    ProveFirst,
    /// The pod's deletion is requested, or all its volumes are proved free; the controller
    /// refuses the detach when it is not safe.
    Kep,
}

listed_enum! {
    /// The phase of a node, with the label of metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NodePhase with pub fn label -> &'static str {
        /// The node is Ready and does not carry this driver's taint, or it is gone and no
        /// attachment of this driver is left.
        Healthy = "healthy",
        /// The node is not Ready or gone; there is no answer yet, or nothing to ask.
        Suspect = "suspect",
        /// The answers prove nothing.
        Querying = "querying",
        /// The node's instance is off.
        NodeProven = "node-proven",
        /// At least one volume may leave the node.
        VolumesProven = "volumes-proven",
        /// The node carries this driver's taint.
        Acting = "acting",
        /// The node has booted again and still carries this driver's taint.
        Recovering = "recovering",
    }
}

/// An action that should be taken. It names exactly the object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Set this driver's out-of-service taint on the node, about this instance and this boot.
    AddTaint(TaintedBoot),
    /// Remove this driver's taint from the node.
    RemoveTaint,
    /// Force-delete the pod.
    DeletePod(ObjectVersion),
    /// Delete the VolumeAttachment.
    DeleteAttachment(ObjectVersion),
    /// Have the detach of the VolumeAttachment retried at once, whatever its version: the reason of
    /// its refusal is gone.
    RetryDetach(ObjectVersion),
}

impl Intent {
    /// Returns whether the intent takes something from a node, so that the brake applies to it.
    pub const fn is_braked(&self) -> bool {
        match self {
            Self::AddTaint(_) | Self::DeletePod(_) | Self::DeleteAttachment(_) => true,
            // `RemoveTaint` returns the node to use. `RetryDetach` repeats an earlier request, and
            // the controller decides again.
            Self::RemoveTaint | Self::RetryDetach(_) => false,
        }
    }
}

/// The result of [`step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The phase of the node.
    pub phase: NodePhase,
    /// The intents, in the order in which they should be carried out.
    pub intents: Vec<Intent>,
}

impl Transition {
    const fn without_intents(phase: NodePhase) -> Self {
        Self { phase, intents: Vec::new() }
    }
}

/// Returns the phase of a node and the intents for it.
pub fn step(facts: &NodeFacts, mode: FailoverMode) -> Transition {
    match &facts.object {
        Fact::Unknown => Transition::without_intents(NodePhase::Suspect),
        Fact::Absent if facts.attachments.is_empty() => {
            Transition::without_intents(NodePhase::Healthy)
        }
        Fact::Absent => {
            Transition { phase: phase_by_evidence(facts), intents: intents_by_volume(facts, mode) }
        }
        Fact::Present(node) => step_for_object(facts, node, mode),
    }
}

fn step_for_object(facts: &NodeFacts, node: &Node, mode: FailoverMode) -> Transition {
    match (&node.out_of_service, node.ready) {
        (OutOfService::Ours(tainted), is_ready) => {
            let has_rebooted = is_ready && tainted.boot != node.boot;
            let has_leftovers = facts.pods.iter().any(|pod| pod.deleting)
                || facts.attachments.iter().any(|a| is_leftover(facts, a));
            let mut intents = if is_ready {
                Vec::new()
            } else {
                // Kubernetes, which has evicted these pods because of the taint, deletes them as
                // well, but its pod garbage collector runs every 20 s (`gcCheckPeriod` in
                // `pkg/controller/podgc/gc_controller.go`).
                pod_deletions(facts, |pod| pod.deleting && is_proven_free(facts, pod))
            };
            intents.extend(detach_retries(facts));
            if has_rebooted && !has_leftovers {
                intents.push(Intent::RemoveTaint);
            }
            let phase = if has_rebooted { NodePhase::Recovering } else { NodePhase::Acting };
            Transition { phase, intents }
        }
        (OutOfService::None | OutOfService::Foreign, true) => {
            Transition::without_intents(NodePhase::Healthy)
        }
        (OutOfService::Foreign, false) => Transition {
            // Kubernetes evicts and detaches because of that taint; the controller decides each
            // detach.
            phase: phase_by_evidence(facts),
            intents: detach_retries(facts),
        },
        (OutOfService::None, false) => {
            let phase = phase_by_evidence(facts);
            let intents = match (phase, instance_off(facts)) {
                _ if node.opted_out => detach_retries(facts),
                // Kubernetes would evict a pod that is opted out as well.
                (NodePhase::NodeProven, Some((instance, launched)))
                    if affects_only_own_instance(facts, node)
                        && !users(facts).any(|pod| pod.opted_out) =>
                {
                    let (instance, launched) = (instance.to_owned(), launched.to_owned());
                    let boot = node.boot.clone();
                    vec![Intent::AddTaint(TaintedBoot { instance, launched, boot })]
                }
                _ => intents_by_volume(facts, mode),
            };
            Transition { phase, intents }
        }
    }
}

/// Returns the instance of the node and its last launch, if the instance is proved to be off.
fn instance_off(facts: &NodeFacts) -> Option<(&str, &str)> {
    let instance = facts.instance()?;
    match facts.instances.get(instance)? {
        InstanceEvidence::Off { launched } => Some((instance, launched)),
        InstanceEvidence::Running { .. } | InstanceEvidence::NotOff => None,
    }
}

/// Returns whether the taint would affect no other instance. Kubernetes detaches by the node's
/// name, and an attachment of that name may belong to an instance that had the name before.
fn affects_only_own_instance(facts: &NodeFacts, node: &Node) -> bool {
    facts.attachments.iter().all(|a| {
        a.instance.is_none()
            || a.instance == node.instance
            || facts.is_proven(a.instance.as_deref(), &a.volume)
    })
}

/// Returns whether the attachment is left of the boot before this driver's taint. A pod that
/// tolerates the taint stays on the node, and so does what it uses.
fn is_leftover(facts: &NodeFacts, attachment: &Attachment) -> bool {
    let stays = |pod: &&Pod| {
        !pod.deleting && !pod.ended && pod.tolerations.iter().any(Toleration::covers_out_of_service)
    };
    let mut needed = facts.pods.iter().filter(stays).flat_map(Pod::volumes);
    attachment.deleting
        || attachment.instance.as_deref() != facts.instance()
        || needed.all(|volume| volume != attachment.volume)
}

/// Returns the phase of a node that is not Ready or gone.
fn phase_by_evidence(facts: &NodeFacts) -> NodePhase {
    let questions = facts.questions();
    if questions.is_empty() {
        // The node has volumes of other drivers, or none: nothing for this driver to do.
        return NodePhase::Suspect;
    }
    if instance_off(facts).is_some() {
        return NodePhase::NodeProven;
    }
    if questions.iter().any(|(instance, volume)| facts.is_proven(Some(instance), volume)) {
        return NodePhase::VolumesProven;
    }
    let has_answer = questions.iter().any(|question| facts.volumes.contains_key(question));
    if has_answer { NodePhase::Querying } else { NodePhase::Suspect }
}

/// Returns the deletions of the pods that may go, apart from those that this driver never deletes.
fn pod_deletions(facts: &NodeFacts, may_go: impl Fn(&Pod) -> bool) -> Vec<Intent> {
    let pods = users(facts).filter(|pod| eligible(pod).is_ok() && may_go(pod));
    pods.map(|pod| Intent::DeletePod(pod.object.clone())).collect()
}

/// Returns the pods that have not ended, and those that are being deleted.
fn users(facts: &NodeFacts) -> impl Iterator<Item = &Pod> {
    facts.pods.iter().filter(|pod| !pod.ended || pod.deleting)
}

fn is_proven_free(facts: &NodeFacts, pod: &Pod) -> bool {
    let here = facts.instance();
    pod.volumes().all(|volume| facts.is_proven(here, volume))
}

/// Returns the deletions of pods first, then of the attachments that no pod needs any more. In the
/// opposite order, Kubernetes would attach the volumes again.
fn intents_by_volume(facts: &NodeFacts, mode: FailoverMode) -> Vec<Intent> {
    let mut intents = pod_deletions(facts, |pod| match mode {
        FailoverMode::ProveFirst => is_proven_free(facts, pod),
        FailoverMode::Kep => pod.deleting || is_proven_free(facts, pod),
    });
    let is_needed = |a: &Attachment| users(facts).flat_map(Pod::volumes).any(|v| v == a.volume);
    let attachments = facts
        .attachments
        .iter()
        .filter(|a| !a.deleting && !is_needed(a) && targets_own_instance(facts, a))
        .filter(|a| mode == FailoverMode::Kep || facts.is_proven(a.instance.as_deref(), &a.volume))
        .map(|a| Intent::DeleteAttachment(a.object.clone()));
    intents.extend(attachments);
    intents.extend(detach_retries(facts));
    intents
}

/// Returns whether a detach by this attachment would be sent to the instance that it was made for:
/// a Node object of the same name may belong to another instance.
fn targets_own_instance(facts: &NodeFacts, attachment: &Attachment) -> bool {
    match &facts.object {
        Fact::Present(node) => node.instance.is_some() && attachment.instance == node.instance,
        Fact::Absent => attachment.instance.is_some(),
        Fact::Unknown => false,
    }
}

fn detach_retries(facts: &NodeFacts) -> Vec<Intent> {
    facts
        .attachments
        .iter()
        .filter(|a| a.deleting && !a.retry_requested && targets_own_instance(facts, a))
        .filter(|a| facts.is_proven(a.instance.as_deref(), &a.volume))
        .map(|a| Intent::RetryDetach(a.object.clone()))
        .collect()
}

#[cfg(test)]
pub(super) mod tests;
