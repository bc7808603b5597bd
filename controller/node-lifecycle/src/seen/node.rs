//! Nodes.

use ebs_csi_safe_detach::lifecycle::{Node, OutOfService, Readiness, Return};
use ebs_csi_wire::InstanceId;
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

/// The key of Kubernetes' taint: its pods are deleted by force and its volumes detached without waiting for kubelet.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The value by which this driver knows its own.
pub const OWNER: &str = "ebs-safe-detach";
/// The annotation beside it: instance, launch and boot that it is about.
pub const RETURN: &str = "ebs.csi.aws.com/out-of-service";
/// Label of a node, or annotation of a pod, that failover must leave alone (`failover=off`).
pub const OPT_OUT: &str = "ebs.csi.aws.com/failover";

/// Label of a node whose instance may be stopped to prove it dead (`fence=true`).
pub const MAY_FENCE: &str = "ebs.csi.aws.com/fence";

/// A Node object.
#[derive(Clone, Debug)]
pub struct SeenNode {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its zone; empty when it is not labelled.
    pub zone: String,
    /// What a step rests on.
    pub node: Node,
}

impl SeenNode {
    /// What matters of it.
    pub fn new(object: &core::Node) -> Self {
        let status = object.status.as_ref();
        let ready = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let boot = status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.boot_id.clone())
            .unwrap_or_default();
        let provider = object.spec.as_ref().and_then(|s| s.provider_id.as_deref());
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            zone: object
                .labels()
                .get("topology.kubernetes.io/zone")
                .cloned()
                .unwrap_or_default(),
            node: Node {
                ready: if ready {
                    Readiness::Ready
                } else {
                    Readiness::NotReady
                },
                instance: provider.and_then(instance_of),
                boot,
                out_of_service: out_of_service(object),
                opted_out: object.labels().get(OPT_OUT).is_some_and(|v| v == "off"),
                may_fence: object.labels().get(MAY_FENCE).is_some_and(|v| v == "true"),
                // Only who has watched it for so long can say.
                lost_for_long: false,
            },
        }
    }
}

/// The instance of a provider id (`aws:///us-east-1a/i-0123456789abcdef0`).
pub fn instance_of(provider_id: &str) -> Option<String> {
    let path = provider_id.strip_prefix("aws://")?;
    let id = path.rsplit('/').next()?;
    id.parse::<InstanceId>().ok().map(|id| id.to_string())
}

fn out_of_service(object: &core::Node) -> OutOfService {
    let taints = object.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut all = taints
        .into_iter()
        .flatten()
        .filter(|taint| taint.key == OUT_OF_SERVICE);
    let (first, second) = (all.next(), all.next());
    let about = object.annotations().get(RETURN).and_then(|text| read(text));
    match (first, second, about) {
        (None, _, _) => OutOfService::None,
        (Some(only), None, Some(about)) if only.value.as_deref() == Some(OWNER) => {
            OutOfService::Ours(about)
        }
        // Also two of them, of which a person set one, and ours without the word about what it is.
        _ => OutOfService::Foreign,
    }
}

fn read(annotation: &str) -> Option<Return> {
    let value: serde_json::Value = serde_json::from_str(annotation).ok()?;
    let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
    Some(Return {
        instance: text("instance")?,
        launched: text("launched")?,
        boot: text("boot")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(taints: serde_json::Value, annotations: serde_json::Value) -> Node {
        let object = json!({
            "metadata": {"name": "n", "uid": "u", "annotations": annotations, "labels": {"topology.kubernetes.io/zone": "us-east-1a"}},
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "nodeInfo": {
                    "bootID": "b", "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""
                }
            }
        });
        let object: core::Node = serde_json::from_value(object).expect("a node");
        SeenNode::new(&object).node
    }

    #[test]
    fn whose_taint_it_is_has_a_row_for_each_form() {
        let ours = json!({"key": OUT_OF_SERVICE, "value": OWNER, "effect": "NoExecute"});
        let persons =
            json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"});
        let other = json!({"key": "dedicated", "effect": "NoSchedule"});
        let about = json!({RETURN: r#"{"instance":"i-1","launched":"t","boot":"b0"}"#});
        let kind = |node: Node| match node.out_of_service {
            OutOfService::None => "none",
            OutOfService::Ours(_) => "ours",
            OutOfService::Foreign => "foreign",
        };
        let rows = [
            (json!([]), json!({}), "none"),
            (json!([other]), about.clone(), "none"),
            (json!([ours]), about.clone(), "ours"),
            (json!([ours]), json!({}), "foreign"),
            (json!([ours]), json!({RETURN: "no json"}), "foreign"),
            (json!([persons]), about.clone(), "foreign"),
            (json!([persons, ours]), about, "foreign"),
        ];
        for (number, (taints, annotations, want)) in rows.into_iter().enumerate() {
            assert_eq!(kind(seen(taints, annotations)), want, "row {number}");
        }
    }

    #[test]
    fn only_ready_true_is_ready_and_only_an_instance_is_one() {
        let node = seen(json!([]), json!({}));
        assert_eq!(node.ready, Readiness::NotReady);
        assert_eq!(node.instance.as_deref(), Some("i-0123456789abcdef0"));
        for other in ["", "gce://p/z/i", "aws:///us-east-1a/fargate-ip", "aws://"] {
            assert_eq!(instance_of(other), None, "{other}");
        }
    }
}
