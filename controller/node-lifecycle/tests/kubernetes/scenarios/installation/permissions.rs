//! RBAC and the admission policy grant enough, and no more.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::environment::world::{TestResult, World, create, ensure, patch};
use crate::environment::{control_plane, manifests};
use crate::scenarios::Scenario;
use crate::scenarios::installation::node_facts::{create_pod, delete};

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("each_permission_is_needed", each_is_needed(world)),
        Scenario::new("policy_allows_only_facts_on_agent_pods", only_facts(world)),
        Scenario::new("policy_allows_only_own_taint", only_our_taint(world)),
        Scenario::new("policy_keeps_own_taint_off_ready_nodes", not_while_ready(world)),
        Scenario::new("policy_lets_startup_taint_only_be_removed", startup_taint(world)),
        Scenario::new("policy_keeps_pods_of_ready_nodes", pods_of_lost_nodes(world)),
        Scenario::new("policy_keeps_attachments_of_ready_nodes", attachments(world)),
        Scenario::new("policy_reserves_override_orders_to_named_groups", override_orders(world)),
    ]
}

/// What node-lifecycle used in the earlier scenarios is exactly what the manifests grant: each verb
/// is needed, and none is missing, because the API server enforces RBAC.
async fn each_is_needed(world: &World<'_>) -> TestResult {
    let mut granted = BTreeSet::new();
    let files = [
        "node-lifecycle-rbac.yaml",
        "admission/node-facts-rbac.yaml",
        "failover/failover-rbac.yaml",
    ];
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
async fn only_our_taint(world: &World<'_>) -> TestResult {
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

fn check_allowed(what: &str, outcome: TestResult, allowed: bool) -> TestResult {
    ensure(outcome.is_ok() == allowed, &format!("{what}: allowed is {allowed}; {outcome:?}"))
}

/// As node-lifecycle's user: its taint may not be added to a Ready node, but may stay there or be
/// removed.
async fn not_while_ready(world: &World<'_>) -> TestResult {
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
async fn startup_taint(world: &World<'_>) -> TestResult {
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

/// As node-lifecycle's user: of a pod of the driver's DaemonSet, missing facts may be added, the
/// drain told and withdrawn, and the attachment limit told and changed; nothing else of it, and
/// nothing of another pod, may change.
async fn only_facts(world: &World<'_>) -> TestResult {
    let (node, name) = ("told", "ebs-csi-node-told");
    world.node(node).await?;
    create_pod(world, name, node, "ebs-csi-node").await?;
    create_pod(world, "other", node, "kube-proxy").await?;
    create_pod(world, "alone", node, "").await?;
    let client = world.plane.client("lifecycle").await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let (zone, draining) = ("ebs.csi.aws.com/zone", "ebs.csi.aws.com/draining");
    let limit = |value: &str| annotate("ebs.csi.aws.com/attach-limit", json!(value));
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
        (name, "to tell a limit", limit("100 dedicated z9.large i-0123456789abcdef0"), true),
        (name, "to change it", limit("1000 shared m5.metal-24xl i-0123456789abcdef0"), true),
        (name, "no limit", limit("0 dedicated z9.large i-0123456789abcdef0"), false),
        (name, "a negative limit", limit("-1 dedicated z9.large i-0123456789abcdef0"), false),
        (name, "too large a limit", limit("1001 dedicated z9.large i-0123456789abcdef0"), false),
        (name, "a limit of no instance", limit("100 dedicated z9.large"), false),
        (name, "more than a limit", limit("100 dedicated z9.large i-0123456789abcdef0\n"), false),
        (name, "another limit", annotate("ebs.csi.aws.com/attach-limits", json!("100")), false),
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

const FAILED_OVER: &str = "ebs.csi.aws.com/failed-over";
const ATTACHER: &str = "external-attacher/ebs-csi-aws-com";

/// Creates a Ready node and one that is not Ready. A third name of a node has no Node object.
async fn ready_lost_and_gone(world: &World<'_>, name: &str) -> TestResult<[String; 3]> {
    let names = ["ready", "lost", "gone"].map(|kind| format!("{name}-{kind}"));
    let [ready, lost, _] = &names;
    for node in [ready, lost] {
        world.nodes.create_without_identity(node).await?;
    }
    world.nodes.stop_heartbeats(lost);
    world.wait_until_not_ready(lost).await?;
    Ok(names)
}

async fn end_nodes(world: &World<'_>, [ready, lost, _]: [String; 3]) -> TestResult {
    world.nodes.delete(&ready).await?;
    world.nodes.delete(&lost).await
}

async fn patch_status(pods: &Api<Pod>, name: &str, change: Value) -> TestResult {
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(change)).await?;
    Ok(())
}

/// As node-lifecycle's user: a pod of a node that is not Ready or gone may be set Failed with the
/// reason, and then be deleted; nothing else of a pod may change, and no other pod may go.
async fn pods_of_lost_nodes(world: &World<'_>) -> TestResult {
    let nodes = ready_lost_and_gone(world, "pods").await?;
    let pods: Api<Pod> = Api::namespaced(world.plane.client("lifecycle").await?, "default");
    let condition = |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}]);
    let labels = json!({FAILED_OVER: "true"});
    let reason = "DeletionByEBSNodeLifecycle";
    let failed = json!({"metadata": {"labels": labels},
        "status": {"phase": "Failed", "conditions": condition(reason)}});
    let with = |part: &str, field: &str, value: Value| {
        let mut change = failed.clone();
        change[part][field] = value;
        change
    };
    let annotations = json!({"x": "y"});
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "0"}]);
    let also_ready =
        json!([condition(reason)[0], {"type": "Ready", "status": "True", "reason": "x"}]);
    let refused = [
        ("its status alone", json!({"status": {"podIP": "10.0.0.1"}})),
        ("Failed without the label", with("metadata", "labels", json!({}))),
        ("the label alone", json!({"metadata": {"labels": labels}})),
        ("another phase", with("status", "phase", json!("Succeeded"))),
        ("another reason", with("status", "conditions", condition("x"))),
        ("another condition", with("status", "conditions", also_ready)),
        ("more of its status", with("status", "podIP", json!("10.0.0.1"))),
        ("another label", with("metadata", "labels", json!({FAILED_OVER: "true", "x": "y"}))),
        ("an annotation", with("metadata", "annotations", annotations)),
        ("a finalizer", with("metadata", "finalizers", json!(["example.com/x"]))),
    ];
    let at_once = DeleteParams::default().grace_period(0);
    let [ready, lost, gone] = &nodes;
    for node in [ready, lost, gone] {
        let pod = format!("{node}-0");
        // Kubernetes does not evict it.
        let all = json!([{"operator": "Exists"}]);
        world.add_tolerant_pod(&pod, node, &["none"], all).await?;
        let before = pods_as_admin(world, &pod).await?;
        for (what, change) in &refused {
            let patched = patch_status(&pods, &pod, change.clone()).await;
            check_allowed(&format!("{node}: {what}"), patched, false)?;
        }
        // The API server ignores a changed owner.
        let _ = patch_status(&pods, &pod, json!({"metadata": {"ownerReferences": owner}})).await;
        let deleted = pods.delete(&pod, &at_once).await.map(drop).map_err(Into::into);
        check_allowed(&format!("{node}: the deletion of a pod that runs"), deleted, false)?;
        ensure(pods_as_admin(world, &pod).await? == before, "the pod is as it was")?;
        let allowed = node != ready;
        let patched = patch_status(&pods, &pod, failed.clone()).await;
        if let (false, Err(why)) = (allowed, &patched) {
            ensure(why.to_string().contains("pods-ready is Ready"), &why.to_string())?;
        }
        check_allowed(&format!("{node}: Failed with the reason"), patched, allowed)?;
        let deleted = pods.delete(&pod, &at_once).await.map(drop).map_err(Into::into);
        check_allowed(&format!("{node}: the deletion after that"), deleted, allowed)?;
    }
    world.end_pod(&format!("{ready}-0")).await?;
    let of_daemon_set =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "x"}]);
    let never: [(_, &[&str], Value); 4] = [
        ("without a claim", &[], json!({})),
        ("opted out", &["none"], json!({"annotations": {"ebs.csi.aws.com/failover": "off"}})),
        ("a static pod", &["none"], json!({"annotations": {"kubernetes.io/config.mirror": "x"}})),
        ("of a DaemonSet", &["none"], json!({"ownerReferences": of_daemon_set})),
    ];
    for (what, claims, mut metadata) in never {
        let pod = format!("{lost}-1");
        metadata["name"] = json!(pod);
        let volumes: Vec<_> = claims
            .iter()
            .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let spec = json!({"nodeName": lost, "containers": [{"name": "main", "image": "none"}],
            "volumes": volumes, "tolerations": [{"operator": "Exists"}]});
        create(&world.pods(), json!({"metadata": metadata, "spec": spec})).await?;
        check_allowed(what, patch_status(&pods, &pod, failed.clone()).await, false)?;
        world.end_pod(&pod).await?;
    }
    end_nodes(world, nodes).await
}

