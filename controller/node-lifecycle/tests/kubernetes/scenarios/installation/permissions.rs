//! RBAC and the admission policy grant enough, and no more.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::environment::manifests;
use crate::environment::world::{Outcome, World, ensure, patch};
use crate::scenarios::Scenario;
use crate::scenarios::installation::node_facts::{create_pod, delete};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("each_permission_is_needed", each_is_needed(world)),
        Scenario::new("policy_allows_only_facts_on_agent_pods", only_facts(world)),
        Scenario::new("policy_allows_only_own_taint", only_our_taint(world)),
        Scenario::new("policy_keeps_own_taint_off_ready_nodes", not_while_ready(world)),
        Scenario::new("policy_lets_startup_taint_only_be_removed", startup_taint(world)),
    ]
}

/// What node-lifecycle used in the earlier scenarios is exactly what the manifests grant: each verb
/// is needed, and none is missing, because the API server enforces RBAC.
async fn each_is_needed(world: &World<'_>) -> Outcome {
    let mut granted = BTreeSet::new();
    let files = ["node-lifecycle-rbac.yaml", "failover-rbac.yaml"];
    for object in files.into_iter().flat_map(manifests::read) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let texts = |key: &str| -> Vec<String> {
                let all = rule[key].as_array().into_iter().flatten();
                all.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            for resource in texts("resources") {
                for verb in texts("verbs") {
                    granted.insert((verb, resource.clone()));
                }
            }
        }
    }
    let used = world.plane.used()?;
    let idle: Vec<_> = granted.difference(&used).collect();
    ensure(idle.is_empty(), &format!("every verb is used; not: {idle:?}"))
}

/// As node-lifecycle's user: its own taint may be added and removed; nothing else of a Node may
/// change.
async fn only_our_taint(world: &World<'_>) -> Outcome {
    let name = "untainted";
    world.nodes.create_without_identity(name).await?;
    let nodes: Api<Node> = Api::all(world.plane.client("lifecycle").await?);
    let persons = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"});
    may_taint(&nodes, name, &[], true, "no taint").await?;
    may_taint(&nodes, name, &[&persons], false, "a person's taint").await?;
    may_taint(&nodes, name, &[&other], false, "another taint").await?;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "0"}]);
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let ours = "ebs.csi.aws.com/out-of-service";
    for (what, change, allowed) in [
        ("an owner", json!({"metadata": {"ownerReferences": owner}}), false),
        ("a finalizer", json!({"metadata": {"finalizers": ["example.com/x"]}}), false),
        ("cordon", json!({"spec": {"unschedulable": true}}), false),
        ("a label", json!({"metadata": {"labels": {"x": "y"}}}), false),
        ("an annotation", annotate("x", json!("y")), false),
        ("our annotation", annotate(ours, json!("y")), true),
        ("our annotation's end", annotate(ours, Value::Null), true),
    ] {
        check_allowed(what, patch(&nodes, name, change).await, allowed)?;
    }
    world.nodes.delete(name).await
}

/// Checks whether a request was allowed.
fn check_allowed(what: &str, outcome: Outcome, allowed: bool) -> Outcome {
    ensure(outcome.is_ok() == allowed, &format!("{what}: allowed is {allowed}; {outcome:?}"))
}

