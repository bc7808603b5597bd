//! Nodes.

use ebs_csi_proto::keys::{NodeFact, topology};
use ebs_csi_safe_detach::lifecycle::{Node, OutOfService, TaintedBoot};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::node_fact::{self, instance_text};
use super::object::Meta;
use super::object_table::{TableRow, Texts};
use super::{Object, Retained};

/// The key of Kubernetes' out-of-service taint: the node's pods are deleted by force and its
/// volumes are detached without waiting for kubelet.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The value of this driver's own out-of-service taints.
pub(crate) const OUT_OF_SERVICE_VALUE: &str = "ebs-safe-detach";
/// The annotation that accompanies the taint: the instance, launch and boot to which it applies.
pub(crate) const TAINTED_BOOT: &str = "ebs.csi.aws.com/out-of-service";
/// The key of the taint that keeps pods from a node until the driver is ready there.
pub(crate) const STARTUP_TAINT: &str = "ebs.csi.aws.com/agent-not-ready";
/// The keys of the taints of a node that is to be emptied: those on which the Go driver's pre-stop
/// hook waits for the node's volumes.
const DRAIN_TAINTS: [&str; 4] = [
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];
/// Label of a node, or annotation of a pod, that failover must leave alone (`failover=off`).
pub(crate) const OPT_OUT: &str = "ebs.csi.aws.com/failover";

/// Label of a node whose instance may be stopped or terminated to prove it dead (`fence=true`).
pub(crate) const FENCE_LABEL: &str = "ebs.csi.aws.com/fence";

#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The node's zone; empty when the node has no zone label.
    pub(crate) zone: String,
    /// The facts that a step is based on. The instance is that of the provider id.
    pub(crate) node: Node,
    /// The node has no provider id, so its CSINode identifies its instance.
    pub(crate) lacks_provider_id: bool,
    pub(crate) has_startup_taint: bool,
    /// The node has a taint of [`DRAIN_TAINTS`].
    pub(crate) draining: bool,
    facts: Texts<{ NodeFact::ALL.len() }>,
    /// When the driver's taint was set, by the clock of the process that set it.
    pub(crate) own_taint_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    taints: Vec<core::Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    conditions: Vec<Condition>,
    node_info: Info,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    #[serde(rename = "bootID")]
    boot_id: String,
}

impl TableRow for NodeRow {
    fn key(&self) -> &str {
        &self.name
    }
}

impl Retained for NodeRow {
    type Kind = core::Node;
    type Spec = Spec;
    type Status = Status;

    fn new(object: Object<Spec, Status>) -> Option<Self> {
        Some(Self::from_object(object))
    }
}

impl NodeRow {
    fn from_object(object: Object<Spec, Status>) -> Self {
        let Object { metadata: meta, spec, status } = object;
        let provider_id = spec.provider_id.as_deref().unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let mut own_taints = spec.taints.iter().filter(|taint| is_own_taint(taint));
        let label = |key: &str| meta.labels.get(key).map(String::as_str);
        Self {
            zone: label(topology::ZONE).unwrap_or_default().to_owned(),
            node: Node {
                ready: conditions.any(|of| of.kind == "Ready" && of.status == "True"),
                instance: instance_of(provider_id),
                out_of_service: out_of_service(&spec.taints, &meta),
                opted_out: label(OPT_OUT) == Some("off"),
                may_fence: label(FENCE_LABEL) == Some("true"),
                boot: status.node_info.boot_id,
                // Only a process that has watched the node for that long knows.
                lost_for_long: false,
            },
            draining: spec.taints.iter().any(|taint| DRAIN_TAINTS.contains(&taint.key.as_str())),
            facts: Texts::new(
                NodeFact::ALL.map(|fact| node_fact::of_node(fact, &meta.labels, provider_id)),
            ),
            has_startup_taint: spec.taints.iter().any(|taint| taint.key == STARTUP_TAINT),
            lacks_provider_id: provider_id.is_empty(),
            own_taint_time: own_taints.find_map(|taint| Some(taint.time_added.as_ref()?.0)),
            name: meta.name,
            uid: meta.uid,
        }
    }

    /// Returns a fact about the node for its node-agent; empty when the Node does not have it.
    pub(crate) fn fact(&self, fact: NodeFact) -> &str {
        self.facts.get(fact as usize)
    }

    /// Reads a complete Node object.
    ///
    /// # Errors
    /// [`kube::Error::SerdeError`]: the object has no JSON of the expected form.
    pub(crate) fn from_node(object: &core::Node) -> Result<Self, kube::Error> {
        let object = serde_json::to_value(object).and_then(serde_json::from_value);
        object.map(Self::from_object).map_err(kube::Error::SerdeError)
    }
}

/// Returns the instance of a provider id (`aws:///us-east-1a/i-0123456789abcdef0`).
pub(crate) fn instance_of(provider_id: &str) -> Option<String> {
    let id = instance_text(provider_id);
    (!id.is_empty()).then(|| id.to_owned())
}

pub(crate) fn is_own_taint(taint: &core::Taint) -> bool {
    taint.key == OUT_OF_SERVICE && taint.value.as_deref() == Some(OUT_OF_SERVICE_VALUE)
}

