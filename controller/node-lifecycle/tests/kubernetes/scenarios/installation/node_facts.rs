//! Pods of the node-agent: what their annotations say about their nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::environment::world::{TestResult, World, create, ensure, patch, wait_until};
use crate::scenarios::Scenario;

const ZONE: &str = "ebs.csi.aws.com/zone";
const LIMIT: &str = "ebs.csi.aws.com/attach-limit";
const DRAINING: &str = "ebs.csi.aws.com/draining";
/// The label that Kubernetes copies from a node to its pods from 1.35 on.
const COPIED: &str = "topology.kubernetes.io/zone";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("pod_without_zone_gets_facts_in_one_patch", written(world)),
        Scenario::new("pod_with_copied_zone_gets_no_patch", copied(world)),
        Scenario::new("agent_pod_gets_limit_that_ec2_says", limited(world)),
        Scenario::new("agent_pod_follows_cordon_and_drain_taint", drained(world)),
        Scenario::new("node_without_zone_is_reported", unknown(world)),
    ]
}

/// The node has a provider id but no label of a zone, as before the cloud controller manager has
/// labelled it.
async fn written(world: &World<'_>) -> TestResult {
    let (node, pod) = ("unlabelled", "ebs-csi-node-unlabelled");
    let instance = world.node(node).await?;
    let none = json!({COPIED: null, "topology.ebs.csi.aws.com/zone": null, "node.kubernetes.io/instance-type": "t2.micro"});
    patch_node(world, node, json!({"metadata": {"labels": none}})).await?;
    create_without_zone(world, pod, node).await?;
    wait_for_annotation(world, pod, ZONE, Some("us-east-1a")).await?;
    for (key, want) in [
        ("ebs.csi.aws.com/instance-id", Some(instance.as_str())),
        ("ebs.csi.aws.com/instance-type", Some("t2.micro")),
        // The Node has no region.
        ("ebs.csi.aws.com/region", None),
    ] {
        let said = annotation(world, pod, key).await?;
        ensure(said.as_deref() == want, &format!("{key}: {said:?}"))?;
    }
    check_patches(world, pod, 1)?;
    // A fact that is lost is written again.
    let lost = json!({"metadata": {"annotations": {ZONE: null}}});
    patch(&agents(world), pod, lost).await?;
    wait_for_annotation(world, pod, ZONE, Some("us-east-1a")).await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn copied(world: &World<'_>) -> TestResult {
    let (node, pod) = ("labelled", "ebs-csi-node-labelled");
    world.node(node).await?;
    create_pod(world, pod, node, "ebs-csi-node").await?;
    let copied = agents(world).get(pod).await?.labels().get(COPIED).cloned();
    ensure(copied.as_deref() == Some("us-east-1a"), "Kubernetes copies the zone to the pod")?;
    // A later change shows that the leader has looked at the pod.
    let taint = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    patch_node(world, node, json!({"spec": {"taints": taint}})).await?;
    wait_for_annotation(world, pod, DRAINING, Some("true")).await?;
    ensure(annotation(world, pod, ZONE).await?.is_none(), "no fact is written")?;
    check_patches(world, pod, 1)?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

/// `z9.large` is in no table. Nobody says how many volumes a Xen type takes.
async fn limited(world: &World<'_>) -> TestResult {
    let (node, pod) = ("limited", "ebs-csi-node-limited");
    let instance = world.node(node).await?;
    let change_type = async |instance_type: &str| {
        let labels = json!({"node.kubernetes.io/instance-type": instance_type});
        patch_node(world, node, json!({"metadata": {"labels": labels}})).await
    };
    change_type("z9.large").await?;
    create_pod(world, pod, node, "ebs-csi-node").await?;
    let of_new_type = format!("100 dedicated z9.large {instance}");
    wait_for_annotation(world, pod, LIMIT, Some(&of_new_type)).await?;
    ensure(annotation(world, pod, ZONE).await?.is_none(), "no fact is written")?;
    check_patches(world, pod, 1)?;
    // The same pod runs on when the instance is started again with another type.
    change_type("t2.nano").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    check_patches(world, pod, 1)?;
    change_type("m5.large").await?;
    wait_for_annotation(world, pod, LIMIT, Some(&format!("27 shared m5.large {instance}"))).await?;
    check_patches(world, pod, 2)?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn drained(world: &World<'_>) -> TestResult {
    let (node, pod) = ("drained", "ebs-csi-node-drained");
    world.node(node).await?;
    create_pod(world, pod, node, "ebs-csi-node").await?;
    // Of no DaemonSet, but with the label.
    create_pod(world, "stranger", node, "").await?;
    let autoscaler = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    for (field, drain) in [("unschedulable", json!(true)), ("taints", autoscaler)] {
        patch_node(world, node, json!({"spec": {field: drain}})).await?;
        wait_for_annotation(world, pod, DRAINING, Some("true")).await?;
        patch_node(world, node, json!({"spec": {field: null}})).await?;
        wait_for_annotation(world, pod, DRAINING, None).await?;
    }
    check_patches(world, "stranger", 0)?;
    delete(world, "stranger").await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

async fn unknown(world: &World<'_>) -> TestResult {
    let (node, pod) = ("nowhere", "ebs-csi-node-nowhere");
    world.nodes.create_without_identity(node).await?;
    let none = json!({COPIED: null, "topology.ebs.csi.aws.com/zone": null});
    patch_node(world, node, json!({"metadata": {"labels": none}})).await?;
    create_without_zone(world, pod, node).await?;
    world.wait_for_event(pod, "NodeFactsUnknown").await?;
    ensure(world.driver.metric("aws_ebs_csi_onboarding_pods_behind") >= 1.0, "the pod is counted")?;
    // Once the Node has its zone, so has the pod.
    patch_node(world, node, json!({"metadata": {"labels": {COPIED: "us-east-1b"}}})).await?;
    wait_for_annotation(world, pod, ZONE, Some("us-east-1b")).await?;
    delete(world, pod).await?;
    world.nodes.delete(node).await
}

fn agents(world: &World<'_>) -> Api<Pod> {
    Api::namespaced(world.admin.clone(), "kube-system")
}

/// Creates a pod of the node-agent, as that DaemonSet would; an empty name means none.
pub(super) async fn create_pod(
    world: &World<'_>,
    name: &str,
    node: &str,
    owner: &str,
) -> TestResult {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"ebs.csi.aws.com/component": "node-agent"}},
        "spec": {"nodeName": node, "containers": [{"name": "ebs-plugin", "image": "x"}], "tolerations": [{"operator": "Exists"}]},
    });
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner,
            "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
    }
    create(&agents(world), pod).await.map(drop)
}