/// Returns what of a pod the policies protect.
async fn pods_as_admin(world: &World<'_>, pod: &str) -> TestResult<Value> {
    let pod = world.pods().get(pod).await?;
    let (meta, status) = (pod.metadata, pod.status.unwrap_or_default());
    Ok(json!([
        meta.labels,
        meta.annotations,
        meta.finalizers,
        meta.owner_references,
        meta.deletion_timestamp,
        status.phase,
        status.pod_ip
    ]))
}

/// As the user that node-lifecycle shares with external-attacher: finalizers stay, but for
/// external-attacher's own where the deletion is requested; an attachment to a Ready node stays.
async fn attachments(world: &World<'_>) -> TestResult {
    let nodes = ready_lost_and_gone(world, "vas").await?;
    let client = world.plane.client("lifecycle").await?;
    let attachments: Api<VolumeAttachment> = Api::all(client);
    let admin = world.attachments();
    let [ready, lost, gone] = &nodes;
    let meta = |field: &str, value: Value| json!({"metadata": {field: value}});
    let annotate = |key: &str, value: &str| meta("annotations", json!({key: value}));
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "0"}]);
    let labelled = meta("labels", json!({FAILED_OVER: "true"}));
    let kept = "example.com/kept";
    let rows = [
        ("all finalizers", meta("finalizers", Value::Null), false),
        ("a finalizer", meta("finalizers", json!([ATTACHER])), false),
        ("external-attacher's finalizer", meta("finalizers", json!([kept])), false),
        ("another finalizer", meta("finalizers", json!([ATTACHER, kept, "example.com/x"])), false),
        ("an owner", meta("ownerReferences", owner), false),
        ("a label", meta("labels", json!({"x": "y"})), false),
        ("an annotation", annotate("x", "y"), false),
        ("an order", annotate("ebs.csi.aws.com/break-glass", "i-1 t"), false),
        ("a retry", annotate("ebs.csi.aws.com/safe-to-detach", "now"), true),
        ("the node id", annotate("csi.alpha.kubernetes.io/node-id", "i-1"), true),
    ];
    for node in [ready, lost, gone] {
        let name = format!("csi-{node}");
        create(&admin, attachment(&name, "ebs.csi.aws.com", node, json!([ATTACHER, kept]))).await?;
        for (what, change, allowed) in &rows {
            let patched = patch(&attachments, &name, change.clone()).await;
            check_allowed(&format!("{node}: {what}"), patched, *allowed)?;
        }
        let allowed = node != ready;
        // external-attacher's role grants it.
        mark(&admin, &name, true).await?;
        check_allowed(
            "detached, while it is wanted",
            mark(&attachments, &name, false).await,
            false,
        )?;
        check_deletion(&attachments, &name, "without the label", false).await?;
        patch(&attachments, &name, labelled.clone()).await?;
        check_deletion(&attachments, &name, "with the label", allowed).await?;
        if !allowed {
            admin.delete(&name, &DeleteParams::default()).await?;
        }
        patch(&attachments, &name, meta("finalizers", json!([kept]))).await?;
        mark(&attachments, &name, false).await?;
        let change = meta("finalizers", Value::Null);
        check_allowed("the last finalizer", patch(&attachments, &name, change).await, false)?;
        patch(&admin, &name, meta("finalizers", Value::Null)).await?;
    }
    let other = "csi-of-another";
    create(&admin, attachment(other, "other.example.com", lost, json!([]))).await?;
    let patched = patch(&attachments, other, labelled).await;
    check_allowed("another driver's attachment", patched, false)?;
    check_deletion(&attachments, other, "another driver's", false).await?;
    admin.delete(other, &DeleteParams::default()).await?;
    end_nodes(world, nodes).await
}

