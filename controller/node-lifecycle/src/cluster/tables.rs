//! What is known about unhealthy nodes: about all nodes from the tables, about one node from the
//! API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::brake::NodeState;
use ebs_csi_safe_detach::lifecycle::{self, Attachment, NodeFacts, OutOfService};
use futures_util::future::try_join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, Client};

use super::object_table::{Table, TableRow, sync_table};
use super::{
    AGENT_PODS, AgentPodRow, AttachmentRow, CsiNodeRow, NodeRow, PodRow, RefusedDetach, Retained,
    VolumeRow, Watched,
};

/// All watched objects.
#[derive(Debug, Default)]
pub struct Tables {
    pub(crate) nodes: Arc<Table<NodeRow>>,
    /// What kubelets recorded when this driver registered with them.
    pub(crate) csi_nodes: Arc<Table<CsiNodeRow>>,
    /// Pods that have a node, and claims or the opt-out.
    pub(crate) pods: Arc<Table<PodRow>>,
    pub(crate) volumes: Arc<Table<VolumeRow>>,
    pub(crate) attachments: Arc<Table<AttachmentRow>>,
}

/// A task of the process, which runs for ever.
pub type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn watch<T>(client: &Client, table: &Arc<Table<T>>) -> Task
where
    T: Retained + TableRow + Debug + Send + Sync + 'static,
{
    Box::pin(sync_table(Api::all(client.clone()), "", Arc::clone(table)))
}

/// Returns the table of the node-agents' pods in a namespace, and the task that follows them.
pub fn watch_agent_pods(client: &Client, namespace: &str) -> (Arc<Table<AgentPodRow>>, Task) {
    let table = Arc::default();
    let api = Api::namespaced(client.clone(), namespace);
    let task = sync_table(api, AGENT_PODS, Arc::clone(&table));
    (table, Box::pin(task))
}

/// A node that a step is computed for.
#[derive(Clone, Debug)]
pub(crate) struct Suspect {
    pub(crate) name: String,
    /// The Node object's uid; empty when the object is gone.
    pub(crate) uid: String,
    pub(crate) facts: NodeFacts,
}

impl Suspect {
    /// Returns whether the Node object exists and is not Ready.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(&self.facts.object, Fact::Present(node) if !node.ready)
    }
}

fn has_own_taint(node: &lifecycle::Node) -> bool {
    matches!(node.out_of_service, OutOfService::Ours(_))
}

fn is_healthy(node: &lifecycle::Node) -> bool {
    node.ready && !has_own_taint(node)
}

impl Tables {
    /// Returns the tasks that follow the nodes, and what kubelets recorded about them.
    pub fn watch_nodes(&self, client: &Client) -> [Task; 2] {
        [watch(client, &self.nodes), watch(client, &self.csi_nodes)]
    }

    /// Returns the tasks that follow the volumes, their attachments, and the pods.
    pub fn watch_volumes_and_pods(&self, client: &Client) -> [Task; 3] {
        [watch(client, &self.volumes), watch(client, &self.attachments), watch(client, &self.pods)]
    }

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
    pub(crate) fn identities_are_complete(&self) -> bool {
        self.nodes.is_complete() && self.csi_nodes.is_complete()
    }

    /// Returns the instance of a node: that of its provider id, or without one that of the CSINode
    /// that belongs to this very Node.
    pub(crate) fn instance_of(&self, row: &NodeRow) -> Option<String> {
        if !row.lacks_provider_id {
            return row.node.instance.clone();
        }
        let csi_node = self.csi_nodes.get(&row.name)?;
        csi_node.instance_of(&row.uid).map(str::to_owned)
    }

    /// Returns a node with the facts about it, without the controller's answers; `None` stands for
    /// a missing Node object.
    fn suspect(
        &self,
        name: &str,
        row: Option<&NodeRow>,
        attachments: &[Arc<AttachmentRow>],
        pods: &[Arc<PodRow>],
    ) -> Suspect {
        let present = |row: &NodeRow| {
            let instance = self.instance_of(row);
            Fact::Present(lifecycle::Node { instance, ..row.node.clone() })
        };
        let facts = NodeFacts {
            object: row.map_or(Fact::Absent, present),
            attachments: attachments.iter().map(|row| row.resolve(&self.volumes)).collect(),
            pods: pods.iter().map(|row| row.resolve(&self.volumes)).collect(),
            ..NodeFacts::default()
        };
        let uid = row.map(|row| row.uid.clone()).unwrap_or_default();
        Suspect { name: name.to_owned(), uid, facts }
    }

    /// Returns the nodes that have neither a provider id nor an entry of this driver in their
    /// CSINode: their instance cannot be determined.
    pub fn unidentified(&self) -> BTreeSet<String> {
        let without_id = self.nodes.filter(|row| row.lacks_provider_id);
        let unknown = without_id.iter().filter(|row| self.instance_of(row).is_none());
        unknown.map(|row| row.name.clone()).collect()
    }

    /// Returns, for the nodes with the startup taint, how many wait for the driver, and the names
    /// of those where the driver is registered and has reported how many volumes it takes.
    pub(crate) fn startup_tainted(&self) -> (usize, Vec<String>) {
        let starting = self.nodes.filter(|row| row.has_startup_taint);
        let is_ready = |row: &&Arc<NodeRow>| {
            let csi_node = self.csi_nodes.get(&row.name);
            csi_node.is_some_and(|csi_node| csi_node.reports_volume_limit(&row.uid))
        };
        let ready: Vec<String> =
            starting.iter().filter(is_ready).map(|row| row.name.clone()).collect();
        (starting.len() - ready.len(), ready)
    }