/// As node-lifecycle's user: its taint may not be added to a Ready node, but may stay there or be
/// removed.
async fn not_while_ready(world: &World<'_>) -> Outcome {
    let name = "tainted";
    world.nodes.create_without_identity(name).await?;
    let lifecycle: Api<Node> = Api::all(world.plane.client("lifecycle").await?);
    let admin = world.all_nodes();
    let how = PatchParams::default();
    let ours = json!({"key": "node.kubernetes.io/out-of-service", "value": "ebs-safe-detach", "effect": "NoExecute"});
    let (none, one) = (vec![], vec![&ours]);
    let rows = [
        ("to add it while Ready", "True", &none, &one, false),
        ("to add it while not Ready", "False", &none, &one, true),
        ("to add it while unknown", "Unknown", &none, &one, true),
        ("to keep it while Ready", "True", &one, &one, true),
        ("to take it off while Ready", "True", &one, &none, true),
    ];
    for (what, ready, before, after, allowed) in rows {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let mut outcome = Ok(());
        // Kubernetes itself may change the status in between.
        for _ in 0..5 {
            admin.patch_status(name, &how, &Patch::Merge(status.clone())).await?;
            may_taint(&admin, name, before, true, "an administrator").await?;
            outcome = may_taint(&lifecycle, name, after, allowed, what).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome?;
    }
    world.nodes.delete(name).await
}

/// As node-lifecycle's user, on a node where the driver is not registered, so that node-lifecycle
/// itself does not remove the taint.
async fn startup_taint(world: &World<'_>) -> Outcome {
    let name = "startup";
    world.nodes.create_without_identity(name).await?;
    let lifecycle: Api<Node> = Api::all(world.plane.client("lifecycle").await?);
    let startup = json!({"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"});
    let other = json!({"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoSchedule"});
    let admin = world.all_nodes();
    let none = json!([]);
    let rows = [
        ("to add it", none.clone(), json!([startup]), false),
        ("to add another of the key", json!([startup]), json!([startup, other]), false),
        ("to change it", json!([startup]), json!([other]), false),
        ("to take one off", json!([startup, other]), json!([other]), true),
        ("to take it off", json!([startup]), none, true),
    ];
    for (what, before, after, allowed) in rows {
        patch(&admin, name, json!({"spec": {"taints": before}})).await?;
        let patched = patch(&lifecycle, name, json!({"spec": {"taints": after}})).await;
        check_allowed(what, patched, allowed)?;
    }
    world.nodes.delete(name).await
}

/// As node-lifecycle's user: of a pod of the driver's DaemonSet, missing facts may be added and the
/// drain may be told and withdrawn; nothing else of it, and nothing of another pod, may change.
async fn only_facts(world: &World<'_>) -> Outcome {
    let (node, name) = ("told", "ebs-csi-node-told");
    world.node(node).await?;
    create_pod(world, name, node, "ebs-csi-node").await?;
    create_pod(world, "other", node, "kube-proxy").await?;
    create_pod(world, "alone", node, "").await?;
    let client = world.plane.client("lifecycle").await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let (zone, draining) = ("ebs.csi.aws.com/zone", "ebs.csi.aws.com/draining");
    let zoned = annotate(zone, json!("us-east-1a"));
    let outpost = annotate("topology.ebs.csi.aws.com/outpost-id", json!("op-1"));
    let image = json!([{"name": "ebs-plugin", "image": "y"}]);
    let toleration = json!([{"operator": "Exists"}, {"key": "x", "operator": "Exists"}]);
    for (pod, what, change, allowed) in [
        (name, "to add the zone", zoned.clone(), true),
        (name, "to add an Outpost", outpost, true),
        (name, "to change the zone", annotate(zone, json!("us-east-1b")), false),
        (name, "to remove the zone", annotate(zone, Value::Null), false),
        (name, "to say that it is drained", annotate(draining, json!("true")), true),
        (name, "to say something else of a drain", annotate(draining, json!("perhaps")), false),
        (name, "another annotation", annotate("x", json!("y")), false),
        (name, "a label", json!({"metadata": {"labels": {"x": "y"}}}), false),
        (name, "a finalizer", json!({"metadata": {"finalizers": ["example.com/x"]}}), false),
        (name, "the owner", json!({"metadata": {"ownerReferences": []}}), false),
        (name, "an image", json!({"spec": {"containers": image}}), false),
        (name, "a toleration", json!({"spec": {"tolerations": toleration}}), false),
        ("other", "a pod of another DaemonSet", zoned.clone(), false),
        ("alone", "a pod of no DaemonSet", zoned.clone(), false),
    ] {
        check_allowed(what, patch(&pods, pod, change).await, allowed)?;
    }
    // The administrator may: the image of a running pod can be changed at all.
    let admin: Api<Pod> = Api::namespaced(world.admin.clone(), "kube-system");
    patch(&admin, name, json!({"spec": {"containers": image}})).await?;
    let elsewhere: Api<Pod> = Api::namespaced(client, "default");
    let refused = patch(&elsewhere, "any", zoned).await;
    let is_forbidden = refused.is_err_and(|why| why.to_string().contains("forbidden"));
    ensure(is_forbidden, "RBAC grants pods of the driver's namespace alone")?;
    for pod in [name, "other", "alone"] {
        delete(world, pod).await?;
    }
    world.nodes.delete(node).await
}

/// Checks whether the node may be given these taints.
async fn may_taint(
    nodes: &Api<Node>,
    name: &str,
    taints: &[&Value],
    allowed: bool,
    what: &str,
) -> Outcome {
    let mut patched = Ok(());
    // Kubernetes sets taints of its own, perhaps between the read and the patch.
    for _ in 0..20 {
        patched = taint(nodes, name, taints).await;
        if patched.is_ok() == allowed {
            break;
        }
    }
    check_allowed(what, patched, allowed)
}

/// Gives the node these taints, in addition to those that Kubernetes has set for its state.
async fn taint(nodes: &Api<Node>, name: &str, taints: &[&Value]) -> Outcome {
    let there = nodes.get(name).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let kept = there.iter().filter(|taint| taint.key != "node.kubernetes.io/out-of-service");
    let all: Vec<Value> =
        kept.map(|taint| json!(taint)).chain(taints.iter().copied().cloned()).collect();
    patch(nodes, name, json!({"spec": {"taints": all}})).await
}