/// Says that the volume is attached or detached, as external-attacher does.
async fn mark(attachments: &Api<VolumeAttachment>, name: &str, attached: bool) -> TestResult {
    let status = Patch::Merge(json!({"status": {"attached": attached}}));
    attachments.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

fn attachment(name: &str, attacher: &str, node: &str, finalizers: Value) -> Value {
    json!({"metadata": {"name": name, "finalizers": finalizers},
        "spec": {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": "none"}}})
}

async fn check_deletion(
    attachments: &Api<VolumeAttachment>,
    name: &str,
    what: &str,
    allowed: bool,
) -> TestResult {
    let deleted = attachments.delete(name, &DeleteParams::default()).await;
    let what = format!("the deletion of {name}, {what}");
    check_allowed(&what, deleted.map(drop).map_err(Into::into), allowed)
}

/// A cluster administrator outside of the named groups may not give an override order, in any way;
/// a member of a named group may, and everybody may withdraw it.
async fn override_orders(world: &World<'_>) -> TestResult {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}]});
    manifests::create(&world.admin, &binding).await?;
    let operator = control_plane::client(&world.plane.kubeconfig_as("operator")).await?;
    let operator: Api<VolumeAttachment> = Api::all(operator);
    let admin = world.attachments();
    let (name, key) = ("csi-ordered", "ebs.csi.aws.com/break-glass");
    let mut ordered = attachment(name, "ebs.csi.aws.com", "nowhere", json!([]));
    ordered["metadata"]["annotations"] = json!({key: "i-1 t"});
    let created = create(&operator, ordered).await.map(drop);
    check_allowed("an attachment with an order", created, false)?;
    create(&operator, attachment(name, "ebs.csi.aws.com", "nowhere", json!([]))).await?;
    let order = |value: Value| json!({"metadata": {"annotations": {key: value}}});
    let rows = [
        ("an operator's order", &operator, json!("i-1 t"), false),
        ("another annotation", &operator, Value::Null, true),
        ("an order of a named group", &admin, json!("i-1 t"), true),
        ("a changed order", &operator, json!("i-2 t"), false),
        ("the same order", &operator, json!("i-1 t"), true),
        ("the end of the order", &operator, Value::Null, true),
    ];
    for (what, api, value, allowed) in rows {
        check_allowed(what, patch(api, name, order(value)).await, allowed)?;
    }
    let by_status = Patch::Merge(order(json!("i-1 t")));
    // It may be refused or ignored.
    let _ = operator.patch_status(name, &PatchParams::default(), &by_status).await;
    let annotations = admin.get(name).await?.metadata.annotations.unwrap_or_default();
    ensure(!annotations.contains_key(key), "a change of the status gives no order")?;
    admin.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Checks whether the node may be given these taints.
async fn may_taint(
    nodes: &Api<Node>,
    name: &str,
    taints: &[&Value],
    allowed: bool,
    what: &str,
) -> TestResult {
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
async fn taint(nodes: &Api<Node>, name: &str, taints: &[&Value]) -> TestResult {
    let there = nodes.get(name).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let kept = there.iter().filter(|taint| taint.key != "node.kubernetes.io/out-of-service");
    let all: Vec<Value> =
        kept.map(|taint| json!(taint)).chain(taints.iter().copied().cloned()).collect();
    patch(nodes, name, json!({"spec": {"taints": all}})).await
}
