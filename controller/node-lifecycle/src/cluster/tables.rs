//! What is known about unhealthy nodes: about all nodes from the tables, about one node from the
//! API server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::brake::NodeState;
use ebs_csi_safe_detach::lifecycle::{
    Attachment, Node as Facts, NodeFacts, OutOfService, Readiness,
};
use futures_util::future::try_join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::object_table::Table;
use super::{RefusedDetach, SeenAttachment, SeenCsiNode, SeenNode, SeenPod, SeenVolume, Watched};

/// All watched objects.
#[derive(Debug, Default)]
pub struct Tables {
    /// Nodes.
    pub nodes: Arc<Table<SeenNode>>,
    /// What kubelets recorded when this driver registered with them.
    pub csi_nodes: Arc<Table<SeenCsiNode>>,
    /// Pods that have a node and claims.
    pub pods: Arc<Table<SeenPod>>,
    /// PersistentVolumes.
    pub volumes: Arc<Table<SeenVolume>>,
    /// This driver's VolumeAttachments.
    pub attachments: Arc<Table<SeenAttachment>>,
}

/// A node that a step is computed for.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The node's name.
    pub name: String,
    /// The Node object's uid; empty when the object is gone.
    pub uid: String,
    /// The known facts.
    pub facts: NodeFacts,
}

impl Suspect {
    /// Returns whether the Node object exists and is not Ready.
    pub fn is_lost(&self) -> bool {
        matches!(&self.facts.object, Fact::Present(node) if node.ready == Readiness::NotReady)
    }
}

fn is_healthy(node: &Facts) -> bool {
    node.ready == Readiness::Ready && !matches!(node.out_of_service, OutOfService::Ours(_))
}

impl Tables {
    /// Returns whether each kind has been listed once.
    pub fn are_complete(&self) -> bool {
        self.nodes.is_complete()
            && self.pods.is_complete()
            && self.volumes.is_complete()
            && self.attachments.is_complete()
    }

    /// Returns whether the instance of every node is known, where it can be. Not needed where all
    /// nodes have provider ids: until the CSINodes are listed, a node without a provider id has no
    /// known instance.
    pub fn identities_are_complete(&self) -> bool {
        self.nodes.is_complete() && self.csi_nodes.is_complete()
    }

    /// Returns the instance of a node: that of its provider id, or without one that of the CSINode
    /// that belongs to this very Node.
    pub fn instance_of(&self, seen: &SeenNode) -> Option<String> {
        if !seen.lacks_provider_id {
            return seen.node.instance.clone();
        }
        let csi_node = self.csi_nodes.get(&seen.name)?;
        csi_node.instance_of(&seen.uid).map(str::to_owned)
    }

    fn node_fact(&self, seen: &SeenNode) -> Fact<Facts> {
        let instance = self.instance_of(seen);
        Fact::Present(Facts { instance, ..seen.node.clone() })
    }