fn out_of_service(taints: &[core::Taint], meta: &Meta) -> OutOfService {
    let mut all = taints.iter().filter(|taint| taint.key == OUT_OF_SERVICE);
    let (first, second) = (all.next(), all.next());
    let tainted_boot = meta.annotations.get(TAINTED_BOOT).and_then(|text| parse_tainted_boot(text));
    match (first, second, tainted_boot) {
        (None, _, _) => OutOfService::None,
        (Some(only), None, Some(tainted_boot)) if is_own_taint(only) => {
            OutOfService::Ours(tainted_boot)
        }
        // Also covers two such taints, one of them set by a person, and the driver's taint without
        // its annotation.
        _ => OutOfService::Foreign,
    }
}

fn parse_tainted_boot(annotation: &str) -> Option<TaintedBoot> {
    let value: serde_json::Value = serde_json::from_str(annotation).ok()?;
    let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
    let (instance, launched, boot) = (text("instance")?, text("launched")?, text("boot")?);
    Some(TaintedBoot { instance, launched, boot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::object::retained;
    use serde_json::json;

    fn node(taints: serde_json::Value, annotations: serde_json::Value) -> Node {
        let object = json!({
            "metadata": {"name": "n", "uid": "u", "annotations": annotations, "labels": {"topology.kubernetes.io/zone": "us-east-1a"}},
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "nodeInfo": {"bootID": "b"},
            }
        });
        let row: NodeRow = retained(object.clone()).expect("retained");
        let complete: core::Node = serde_json::from_value(object).expect("a node");
        let of_complete = NodeRow::from_node(&complete).expect("of a complete object");
        assert_eq!((&of_complete.node, &of_complete.uid), (&row.node, &row.uid));
        row.node
    }

    fn with_taints(taints: serde_json::Value) -> NodeRow {
        retained(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).expect("retained")
    }

    /// The driver's taint counts as foreign without a readable return annotation or next to a
    /// person's taint.
    #[test]
    fn taint_owner_follows_value_and_return_annotation() {
        let ours =
            json!({"key": OUT_OF_SERVICE, "value": OUT_OF_SERVICE_VALUE, "effect": "NoExecute"});
        let persons =
            json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"});
        let other = json!({"key": "dedicated", "effect": "NoSchedule"});
        let tainted_boot =
            json!({TAINTED_BOOT: r#"{"instance":"i-1","launched":"t","boot":"b0"}"#});
        let kind = |node: Node| match node.out_of_service {
            OutOfService::None => "none",
            OutOfService::Ours(_) => "ours",
            OutOfService::Foreign => "foreign",
        };
        let rows = [
            (json!([]), json!({}), "none"),
            (json!([other]), tainted_boot.clone(), "none"),
            (json!([ours]), tainted_boot.clone(), "ours"),
            (json!([ours]), json!({}), "foreign"),
            (json!([ours]), json!({TAINTED_BOOT: "no json"}), "foreign"),
            (json!([persons]), tainted_boot.clone(), "foreign"),
            (json!([persons, ours]), tainted_boot, "foreign"),
        ];
        for (number, (taints, annotations, want)) in rows.into_iter().enumerate() {
            assert_eq!(kind(node(taints, annotations)), want, "row {number}");
        }
    }

    #[test]
    fn each_drain_taint_marks_node_as_draining() {
        let draining = |taints| with_taints(taints).draining;
        for key in DRAIN_TAINTS {
            assert!(draining(json!([{"key": key, "effect": "NoSchedule"}])), "{key}");
        }
        assert!(!draining(json!([])));
        assert!(!draining(json!([{"key": STARTUP_TAINT, "effect": "NoExecute"}])));
    }

    #[test]
    fn own_taint_age_comes_from_time_added() {
        let at = "2026-01-01T00:00:00Z";
        let taint = |value: &str| json!({"key": OUT_OF_SERVICE, "value": value, "effect": "NoExecute", "timeAdded": at});
        let tainted = |taints| with_taints(taints).own_taint_time;
        let ours = tainted(json!([taint(OUT_OF_SERVICE_VALUE)])).map(|since| since.to_string());
        assert_eq!(ours.as_deref(), Some(at));
        assert_eq!(tainted(json!([taint("nodeshutdown")])), None, "a person's");
        let ageless =
            json!([{"key": OUT_OF_SERVICE, "value": OUT_OF_SERVICE_VALUE, "effect": "NoExecute"}]);
        assert_eq!(tainted(ageless), None, "of an earlier version");
    }

    /// A Ready condition of Unknown counts as NotReady; a provider id without an EC2 instance id
    /// gives no instance.
    #[test]
    fn unknown_readiness_and_non_ec2_ids_are_rejected() {
        let node = node(json!([]), json!({}));
        assert!(!node.ready);
        assert_eq!(node.instance.as_deref(), Some("i-0123456789abcdef0"));
        for other in ["", "gce://p/z/i", "aws:///us-east-1a/fargate-ip", "aws://"] {
            assert_eq!(instance_of(other), None, "{other}");
        }
    }
}