/// Creates a pod of the node-agent on a node that has lost its zone. The API server copies labels
/// of nodes from a cache, which may show the zone for a moment longer.
async fn create_without_zone(world: &World<'_>, name: &str, node: &str) -> TestResult {
    wait_until(&format!("{name} gets no zone from the API server"), || async {
        create_pod(world, name, node, "ebs-csi-node").await?;
        let is_bare = !agents(world).get(name).await?.labels().contains_key(COPIED);
        if !is_bare {
            delete(world, name).await?;
        }
        Ok(is_bare)
    })
    .await
}

pub(super) async fn delete(world: &World<'_>, name: &str) -> TestResult {
    agents(world).delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

async fn patch_node(world: &World<'_>, name: &str, change: Value) -> TestResult {
    patch(&world.all_nodes(), name, change).await
}

async fn annotation(world: &World<'_>, pod: &str, key: &str) -> TestResult<Option<String>> {
    Ok(agents(world).get(pod).await?.annotations().get(key).cloned())
}

async fn wait_for_annotation(
    world: &World<'_>,
    pod: &str,
    key: &str,
    want: Option<&str>,
) -> TestResult {
    wait_until(&format!("{pod} has {key} {want:?}"), || async {
        Ok(annotation(world, pod, key).await?.as_deref() == want)
    })
    .await
}

fn check_patches(world: &World<'_>, pod: &str, want: usize) -> TestResult {
    let patches = world.plane.patches("pods", pod)?;
    ensure(patches == want, &format!("{patches} patches of {pod}"))
}
