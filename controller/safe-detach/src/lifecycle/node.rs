//! The facts about one node.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::{Evidence, Refusal, Verdict};
use crate::facts::Fact;
use crate::lifecycle::{ObjectVersion, Pod};

/// All facts that a step may rest on, for one node name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The Node object. Absent only by evidence: a complete list of nodes without it.
    pub object: Fact<Node>,
    /// The VolumeAttachments of this driver that name the node.
    pub attachments: Vec<Attachment>,
    /// The pods bound to the node that use a volume of this driver.
    pub pods: Vec<Pod>,
    /// The controller's answers, by instance and volume. A missing pair is unknown.
    pub volumes: BTreeMap<(String, String), VolumeEvidence>,
    /// The controller's answers, by instance. A missing instance is unknown.
    pub instances: BTreeMap<String, InstanceEvidence>,
}

/// The contents of a Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether the node's condition Ready is True.
    pub ready: bool,
    /// The instance that `spec.providerID` names.
    pub instance: Option<String>,
    /// `status.nodeInfo.bootID`.
    pub boot: String,
    /// The out-of-service taint, if there is one.
    pub out_of_service: OutOfService,
    /// Whether a person has opted the node out of failover.
    pub opted_out: bool,
    /// Whether a person permits that the node's instance is stopped to prove the node dead.
    pub may_fence: bool,
    /// Whether the node has been not Ready for as long as a fence must wait.
    pub lost_for_long: bool,
}

/// The taint `node.kubernetes.io/out-of-service`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OutOfService {
    /// There is no such taint.
    #[default]
    None,
    /// This driver's taint, with the annotation that describes the instance and boot of the taint.
    Ours(TaintedBoot),
    /// A taint of anybody else. It is never changed.
    Foreign,
}

/// The contents of this driver's annotation: the boot for which the taint was set, so that another
/// boot can prove that the node is back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaintedBoot {
    /// The instance that was off.
    pub instance: String,
    /// When EC2 had last launched the instance.
    pub launched: String,
    /// The boot that had ended.
    pub boot: String,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The object. Its version changes once the volume is attached by this object.
    pub object: ObjectVersion,
    /// The volume.
    pub volume: String,
    /// The instance to which the volume was attached, if known.
    pub instance: Option<String>,
    /// Whether the VolumeAttachment's deletion has been requested.
    pub deleting: bool,
    /// Whether the VolumeAttachment has the annotation that makes external-attacher retry a refused
    /// detach at once.
    pub retry_requested: bool,
}

/// The value of the controller's answer about one attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeEvidence {
    /// The volume may leave: EC2 shows no attachment, or there is proof that nothing uses the
    /// volume at the instance.
    Proven,
    /// The state becomes clear without further action.
    Waiting,
    /// The instance runs, or the state is unknown.
    Unproven,
}

impl From<Verdict> for VolumeEvidence {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            // `Trusted` rests on the orchestrator's request, which here would be this driver's own.
            Verdict::Safe(Evidence::Trusted) | Verdict::Refuse(_) => Self::Unproven,
            Verdict::Safe(Evidence::Terminated | Evidence::Stopped | Evidence::Fenced)
            | Verdict::Safe(Evidence::NodeAnswer | Evidence::KubeletReport)
            | Verdict::Safe(Evidence::OverrideOrder)
            | Verdict::Done => Self::Proven,
            Verdict::Wait(_) => Self::Waiting,
        }
    }
}

/// The value of the controller's answer about one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvidence {
    /// The instance is off, and its memory was not saved.
    Off {
        /// When EC2 last launched the instance (RFC 3339); empty when EC2 does not report it.
        launched: String,
    },
    /// EC2 reports that the instance runs.
    Running {
        /// Present when EC2's status checks of the instance or of its host fail, absent when they
        /// pass. They never prove that the instance does not write.
        impaired: Fact<()>,
    },
    /// The instance is in a transitional state, its memory was saved, or its state is unknown.
    NotOff,
}

impl InstanceEvidence {
    /// Converts the controller's verdict, the time of the last launch, and whether status checks
    /// fail.
    pub fn new(verdict: Verdict, launched: String, impaired: Fact<()>) -> Self {
        match verdict {
            Verdict::Safe(Evidence::Terminated | Evidence::Stopped | Evidence::Fenced) => {
                Self::Off { launched }
            }
            Verdict::Refuse(Refusal::Running) => Self::Running { impaired },
            // The other verdicts prove nothing about the whole instance.
            Verdict::Safe(Evidence::NodeAnswer | Evidence::KubeletReport)
            | Verdict::Safe(Evidence::Trusted | Evidence::OverrideOrder)
            | Verdict::Done
            | Verdict::Wait(_)
            | Verdict::Refuse(_) => Self::NotOff,
        }
    }
}

impl NodeFacts {
    /// Returns the instance on which the node's pods run: the Node object's, otherwise the one that
    /// the attachments agree on.
    pub fn instance(&self) -> Option<&str> {
        match &self.object {
            Fact::Present(node) => node.instance.as_deref(),
            Fact::Unknown => None,
            Fact::Absent => {
                let mut instances = self.attachments.iter().map(|a| a.instance.as_deref());
                let first = instances.next()??;
                instances.all(|other| other == Some(first)).then_some(first)
            }
        }
    }

    /// Returns whether a volume is proved free at an instance.
    pub fn is_proven(&self, instance: Option<&str>, volume: &str) -> bool {
        let key = instance.map(|instance| (instance.to_owned(), volume.to_owned()));
        key.and_then(|key| self.volumes.get(&key)) == Some(&VolumeEvidence::Proven)
    }

    /// Returns the questions for the controller: every pair of instance and volume that a step
    /// could rest on.
    pub fn questions(&self) -> BTreeSet<(String, String)> {
        let instance = self.instance();
        let of_pods = self.pods.iter().flat_map(Pod::volumes);
        let of_pods = of_pods.filter_map(|volume| Some((instance?.to_owned(), volume.to_owned())));
        let of_attachments =
            self.attachments.iter().filter_map(|a| Some((a.instance.clone()?, a.volume.clone())));
        of_attachments.chain(of_pods).collect()
    }
}
