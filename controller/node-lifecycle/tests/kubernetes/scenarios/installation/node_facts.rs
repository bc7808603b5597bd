//! Pods of the node-agent: what their annotations say about their nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

const ZONE: &str = "ebs.csi.aws.com/zone";
const DRAINING: &str = "ebs.csi.aws.com/draining";
/// The label that Kubernetes copies from a node to its pods from 1.35 on.
const COPIED: &str = "topology.kubernetes.io/zone";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("pod_without_zone_gets_facts_in_one_patch", written(world)),
        Scenario::new("pod_with_copied_zone_gets_no_patch", copied(world)),
        Scenario::new("agent_pod_follows_cordon_and_drain_taint", drained(world)),
        Scenario::new("node_without_zone_is_told_of", unknown(world)),
    ]
}

/// The node has a provider id but no label of a zone, as before the cloud controller manager has
/// labelled it.
async fn written(world: &World<'_>) -> Outcome {
    let (node, pod) = ("unlabelled", "ebs-csi-node-unlabelled");
    let instance = world.node(node).await?;
    let none = json!({COPIED: null, "topology.ebs.csi.aws.com/zone": null, "node.kubernetes.io/instance-type": "t2.micro"});
    patch_node(world, node, json!({"metadata": {"labels": none}})).await?;
    create_without_zone(world, pod, node).await?;
    wait_until("the pod has its zone", || async {
        Ok(annotation(world, pod, ZONE).await?.is_some())
    })
    .await?;
    for (key, want) in [
        (ZONE, "us-east-1a"),
        ("ebs.csi.aws.com/instance-id", instance.as_str()),
        ("ebs.csi.aws.com/instance-type", "t2.micro"),
    ] {
        let said = annotation(world, pod, key).await?;
        ensure(said.as_deref() == Some(want), &format!("{key}: {said:?}"))?;
    }
    let none = annotation(world, pod, "ebs.csi.aws.com/region").await?;
    ensure(none.is_none(), "the Node has no region")?;
    let patches = world.plane.patches("pods", pod)?;
    ensure(patches == 1, &format!("{patches} patches of {pod}"))?;
    // A fact that is lost is written again.
    let lost = json!({"metadata": {"annotations": {ZONE: null}}});
    patch_pod(&agents(world), pod, lost).await?;
    wait_until("the pod has its zone again", || async {
        Ok(annotation(world, pod, ZONE).await?.is_some())
    })
    .await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn copied(world: &World<'_>) -> Outcome {
    let (node, pod) = ("labelled", "ebs-csi-node-labelled");
    world.node(node).await?;
    create(world, pod, node, "ebs-csi-node").await?;
    let seen = agents(world).get(pod).await.map_err(|e| e.to_string())?;
    ensure(
        seen.labels().get(COPIED).map(String::as_str) == Some("us-east-1a"),
        "Kubernetes copies the zone to the pod",
    )?;
    // A later change shows that the leader has looked at the pod.
    let taint = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    patch_node(world, node, json!({"spec": {"taints": taint}})).await?;
    wait_until("the pod says that its node is drained", || async {
        Ok(annotation(world, pod, DRAINING).await?.is_some())
    })
    .await?;
    ensure(annotation(world, pod, ZONE).await?.is_none(), "no fact is written")?;
    let patches = world.plane.patches("pods", pod)?;
    ensure(patches == 1, &format!("{patches} patches of {pod}"))?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn drained(world: &World<'_>) -> Outcome {
    let (node, pod) = ("drained", "ebs-csi-node-drained");
    world.node(node).await?;
    create(world, pod, node, "ebs-csi-node").await?;
    // Of no DaemonSet, but with the label.
    create(world, "stranger", node, "").await?;
    let autoscaler = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    for (what, begin, end) in [
        (
            "cordon",
            json!({"spec": {"unschedulable": true}}),
            json!({"spec": {"unschedulable": null}}),
        ),
        (
            "the autoscaler's taint",
            json!({"spec": {"taints": autoscaler}}),
            json!({"spec": {"taints": null}}),
        ),
    ] {
        patch_node(world, node, begin).await?;
        wait_until(&format!("{what}: the pod says so"), || async {
            Ok(annotation(world, pod, DRAINING).await?.as_deref() == Some("true"))
        })
        .await?;
        patch_node(world, node, end).await?;
        wait_until(&format!("the end of {what}: the pod says so"), || async {
            Ok(annotation(world, pod, DRAINING).await?.is_none())
        })
        .await?;
    }
    let touched = world.plane.patches("pods", "stranger")?;
    ensure(touched == 0, "a pod of no DaemonSet is left alone")?;
    delete(world, "stranger").await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn unknown(world: &World<'_>) -> Outcome {
    let (node, pod) = ("nowhere", "ebs-csi-node-nowhere");
    world.nodes.create_without_identity(node).await?;
    patch_node(world, node, json!({"metadata": {"labels": {COPIED: null}}})).await?;
    create_without_zone(world, pod, node).await?;
    world.wait_for_event(pod, "NodeFactsUnknown").await?;
    ensure(world.driver.metric("aws_ebs_csi_onboarding_pods_behind") >= 1.0, "the pod is counted")?;
    // Once the Node has its zone, so has the pod.
    let label = json!({"metadata": {"labels": {COPIED: "us-east-1b"}}});
    patch_node(world, node, label).await?;
    wait_until("the pod has its zone", || async {
        Ok(annotation(world, pod, ZONE).await?.as_deref() == Some("us-east-1b"))
    })
    .await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

/// Returns the pods of the driver's namespace.
pub(super) fn agents(world: &World<'_>) -> Api<Pod> {
    Api::namespaced(world.admin.clone(), "kube-system")
}

/// Creates a pod of the node-agent, as that DaemonSet would; an empty name means none.
pub(super) async fn create(world: &World<'_>, name: &str, node: &str, owner: &str) -> Outcome {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"ebs.csi.aws.com/component": "node-agent"}},
        "spec": {"nodeName": node, "containers": [{"name": "ebs-plugin", "image": "x"}], "tolerations": [{"operator": "Exists"}]},
    });
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner,
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
    }
    let pod: Pod = serde_json::from_value(pod).map_err(|e| e.to_string())?;
    let created = agents(world).create(&PostParams::default(), &pod).await;
    created.map(drop).map_err(|e| format!("pod {name}: {e}"))
}

/// Creates a pod of the node-agent on a node that has lost its zone. The API server copies labels
/// of nodes from a cache, which may show the zone for a moment longer.
async fn create_without_zone(world: &World<'_>, name: &str, node: &str) -> Outcome {
    wait_until(&format!("{name} gets no zone from the API server"), || async {
        create(world, name, node, "ebs-csi-node").await?;
        let pod = agents(world).get(name).await.map_err(|e| e.to_string())?;
        let is_bare = !pod.labels().contains_key(COPIED);
        if !is_bare {
            delete(world, name).await?;
        }
        Ok(is_bare)
    })
    .await
}

pub(super) async fn delete(world: &World<'_>, name: &str) -> Outcome {
    let how = DeleteParams::default().grace_period(0);
    let deleted = agents(world).delete(name, &how).await;
    deleted.map(drop).map_err(|e| e.to_string())
}

pub(super) async fn patch_pod(api: &Api<Pod>, name: &str, patch: Value) -> Outcome {
    let how = PatchParams::default();
    let patched = api.patch(name, &how, &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| e.to_string())
}

async fn patch_node(world: &World<'_>, name: &str, patch: Value) -> Outcome {
    let how = PatchParams::default();
    let nodes: Api<Node> = world.all_nodes();
    let patched = nodes.patch(name, &how, &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| e.to_string())
}

async fn annotation(world: &World<'_>, pod: &str, key: &str) -> Result<Option<String>, String> {
    let pod = agents(world).get(pod).await.map_err(|e| e.to_string())?;
    Ok(pod.annotations().get(key).cloned())
}
