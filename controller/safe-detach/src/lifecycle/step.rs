//! The transition function. Total and pure: no clock, no I/O, no memory.

use crate::facts::Fact;
use crate::lifecycle::{
    Attachment, InstanceEvidence, Node, NodeFacts, OutOfService, Pod, Readiness, Return, eligible,
};

/// What is asked of a pod before it is deleted by force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailoverMode {
    /// All of its volumes are proved free.
    #[default]
    ProveFirst,
    /// Kubernetes has asked it to end; the detach is refused by the controller when it is not safe.
    Kep,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Ready, or there is nothing of this driver on what is left of it.
    Healthy,
    /// Not Ready or gone; nothing has been answered yet.
    Suspect,
    /// The answers prove nothing.
    Querying,
    /// Its instance is off.
    NodeProven,
    /// One volume or more may leave it.
    VolumesProven,
    /// It carries our taint.
    Acting,
    /// It has booted again and still carries our taint.
    Recovering,
}

impl Phase {
    /// All, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Healthy,
        Self::Suspect,
        Self::Querying,
        Self::NodeProven,
        Self::VolumesProven,
        Self::Acting,
        Self::Recovering,
    ];

    /// The label of metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Querying => "querying",
            Self::NodeProven => "node-proven",
            Self::VolumesProven => "volumes-proven",
            Self::Acting => "acting",
            Self::Recovering => "recovering",
        }
    }
}

/// What should be done. Each names exactly the object that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Give the node our out-of-service taint, about this instance and this boot.
    AddTaint(Return),
    /// Take our taint from the node.
    RemoveTaint,
    /// Delete the pod by force.
    DeletePod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
        /// The version that was looked at.
        version: String,
    },
    /// Delete the VolumeAttachment.
    DeleteAttachment {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
        /// The version that was looked at.
        version: String,
    },
    /// Have the detach of a VolumeAttachment tried again at once: what it was refused for has ended.
    Nudge {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

impl Intent {
    /// Whether it takes something from a node, and so goes through the brake.
    pub const fn is_braked(&self) -> bool {
        match self {
            Self::AddTaint(_) | Self::DeletePod { .. } | Self::DeleteAttachment { .. } => true,
            // The one gives back; the other repeats what was asked for, and the controller judges it again.
            Self::RemoveTaint | Self::Nudge { .. } => false,
        }
    }
}

/// What follows from the facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the node is.
    pub phase: Phase,
    /// What should be done, in this order.
    pub intents: Vec<Intent>,
}

impl Step {
    const fn nothing(phase: Phase) -> Self {
        Self {
            phase,
            intents: Vec::new(),
        }
    }
}

/// What a node is, and what should be done about it.
pub fn step(facts: &NodeFacts, mode: FailoverMode) -> Step {
    match &facts.object {
        Fact::Unknown => Step::nothing(Phase::Suspect),
        Fact::Absent if facts.attachments.is_empty() => Step::nothing(Phase::Healthy),
        Fact::Absent => Step {
            phase: of_evidence(facts),
            intents: volume_by_volume(facts, mode),
        },
        Fact::Present(node) => of_object(facts, node, mode),
    }
}

fn of_object(facts: &NodeFacts, node: &Node, mode: FailoverMode) -> Step {
    match (&node.out_of_service, node.ready) {
        (OutOfService::Ours(about), ready) => {
            let back = ready == Readiness::Ready && about.boot != node.boot;
            let left = !facts.attachments.is_empty() || facts.pods.iter().any(|pod| pod.deleting);
            let mut intents = nudges(facts);
            if back && !left {
                intents.push(Intent::RemoveTaint);
            }
            let phase = if back {
                Phase::Recovering
            } else {
                Phase::Acting
            };
            Step { phase, intents }
        }
        (OutOfService::None | OutOfService::Foreign, Readiness::Ready) => Step {
            phase: Phase::Healthy,
            intents: Vec::new(),
        },
        (OutOfService::Foreign, Readiness::NotReady) => Step {
            // Kubernetes takes everything from it on that person's word; the controller judges each detach.
            phase: of_evidence(facts),
            intents: nudges(facts),
        },
        (OutOfService::None, Readiness::NotReady) => {
            let phase = of_evidence(facts);
            let intents = match (phase, off(facts)) {
                _ if node.opted_out => nudges(facts),
                (Phase::NodeProven, Some((instance, launched))) if is_alone(facts, node) => {
                    vec![Intent::AddTaint(Return {
                        instance: instance.to_owned(),
                        launched: launched.to_owned(),
                        boot: node.boot.clone(),
                    })]
                }
                _ => volume_by_volume(facts, mode),
            };
            Step { phase, intents }
        }
    }
}