    /// Returns the nodes that are not Ready, that carry the driver's taint, or of which only
    /// attachments are left.
    pub(crate) fn suspects(&self) -> Vec<Suspect> {
        let unhealthy = self.nodes.filter(|row| !is_healthy(&row.node));
        let mut nodes: BTreeMap<String, Option<Arc<NodeRow>>> =
            unhealthy.into_iter().map(|row| (row.name.clone(), Some(row))).collect();
        let attachments = self.attachments.filter(|attachment| {
            let node = attachment.node();
            nodes.contains_key(node) || self.nodes.get(node).is_none()
        });
        let mut by_node: HashMap<String, Vec<Arc<AttachmentRow>>> = HashMap::new();
        for attachment in attachments {
            let name = attachment.node().to_owned();
            nodes.entry(name.clone()).or_default();
            by_node.entry(name).or_default().push(attachment);
        }
        if nodes.is_empty() {
            return Vec::new();
        }
        let mut pods: HashMap<String, Vec<Arc<PodRow>>> = HashMap::new();
        for pod in self.pods.filter(|pod| nodes.contains_key(pod.node())) {
            pods.entry(pod.node().to_owned()).or_default().push(pod);
        }
        let suspects = nodes.into_iter().map(|(name, row)| {
            let attachments = by_node.remove(&name).unwrap_or_default();
            let pods = pods.remove(&name).unwrap_or_default();
            self.suspect(&name, row.as_deref(), &attachments, &pods)
        });
        suspects.collect()
    }

    pub(crate) fn refused_detaches(&self) -> Vec<RefusedDetach> {
        let all = self.attachments.map(|row| row.refused().cloned());
        all.into_iter().flatten().collect()
    }

    /// Returns the pods that cannot start before the attachment is gone.
    pub(crate) fn pods_waiting_for_end(&self, attachment: &str) -> Vec<Arc<PodRow>> {
        let volume = self.attachments.get(attachment);
        let volume = volume.and_then(|row| self.volumes.get(row.persistent_volume()));
        match volume.as_ref().and_then(|volume| volume.second_key()) {
            Some(claim) => self.pods.filter(|pod| pod.waits_for(claim)),
            None => Vec::new(),
        }
    }

    /// Returns whether every kind that the handling of refused detaches needs has been listed.
    pub(crate) fn are_complete_for_refusals(&self) -> bool {
        self.nodes.is_complete() && self.volumes.is_complete() && self.attachments.is_complete()
    }

    /// Returns the attachments whose detach is refused and would be sent to the instance for which
    /// it was refused: a Node object of the same name may by now belong to another instance.
    pub(crate) fn refused_attachments(&self) -> Vec<Attachment> {
        let refused = self.attachments.filter(|row| row.refused().is_some());
        let attachment = |row: &Arc<AttachmentRow>| {
            let attachment = row.resolve(&self.volumes);
            let node = self.nodes.get(row.node());
            let is_same = node.is_none_or(|node| self.instance_of(&node) == attachment.instance);
            (attachment.instance.is_some() && is_same).then_some(attachment)
        };
        refused.iter().filter_map(attachment).collect()
    }

    /// Returns whether the instance of the node that an attachment names is known.
    pub(crate) fn is_identified(&self, attachment: &str) -> bool {
        if !self.identities_are_complete() {
            return true;
        }
        let node = self.attachments.get(attachment);
        let node = node.and_then(|row| self.nodes.get(row.node()));
        node.is_none_or(|row| !row.lacks_provider_id || self.instance_of(&row).is_some())
    }

    /// Returns the volumes whose VolumeAttachments at a node are being deleted.
    pub(crate) fn volumes_leaving(&self, node: &str) -> Vec<String> {
        let of_node = self.attachments.filter(|row| row.node() == node);
        let resolved = of_node.iter().map(|row| row.resolve(&self.volumes));
        resolved.filter(|attachment| attachment.deleting).map(|found| found.volume).collect()
    }

    pub(crate) fn is_attached(&self, node: &str) -> bool {
        !self.attachments.filter(|row| row.node() == node).is_empty()
    }

    /// Returns, for each node with the driver's taint, the time when it was set, by the clock of
    /// the process that set it.
    pub(crate) fn own_taint_times(&self) -> Vec<Option<Timestamp>> {
        let tainted = self.nodes.filter(|row| has_own_taint(&row.node));
        tainted.iter().map(|row| row.own_taint_time).collect()
    }

    /// Returns all nodes as the brake counts them, without the past and the intended acts.
    pub(crate) fn brake_states(&self, suspects: &[Suspect]) -> Vec<NodeState> {
        let state = |node: &str, zone: &str, suspect| NodeState {
            name: node.to_owned(),
            zone: zone.to_owned(),
            suspect,
            ..NodeState::default()
        };
        let mut all = self.nodes.map(|node| state(&node.name, &node.zone, !node.node.ready));
        let gone = suspects.iter().filter(|suspect| suspect.facts.object == Fact::Absent);
        all.extend(gone.map(|suspect| state(&suspect.name, "", true)));
        all
    }

    /// Reads one node again from the API server: the Node object and its pods. Attachments and
    /// volumes come from the tables, because an act on an attachment names its uid.
    pub(crate) async fn read_node(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Option<core::Node>, Suspect), kube::Error> {
        let nodes: Api<core::Node> = Api::all(client.clone());
        let pods: Api<Watched<PodRow>> = Api::all(client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let (object, pods) = try_join(nodes.get_opt(name), pods.list(&of_node)).await?;
        let row = object.as_ref().map(NodeRow::from_node).transpose()?;
        let attachments = self.attachments.filter(|row| row.node() == name);
        let pods: Vec<_> = pods.into_iter().filter_map(Watched::row).collect();
        let suspect = self.suspect(name, row.as_ref(), &attachments, &pods);
        Ok((object, suspect))
    }
}
