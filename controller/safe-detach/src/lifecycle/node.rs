//! What is seen of one node.

use std::collections::BTreeMap;

use crate::decide::{Refusal, Rung, Verdict};
use crate::facts::Fact;
use crate::lifecycle::Pod;

/// Everything that a step may rest on, for one node name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The Node object. Absent only by evidence: a complete list of nodes without it.
    pub object: Fact<Node>,
    /// The VolumeAttachments of this driver that name the node.
    pub attachments: Vec<Attachment>,
    /// The pods bound to the node that use a volume of this driver.
    pub pods: Vec<Pod>,
    /// What the controller answered, by instance and volume. What is not in it is not known.
    pub volumes: BTreeMap<(String, String), Evidence>,
    /// What the controller answered, by instance. What is not in it is not known.
    pub instances: BTreeMap<String, InstanceEvidence>,
}

/// What a Node object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its Ready condition.
    pub ready: Readiness,
    /// The instance that `spec.providerID` names.
    pub instance: Option<String>,
    /// `status.nodeInfo.bootID`.
    pub boot: String,
    /// The out-of-service taint, if there is one.
    pub out_of_service: OutOfService,
    /// A person has asked that this driver leaves the node alone.
    pub opted_out: bool,
    /// A person allows that its instance is stopped to prove it dead.
    pub may_fence: bool,
    /// It has been seen not Ready for as long as a fence must wait.
    pub lost_for_long: bool,
}

/// The Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// True.
    Ready,
    /// False, Unknown or missing.
    NotReady,
}

/// The taint `node.kubernetes.io/out-of-service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutOfService {
    /// There is none.
    None,
    /// This driver's: its value, and the annotation that says about what.
    Ours(Return),
    /// Anybody else's. It is never changed.
    Foreign,
}

/// What this driver's annotation says: of what the taint tells, so that its return can be proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// The instance that was off.
    pub instance: String,
    /// When EC2 had last launched it.
    pub launched: String,
    /// The boot that had ended.
    pub boot: String,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its uid: an act names exactly this object.
    pub uid: String,
    /// The version that was looked at: once the volume is attached by it, it is another.
    pub version: String,
    /// The volume.
    pub volume: String,
    /// The instance that it attached the volume to, where that is known.
    pub instance: Option<String>,
    /// Its deletion has been asked for.
    pub deleting: bool,
    /// The evidence that was written on it, to have a refused detach tried again at once.
    pub nudged: bool,
}

/// What the controller's answer about one attachment is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The volume may leave: EC2 shows no attachment, or there is proof that nothing uses it there.
    Proven,
    /// It becomes clear by itself.
    Waiting,
    /// The instance runs, or nobody knows.
    Unproven,
}

impl From<Verdict> for Evidence {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Proven,
            // The orchestrator's word: here that would be our own.
            Verdict::Safe(Rung::Trusted) => Self::Unproven,
            Verdict::Safe(
                Rung::Terminated
                | Rung::Stopped
                | Rung::Fenced
                | Rung::NodeWord
                | Rung::BrokenGlass,
            ) => Self::Proven,
            Verdict::Wait(_) => Self::Waiting,
            Verdict::Refuse(_) => Self::Unproven,
        }
    }
}

/// What the controller's answer about one instance is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvidence {
    /// It is off, and its memory was not saved.
    Off {
        /// When EC2 last launched it (RFC 3339); empty when EC2 does not say.
        launched: String,
    },
    /// It runs: EC2 says so.
    Running {
        /// Present when EC2's status checks of it or of its host fail, absent when they pass. They never prove that it does not write.
        impaired: Fact<()>,
    },
    /// It changes, its memory was saved, or nobody knows.
    NotOff,
}

impl InstanceEvidence {
    /// Of the controller's verdict, the time of the last launch, and whether status checks fail.
    pub fn new(verdict: Verdict, launched: String, impaired: Fact<()>) -> Self {
        match verdict {
            Verdict::Safe(Rung::Terminated | Rung::Stopped | Rung::Fenced) => {
                Self::Off { launched }
            }
            Verdict::Refuse(Refusal::Running) => Self::Running { impaired },
            // The others say nothing about the whole instance.
            Verdict::Safe(Rung::NodeWord | Rung::Trusted | Rung::BrokenGlass)
            | Verdict::Done
            | Verdict::Wait(_)
            | Verdict::Refuse(_) => Self::NotOff,
        }
    }
}

impl NodeFacts {
    /// The instance that the node's pods run on: the Node object's, else the one that the attachments agree on.
    pub fn instance(&self) -> Option<&str> {
        match &self.object {
            Fact::Present(node) => node.instance.as_deref(),
            Fact::Unknown => None,
            Fact::Absent => {
                let mut named = self.attachments.iter().map(|a| a.instance.as_deref());
                let first = named.next()??;
                named.all(|other| other == Some(first)).then_some(first)
            }
        }
    }

    /// What is known of a volume at an instance.
    pub fn of_volume(&self, instance: Option<&str>, volume: &str) -> Option<Evidence> {
        let key = (instance?.to_owned(), volume.to_owned());
        self.volumes.get(&key).copied()
    }

    /// Whether a volume is proved free at an instance.
    pub fn is_proven(&self, instance: Option<&str>, volume: &str) -> bool {
        self.of_volume(instance, volume) == Some(Evidence::Proven)
    }

    /// What the controller must be asked: every pair of instance and volume that a step could rest on.
    pub fn questions(&self) -> Vec<(String, String)> {
        let here = self.instance();
        let of_pods = self
            .pods
            .iter()
            .flat_map(|pod| pod.volumes())
            .filter_map(|volume| Some((here?.to_owned(), volume.to_owned())));
        let of_attachments = self
            .attachments
            .iter()
            .filter_map(|a| Some((a.instance.clone()?, a.volume.clone())));
        let mut all: Vec<_> = of_attachments.chain(of_pods).collect();
        all.sort();
        all.dedup();
        all
    }
}
