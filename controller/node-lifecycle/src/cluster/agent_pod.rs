//! Pods of the node-agent.

use ebs_csi_proto::keys::{ATTACH_LIMIT, DRAINING, HELD_PORT, LEAVING, NodeFact};
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde_json::{Value, json};

use super::object_table::{TableRow, Texts};
use super::{Object, Retained, node_fact};

/// The label of the pods, as a selector.
pub(crate) const AGENT_PODS: &str = "ebs.csi.aws.com/component=node-agent";

const KEY: usize = 0;
const NODE: usize = 1;
const UID: usize = 2;
const VERSION: usize = 3;
const IP: usize = 4;
const PORT: usize = 5;
const PROMISES: usize = 6;
const LIMIT: usize = 7;

/// A pod of a DaemonSet of the driver that is bound to a node and is not ending: kubelet no longer
/// shows new annotations to a pod that ends.
#[derive(Clone, Debug)]
pub struct AgentPodRow {
    texts: Texts<8>,
    has_fact: [bool; NodeFact::ALL.len()],
    pub(crate) draining: bool,
    pub(crate) restarted: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    container_statuses: Vec<ContainerStatus>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    restart_count: i32,
}

impl TableRow for AgentPodRow {
    fn key(&self) -> &str {
        self.texts.get(KEY)
    }
}

impl Retained for AgentPodRow {
    type Kind = core::Pod;
    type Spec = Spec;
    type Status = Status;

    fn new(object: Object<Spec, Status>) -> Option<Self> {
        let (meta, node) = (object.metadata, object.spec.node_name?);
        let mut owners = meta.owner_references.iter().filter(|o| o.controller);
        if !owners.any(|owner| owner.kind == "DaemonSet") || meta.deletion_timestamp.is_some() {
            return None;
        }
        let key = format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name);
        let containers = object.status.container_statuses;
        Some(Self {
            has_fact: NodeFact::ALL
                .map(|fact| node_fact::is_on_pod(fact, &meta.labels, &meta.annotations)),
            draining: meta.annotations.get(DRAINING).is_some_and(|v| v == "true"),
            restarted: containers.iter().any(|of| of.restart_count > 0),
            texts: Texts::new([
                &key,
                &node,
                &meta.uid,
                &meta.resource_version,
                object.status.pod_ip.as_deref().unwrap_or_default(),
                meta.labels.get(HELD_PORT).map_or("", String::as_str),
                meta.annotations.get(LEAVING).map_or("", String::as_str),
                meta.annotations.get(ATTACH_LIMIT).map_or("", String::as_str),
            ]),
        })
    }
}

impl AgentPodRow {
    pub(crate) fn name(&self) -> (&str, &str) {
        self.key().split_once('/').unwrap_or_default()
    }

    pub(crate) fn node(&self) -> &str {
        self.texts.get(NODE)
    }

    pub(crate) fn uid(&self) -> &str {
        self.texts.get(UID)
    }

    pub(crate) fn version(&self) -> &str {
        self.texts.get(VERSION)
    }

    /// Returns the pod's address; empty while it has none.
    pub(crate) fn ip(&self) -> &str {
        self.texts.get(IP)
    }

    /// Returns the port of the page that says who holds a volume; empty for an older agent.
    pub(crate) fn held_port(&self) -> &str {
        self.texts.get(PORT)
    }

    /// Returns the attachments that the node is asked to leave alone, as the annotation lists them.
    pub(crate) fn leaving(&self) -> &str {
        self.texts.get(PROMISES)
    }

    /// Returns the attachment limit that the annotation tells the agent; empty when it tells none.
    pub(crate) fn attach_limit(&self) -> &str {
        self.texts.get(LIMIT)
    }

    /// Returns the patch that sets or removes annotations, which applies only to the pod that was
    /// seen, in the version that was seen.
    pub(crate) fn patch(&self, annotations: Value) -> Value {
        json!({"metadata": {
            "uid": self.uid(),
            "resourceVersion": self.version(),
            "annotations": annotations,
        }})
    }

    pub(crate) fn has(&self, fact: NodeFact) -> bool {
        self.has_fact[fact as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::object::retained;

    fn row(change: impl FnOnce(&mut Value)) -> Option<AgentPodRow> {
        let mut object = json!({
            "metadata": {"namespace": "kube-system", "name": "ebs-csi-node-x", "uid": "u", "resourceVersion": "7",
                "labels": {"topology.kubernetes.io/region": "us-east-1"},
                "annotations": {"ebs.csi.aws.com/zone": "us-east-1a"},
                "ownerReferences": [{"kind": "DaemonSet", "name": "ebs-csi-node", "controller": true}]},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [{"restartCount": 0}]},
        });
        change(&mut object);
        retained(object)
    }

    #[test]
    fn pod_fields_needed_for_annotations_are_kept() {
        let pod = row(|_| ()).expect("retained");
        assert_eq!(pod.name(), ("kube-system", "ebs-csi-node-x"));
        assert_eq!((pod.node(), pod.uid(), pod.version()), ("n", "u", "7"));
        assert_eq!((pod.ip(), pod.held_port(), pod.leaving()), ("", "", ""));
        assert_eq!(pod.attach_limit(), "");
        let asked = row(|p| {
            p["status"]["podIP"] = json!("10.0.0.1");
            p["metadata"]["labels"][HELD_PORT] = json!("9808");
            p["metadata"]["annotations"][LEAVING] = json!("vol-1a2b3c4d@x");
            p["metadata"]["annotations"][ATTACH_LIMIT] = json!("100");
        });
        let asked = asked.expect("retained");
        let seen = (asked.ip(), asked.held_port(), asked.leaving());
        assert_eq!(seen, ("10.0.0.1", "9808", "vol-1a2b3c4d@x"));
        assert_eq!(asked.attach_limit(), "100");
        assert!(pod.has(NodeFact::Zone) && pod.has(NodeFact::Region));
        assert!(!pod.has(NodeFact::Instance) && !pod.has(NodeFact::InstanceType));
        assert!(!pod.draining && !pod.restarted);
        let drained = row(|p| p["metadata"]["annotations"][DRAINING] = json!("true"));
        assert!(drained.expect("retained").draining);
        let restarted = row(|p| p["status"]["containerStatuses"][0]["restartCount"] = json!(1));
        assert!(restarted.expect("retained").restarted);
    }

    #[test]
    fn unbound_ending_and_foreign_pods_are_ignored() {
        assert!(row(|p| p["spec"] = json!({})).is_none());
        let at = json!("2026-01-01T00:00:00Z");
        assert!(row(|p| p["metadata"]["deletionTimestamp"] = at).is_none());
        let owner = json!([{"kind": "ReplicaSet", "name": "x", "controller": true}]);
        assert!(row(|p| p["metadata"]["ownerReferences"] = owner).is_none());
    }
}
