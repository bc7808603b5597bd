//! Which taints the pods of nodes tolerate, compared with the Go driver's chart 2.64.

use serde_json::{Value, json};

use crate::{array, find, helm, render};

/// What the Go driver's chart adds to `node.tolerations` without `tolerateAllTaints`.
const GO_DRIVER_ADDS: [&str; 4] = [
    "ebs.csi.aws.com/agent-not-ready",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

/// Returns whether a toleration matches a taint, as Kubernetes' scheduler decides it
/// (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>).
fn matches(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    let exists = toleration["operator"] == "Exists";
    (effect.is_empty() || effect == text(&taint["effect"]))
        && (key == text(&taint["key"]) || key.is_empty() && exists)
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
}

/// Returns the seconds for which the taint is tolerated: none is not at all, and the largest number
/// for ever.
fn tolerated(tolerations: &[Value], taint: &Value) -> Option<u64> {
    let found = tolerations.iter().filter(|it| matches(it, taint));
    found.map(|it| it["tolerationSeconds"].as_u64().unwrap_or(u64::MAX)).min()
}

fn taints() -> Vec<Value> {
    let keys = [("dedicated", "storage"), ("dedicated", "other"), ("node.kubernetes.io/x", "")];
    let keys = keys.into_iter().chain(GO_DRIVER_ADDS.map(|key| (key, "1")));
    keys.flat_map(|(key, value)| {
        ["NoSchedule", "NoExecute", "PreferNoSchedule"]
            .map(|effect| json!({"key": key, "value": value, "effect": effect}))
    })
    .collect()
}

#[test]
fn node_pods_tolerate_what_go_driver_tolerates() {
    let Some(helm) = helm() else { return };
    let own = "node.tolerateAllTaints=false";
    let default = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
    let dedicated = json!([{"key": "dedicated", "operator": "Equal", "value": "storage",
                            "effect": "NoSchedule"}]);
    let dedicated_set = format!(
        "{own},node.tolerations[0].key=dedicated,node.tolerations[0].operator=Equal,\
         node.tolerations[0].value=storage,node.tolerations[0].effect=NoSchedule"
    );
    let of_other = "additionalDaemonSets.x.tolerateAllTaints=false,\
                    additionalDaemonSets.x.tolerations=null";
    for (name, values, given) in [
        ("ebs-csi-node", own, &default),
        ("ebs-csi-node", &dedicated_set, &dedicated),
        ("ebs-csi-node", "node.tolerateAllTaints=false,node.tolerations=null", &json!([])),
        ("ebs-csi-node-x", of_other, &json!([])),
    ] {
        let objects =
            render(&helm, &["--set-json", "additionalDaemonSets={\"x\":{}}", "--set", values]);
        let daemonset = find(&objects, "DaemonSet", name).expect("a DaemonSet");
        let ours = array(&daemonset["spec"]["template"]["spec"]["tolerations"]);
        let mut theirs = array(given).to_vec();
        theirs.extend(GO_DRIVER_ADDS.map(|key| json!({"key": key, "operator": "Exists"})));
        for taint in taints() {
            let (ours, theirs) = (tolerated(ours, &taint), tolerated(&theirs, &taint));
            assert_eq!(ours, theirs, "{name} with {values}: {taint}");
        }
    }
}

/// Values of the chart's own former default are not added twice.
#[test]
fn toleration_that_is_given_is_rendered_once() {
    let Some(helm) = helm() else { return };
    let key = "karpenter.sh/disrupted";
    let values = format!(
        "node.tolerateAllTaints=false,node.tolerations[0].key={key},\
         node.tolerations[0].operator=Exists"
    );
    let objects = render(&helm, &["--set", &values]);
    let daemonset = find(&objects, "DaemonSet", "ebs-csi-node").expect("a DaemonSet");
    let all = array(&daemonset["spec"]["template"]["spec"]["tolerations"]);
    assert_eq!(all.iter().filter(|it| it["key"] == key).count(), 1, "{all:?}");
}