/// The instance of the node, and when it was last launched, if it is proved to be off.
fn off(facts: &NodeFacts) -> Option<(&str, &str)> {
    let instance = facts.instance()?;
    match facts.instances.get(instance)? {
        InstanceEvidence::Off { launched } => Some((instance, launched)),
        InstanceEvidence::Running { .. } | InstanceEvidence::NotOff => None,
    }
}

/// Whether the taint would touch no other instance: Kubernetes detaches by the node's name, and an attachment of that name may be of an instance
/// that had it before.
fn is_alone(facts: &NodeFacts, node: &Node) -> bool {
    facts.attachments.iter().all(|a| {
        a.instance.is_none()
            || a.instance == node.instance
            || facts.is_proven(a.instance.as_deref(), &a.volume)
    })
}

/// The phase of a node that is not Ready or gone.
fn of_evidence(facts: &NodeFacts) -> Phase {
    let asked = facts.questions();
    if asked.is_empty() {
        // Other drivers' volumes, or none: this driver has no business there.
        return Phase::Suspect;
    }
    if off(facts).is_some() {
        return Phase::NodeProven;
    }
    if asked
        .iter()
        .any(|(instance, volume)| facts.is_proven(Some(instance), volume))
    {
        return Phase::VolumesProven;
    }
    let answered = asked
        .iter()
        .any(|(instance, volume)| facts.of_volume(Some(instance), volume).is_some());
    if answered {
        Phase::Querying
    } else {
        Phase::Suspect
    }
}

/// Pods first, then the attachments that no pod needs any more: the other way round, Kubernetes would attach them again.
fn volume_by_volume(facts: &NodeFacts, mode: FailoverMode) -> Vec<Intent> {
    let here = facts.instance();
    let all_proven = |pod: &Pod| pod.volumes().all(|volume| facts.is_proven(here, volume));
    let may_go = |pod: &Pod| match mode {
        FailoverMode::ProveFirst => all_proven(pod),
        FailoverMode::Kep => pod.deleting || all_proven(pod),
    };
    let pods = facts
        .pods
        .iter()
        .filter(|pod| !pod.ended || pod.deleting)
        .filter(|pod| eligible(pod).is_ok() && may_go(pod))
        .map(|pod| Intent::DeletePod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            version: pod.version.clone(),
        });
    let needed = |a: &Attachment| {
        let mut pods = facts.pods.iter().filter(|pod| !pod.ended || pod.deleting);
        pods.any(|pod| pod.volumes().any(|volume| volume == a.volume))
    };
    let attachments = facts
        .attachments
        .iter()
        .filter(|a| !a.deleting && !needed(a) && is_of(facts, a))
        .filter(|a| mode == FailoverMode::Kep || facts.is_proven(a.instance.as_deref(), &a.volume))
        .map(|a| Intent::DeleteAttachment {
            name: a.name.clone(),
            uid: a.uid.clone(),
            version: a.version.clone(),
        });
    pods.chain(attachments).chain(nudges(facts)).collect()
}

/// Whether a detach by this attachment would be sent to the instance that it was made for: a Node object of the same name may be another one's.
fn is_of(facts: &NodeFacts, attachment: &Attachment) -> bool {
    match &facts.object {
        Fact::Present(node) => node.instance.is_some() && attachment.instance == node.instance,
        Fact::Absent => attachment.instance.is_some(),
        Fact::Unknown => false,
    }
}

fn nudges(facts: &NodeFacts) -> Vec<Intent> {
    facts
        .attachments
        .iter()
        .filter(|a| a.deleting && !a.nudged && is_of(facts, a))
        .filter(|a| facts.is_proven(a.instance.as_deref(), &a.volume))
        .map(|a| Intent::Nudge {
            name: a.name.clone(),
            uid: a.uid.clone(),
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests;
