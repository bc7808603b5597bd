//! What is known of the nodes that are not well: from the tables for all, from the API server for one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::brake::Seen;
use ebs_csi_safe_detach::lifecycle::{Node as Facts, NodeFacts, OutOfService, Readiness};
use futures_util::future::try_join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::fact;
use crate::seen::{Refused, SeenAttachment, SeenNode, SeenPod, SeenVolume, Watched};
use crate::table::Table;

/// Everything that is watched.
#[derive(Debug, Default)]
pub struct Tables {
    /// Nodes.
    pub nodes: Arc<Table<SeenNode>>,
    /// Pods that have a node and claims.
    pub pods: Arc<Table<SeenPod>>,
    /// PersistentVolumes.
    pub volumes: Arc<Table<SeenVolume>>,
    /// This driver's VolumeAttachments.
    pub attachments: Arc<Table<SeenAttachment>>,
}

/// A node that a step is to be made for.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// Its name.
    pub name: String,
    /// The Node object's uid; empty when it is gone.
    pub uid: String,
    /// What is known.
    pub facts: NodeFacts,
}

impl Suspect {
    /// Whether its Node object is there and not Ready.
    pub fn is_lost(&self) -> bool {
        matches!(&self.facts.object, Fact::Present(node) if node.ready == Readiness::NotReady)
    }
}

fn is_well(node: &Facts) -> bool {
    node.ready == Readiness::Ready && !matches!(node.out_of_service, OutOfService::Ours(_))
}

impl Tables {
    /// Whether each kind has been listed once.
    pub fn are_complete(&self) -> bool {
        self.nodes.is_complete()
            && self.pods.is_complete()
            && self.volumes.is_complete()
            && self.attachments.is_complete()
    }

    /// The nodes that are not Ready, that carry our taint, or of which only attachments are left.
    pub fn suspects(&self) -> Vec<Suspect> {
        let unwell = self.nodes.pick(|seen| !is_well(&seen.node));
        let mut nodes: BTreeMap<String, Option<Arc<SeenNode>>> = unwell
            .into_iter()
            .map(|seen| (seen.name.clone(), Some(seen)))
            .collect();
        let attachments = self.attachments.pick(|attachment| {
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
        for pod in self.pods.pick(|pod| nodes.contains_key(pod.node())) {
            pods.entry(pod.node().to_owned()).or_default().push(pod);
        }
        let suspects = nodes.into_iter().map(|(name, seen)| {
            let attachments = by_node.remove(&name).unwrap_or_default();
            let pods = pods.remove(&name).unwrap_or_default();
            Suspect {
                uid: seen
                    .as_ref()
                    .map(|seen| seen.uid.clone())
                    .unwrap_or_default(),
                facts: NodeFacts {
                    object: match seen {
                        Some(seen) => Fact::Present(seen.node.clone()),
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

    /// The detaches that the controller refuses.
    pub fn refused(&self) -> Vec<Refused> {
        let refused = self.attachments.pick(|seen| seen.refused().is_some());
        let refused = refused.iter().filter_map(|seen| seen.refused().cloned());
        refused.collect()
    }

    /// Whether attachments of the node are left.
    pub(super) fn is_attached(&self, node: &str) -> bool {
        let attached = self.attachments.pick(|seen| seen.node() == node);
        !attached.is_empty()
    }

    /// Since when each node that has our taint has it, by the clock of who set it.
    pub fn taints(&self) -> Vec<Option<Timestamp>> {
        let ours = |seen: &SeenNode| matches!(seen.node.out_of_service, OutOfService::Ours(_));
        let tainted = self.nodes.pick(ours);
        tainted.iter().map(|seen| seen.tainted).collect()
    }

    /// All nodes as the brake counts them, without what was and what is to be done.
    pub fn for_brake(&self, suspects: &[Suspect]) -> Vec<Seen> {
        let seen = |node: &str, zone: &str, suspect| Seen {
            node: node.to_owned(),
            zone: zone.to_owned(),
            suspect,
            acted: false,
            wanted: false,
        };
        let mut all = self.nodes.map(|node| {
            let suspect = node.node.ready == Readiness::NotReady;
            seen(&node.name, &node.zone, suspect)
        });
        let gone = suspects
            .iter()
            .filter(|suspect| suspect.facts.object == Fact::Absent);
        all.extend(gone.map(|suspect| seen(&suspect.name, "", true)));
        all
    }

    /// One node, read anew from the API server: the Node object and its pods. Attachments and volumes are from the tables: an act on one
    /// names its uid.
    ///
    /// # Errors
    /// The API server's.
    pub async fn look(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Option<core::Node>, Suspect), kube::Error> {
        let nodes: Api<core::Node> = Api::all(client.clone());
        let pods: Api<Watched<SeenPod>> = Api::all(client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let (object, pods) = try_join(nodes.get_opt(name), pods.list(&here)).await?;
        let attachments = self.attachments.pick(|seen| seen.node() == name);
        let facts = NodeFacts {
            object: fact(object.as_ref()),
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
            uid: object
                .as_ref()
                .and_then(ResourceExt::uid)
                .unwrap_or_default(),
            facts,
        };
        Ok((object, suspect))
    }
}