    /// Returns the nodes that have neither a provider id nor an entry of this driver in their
    /// CSINode: their instance cannot be determined.
    pub fn unidentified(&self) -> Vec<String> {
        let without_id = self.nodes.filter(|seen| seen.lacks_provider_id);
        let unknown = without_id.iter().filter(|seen| self.instance_of(seen).is_none());
        let mut names: Vec<String> = unknown.map(|seen| seen.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns, for the nodes with the startup taint, how many wait for the driver, and the names
    /// of those where the driver is registered and has reported how many volumes it takes.
    pub fn startup_tainted(&self) -> (usize, Vec<String>) {
        let starting = self.nodes.filter(|seen| seen.has_startup_taint);
        let is_ready = |seen: &&Arc<SeenNode>| {
            let csi_node = self.csi_nodes.get(&seen.name);
            csi_node.is_some_and(|csi_node| csi_node.reports_volume_limit(&seen.uid))
        };
        let ready: Vec<String> =
            starting.iter().filter(is_ready).map(|seen| seen.name.clone()).collect();
        (starting.len() - ready.len(), ready)
    }

    /// Returns the nodes that are not Ready, that carry the driver's taint, or of which only
    /// attachments are left.
    pub fn suspects(&self) -> Vec<Suspect> {
        let unhealthy = self.nodes.filter(|seen| !is_healthy(&seen.node));
        let mut nodes: BTreeMap<String, Option<Arc<SeenNode>>> =
            unhealthy.into_iter().map(|seen| (seen.name.clone(), Some(seen))).collect();
        let attachments = self.attachments.filter(|attachment| {
            let node = attachment.node();
            nodes.contains_key(node) || self.nodes.get(node).is_none()
        });
        let mut by_node: HashMap<String, Vec<Arc<SeenAttachment>>> = HashMap::new();
        for attachment in attachments {
            let name = attachment.node().to_owned();
            nodes.entry(name.clone()).or_default();
            by_node.entry(name).or_default().push(attachment);
        }
        if nodes.is_empty() {
            return Vec::new();
        }
        let mut pods: HashMap<String, Vec<Arc<SeenPod>>> = HashMap::new();
        for pod in self.pods.filter(|pod| nodes.contains_key(pod.node())) {
            pods.entry(pod.node().to_owned()).or_default().push(pod);
        }
        let suspects = nodes.into_iter().map(|(name, seen)| {
            let attachments = by_node.remove(&name).unwrap_or_default();
            let pods = pods.remove(&name).unwrap_or_default();
            Suspect {
                uid: seen.as_ref().map(|seen| seen.uid.clone()).unwrap_or_default(),
                facts: NodeFacts {
                    object: match seen {
                        Some(seen) => self.node_fact(&seen),
                        None => Fact::Absent,
                    },
                    attachments: attachments
                        .iter()
                        .map(|attachment| attachment.resolve(&self.volumes))
                        .collect(),
                    pods: pods.iter().map(|pod| pod.resolve(&self.volumes)).collect(),
                    volumes: BTreeMap::new(),
                    instances: BTreeMap::new(),
                },
                name,
            }
        });
        suspects.collect()
    }

    /// Returns the detaches that the controller refuses.
    pub fn refused_detaches(&self) -> Vec<RefusedDetach> {
        let refused = self.attachments.filter(|seen| seen.refused().is_some());
        let refused = refused.iter().filter_map(|seen| seen.refused().cloned());
        refused.collect()
    }

    /// Returns whether every kind that the handling of refused detaches needs has been listed.
    pub fn are_complete_for_refusals(&self) -> bool {
        self.nodes.is_complete() && self.volumes.is_complete() && self.attachments.is_complete()
    }

    /// Returns the attachments whose detach is refused and would be sent to the instance for which
    /// it was refused: a Node object of the same name may by now belong to another instance.
    pub fn refused_attachments(&self) -> Vec<Attachment> {
        let refused = self.attachments.filter(|seen| seen.refused().is_some());
        let refused = refused.iter().map(|seen| (seen.node(), seen.resolve(&self.volumes)));
        let is_same_instance = |node: &str, attachment: &Attachment| match self.nodes.get(node) {
            Some(seen) => self.instance_of(&seen) == attachment.instance,
            None => true,
        };
        refused
            .filter(|(node, attachment)| {
                attachment.instance.is_some() && is_same_instance(node, attachment)
            })
            .map(|(_, attachment)| attachment)
            .collect()
    }

    /// Returns whether the instance of the node that an attachment names is known.
    pub fn is_identified(&self, attachment: &str) -> bool {
        if !self.identities_are_complete() {
            return true;
        }
        let node = self.attachments.get(attachment);
        let node = node.and_then(|seen| self.nodes.get(seen.node()));
        node.is_none_or(|seen| !seen.lacks_provider_id || self.instance_of(&seen).is_some())
    }

    /// Returns whether the node still has attachments.
    pub(crate) fn is_attached(&self, node: &str) -> bool {
        let attached = self.attachments.filter(|seen| seen.node() == node);
        !attached.is_empty()
    }

    /// Returns, for each node with the driver's taint, the time when it was set, by the clock of
    /// the process that set it.
    pub fn own_taint_times(&self) -> Vec<Option<Timestamp>> {
        let has_own_taint =
            |seen: &SeenNode| matches!(seen.node.out_of_service, OutOfService::Ours(_));
        let tainted = self.nodes.filter(has_own_taint);
        tainted.iter().map(|seen| seen.own_taint_time).collect()
    }

    /// Returns all nodes as the brake counts them, without the past and the intended acts.
    pub fn brake_states(&self, suspects: &[Suspect]) -> Vec<NodeState> {
        let state = |node: &str, zone: &str, suspect| NodeState {
            name: node.to_owned(),
            zone: zone.to_owned(),
            suspect,
            acted: false,
            wanted: false,
        };
        let mut all = self.nodes.map(|node| {
            let suspect = node.node.ready == Readiness::NotReady;
            state(&node.name, &node.zone, suspect)
        });
        let gone = suspects.iter().filter(|suspect| suspect.facts.object == Fact::Absent);
        all.extend(gone.map(|suspect| state(&suspect.name, "", true)));
        all
    }

    /// Reads one node again from the API server: the Node object and its pods. Attachments and
    /// volumes come from the tables, because an act on an attachment names its uid.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn read_node(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Option<core::Node>, Suspect), kube::Error> {
        let nodes: Api<core::Node> = Api::all(client.clone());
        let pods: Api<Watched<SeenPod>> = Api::all(client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let (object, pods) = try_join(nodes.get_opt(name), pods.list(&of_node)).await?;
        let attachments = self.attachments.filter(|seen| seen.node() == name);
        let facts = NodeFacts {
            object: match &object {
                Some(object) => self.node_fact(&SeenNode::from_node(object)),
                None => Fact::Absent,
            },
            attachments: attachments
                .iter()
                .map(|attachment| attachment.resolve(&self.volumes))
                .collect(),
            pods: pods
                .into_iter()
                .filter_map(Watched::row)
                .map(|pod| pod.resolve(&self.volumes))
                .collect(),
            volumes: BTreeMap::new(),
            instances: BTreeMap::new(),
        };
        let suspect = Suspect {
            name: name.to_owned(),
            uid: object.as_ref().and_then(ResourceExt::uid).unwrap_or_default(),
            facts,
        };
        Ok((object, suspect))
    }
}
