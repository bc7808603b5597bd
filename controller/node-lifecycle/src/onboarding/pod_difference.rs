//! The annotations that a node-agent's pod should have about its node, and lacks.

use std::collections::HashMap;

use ebs_csi_proto::keys::{ATTACH_LIMIT, AttachLimit, DRAINING, NodeFact};
use serde_json::{Value, json};

use crate::cluster::{AgentPodRow, NodeRow};

/// Which annotations are kept.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationSwitches {
    /// Missing facts about the node, and what EC2 says of its instance type.
    pub facts: bool,
    /// Whether the node is being drained.
    pub draining: bool,
}

/// The annotations that a pod lacks or has too much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// The annotations to set or, without a value, to remove.
    pub(super) annotations: Vec<(&'static str, Option<String>)>,
    /// The pod lacks the zone, the Node lacks it, too, and the driver is not registered there.
    pub(super) unknown: bool,
}

impl Difference {
    /// Compares a pod with its Node. `registered` is whether the driver is registered there,
    /// `limit` what EC2 says of the instance's type, where it is known.
    pub(super) fn between(
        pod: &AgentPodRow,
        node: &NodeRow,
        registered: bool,
        limit: Option<&AttachLimit>,
        switches: AnnotationSwitches,
    ) -> Self {
        let mut difference = Self::default();
        if switches.facts {
            let lacks_zone = !pod.has(NodeFact::Zone);
            let zone_is_known = !node.fact(NodeFact::Zone).is_empty();
            // Where Kubernetes has copied the zone, firmware has the rest; an agent that lacked it
            // has ended.
            let wants_more = pod.restarted && !registered;
            if lacks_zone && zone_is_known || !lacks_zone && wants_more {
                let missing = NodeFact::ALL.into_iter().filter(|fact| !pod.has(*fact));
                let known = missing.filter(|fact| !node.fact(*fact).is_empty());
                difference.annotations.extend(
                    known.map(|fact| (fact.annotation(), Some(node.fact(fact).to_owned()))),
                );
            }
            difference.unknown = lacks_zone && !zone_is_known && !registered;
        }
        if switches.draining && node.draining != pod.draining {
            let value = node.draining.then(|| "true".to_owned());
            difference.annotations.push((DRAINING, value));
        }
        // In a patch of its own, so that what refuses it refuses nothing else.
        if switches.facts && difference.annotations.is_empty() {
            let limit = limit.map(AttachLimit::to_string);
            let news = limit.filter(|limit| limit != pod.attach_limit());
            difference.annotations.extend(news.map(|limit| (ATTACH_LIMIT, Some(limit))));
        }
        difference
    }

    /// Returns whether the pod lacks only the limit of its instance.
    pub(super) fn is_limit_alone(&self) -> bool {
        self.annotations.iter().all(|(key, _)| *key == ATTACH_LIMIT)
    }

    pub(super) fn needs_patch(&self) -> bool {
        !self.annotations.is_empty()
    }

    pub(super) fn patch(&self, pod: &AgentPodRow) -> Value {
        let annotations: HashMap<_, _> = self.annotations.iter().cloned().collect();
        pod.patch(json!(annotations))
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::retained;

    use super::*;

    const ALL: AnnotationSwitches = AnnotationSwitches { facts: true, draining: true };

    fn drain() -> Value {
        json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    }

    fn node(taints: Value) -> NodeRow {
        let labels = json!({"topology.kubernetes.io/zone": "us-east-1b", "topology.kubernetes.io/region": "us-east-1",
            "node.kubernetes.io/instance-type": "t2.micro"});
        let object = json!({
            "metadata": {"name": "n", "uid": "n-uid", "labels": labels},
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "taints": taints},
        });
        retained(object).unwrap()
    }

    fn pod(labels: Value, annotations: Value, restarts: u32) -> AgentPodRow {
        let object = json!({
            "metadata": {"namespace": "kube-system", "name": "ebs-csi-node-x", "uid": "u", "resourceVersion": "7",
                "labels": labels, "annotations": annotations,
                "ownerReferences": [{"kind": "DaemonSet", "name": "ebs-csi-node", "controller": true}]},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [{"restartCount": restarts}]},
        });
        retained(object).unwrap()
    }

    fn keys(difference: &Difference) -> Vec<&str> {
        let annotations = difference.annotations.iter();
        annotations.map(|(key, _)| key.split_once('/').unwrap().1).collect()
    }

    #[test]
    fn pod_without_zone_gets_missing_facts_once() {
        let node = node(json!([]));
        let bare = pod(json!({}), json!({}), 0);
        let difference = Difference::between(&bare, &node, false, None, ALL);
        assert_eq!(keys(&difference), ["zone", "region", "instance-id", "instance-type"]);
        let patch = difference.patch(&bare);
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations["ebs.csi.aws.com/zone"], "us-east-1b");
        assert_eq!(annotations["ebs.csi.aws.com/instance-id"], "i-0123456789abcdef0");
        let patched = pod(json!({}), annotations.clone(), 0);
        assert_eq!(Difference::between(&patched, &node, false, None, ALL), Difference::default());
        // A fact that the pod has already is not written.
        let told = pod(json!({}), json!({"ebs.csi.aws.com/instance-id": "i-1"}), 0);
        let difference = Difference::between(&told, &node, true, None, ALL);
        assert_eq!(keys(&difference), ["zone", "region", "instance-type"]);
    }

    /// Kubernetes 1.35 copies zone and region to the pod.
    #[test]
    fn pod_with_copied_zone_needs_no_patch() {
        let node = node(json!([]));
        let copied = json!({"topology.kubernetes.io/zone": "us-east-1b"});
        for (restarts, registered) in [(0, false), (0, true), (3, true)] {
            let pod = pod(copied.clone(), json!({}), restarts);
            let difference = Difference::between(&pod, &node, registered, None, ALL);
            assert_eq!(difference, Difference::default(), "{restarts} {registered}");
        }
        // An agent that has ended before the driver was registered may lack more than the zone.
        let restarted = pod(copied, json!({}), 1);
        let difference = Difference::between(&restarted, &node, false, None, ALL);
        assert_eq!(keys(&difference), ["region", "instance-id", "instance-type"]);
    }

    #[test]
    fn unknown_zone_is_reported_unless_driver_is_registered() {
        let bare = pod(json!({}), json!({}), 0);
        let zoneless: NodeRow = retained(json!({"metadata": {"name": "n"}})).unwrap();
        let difference = Difference::between(&bare, &zoneless, false, None, ALL);
        assert!(difference.unknown && !difference.needs_patch());
        assert_eq!(Difference::between(&bare, &zoneless, true, None, ALL), Difference::default());
    }

    #[test]
    fn draining_annotation_follows_drain_taint() {
        let drained = node(drain());
        let undrained = node(json!([]));
        let zone = json!({"topology.kubernetes.io/zone": "us-east-1b"});
        let unmarked = pod(zone.clone(), json!({}), 0);
        let marked = pod(zone, json!({DRAINING: "true"}), 0);
        let change =
            |pod: &AgentPodRow, node: &NodeRow| Difference::between(pod, node, true, None, ALL);
        assert_eq!(change(&unmarked, &drained).annotations, [(DRAINING, Some("true".to_owned()))]);
        assert_eq!(change(&marked, &undrained).annotations, [(DRAINING, None)]);
        let patch = change(&marked, &undrained).patch(&marked);
        assert_eq!(patch["metadata"]["annotations"], json!({DRAINING: null}));
        assert_eq!(change(&unmarked, &undrained), Difference::default());
        assert_eq!(change(&marked, &drained), Difference::default());
    }

    /// The limit follows what EC2 says, after everything else.
    #[test]
    fn pod_with_facts_gets_limit_of_its_instance() {
        let node = node(json!([]));
        let limit = |count| {
            let instance = "i-0123456789abcdef0".parse().unwrap();
            AttachLimit::new(count, false, "z9.large", instance).unwrap()
        };
        let change = |pod: &AgentPodRow, limit, facts| {
            let switches = AnnotationSwitches { facts, ..ALL };
            Difference::between(pod, &node, true, Some(&limit), switches)
        };
        let labels = json!({"topology.kubernetes.io/zone": "us-east-1b"});
        let bare = pod(labels.clone(), json!({}), 0);
        let difference = change(&bare, limit(100), true);
        assert!(difference.is_limit_alone());
        let annotations = &difference.patch(&bare)["metadata"]["annotations"];
        let want = "100 dedicated z9.large i-0123456789abcdef0";
        assert_eq!(annotations, &json!({"ebs.csi.aws.com/attach-limit": want}));
        let told = pod(labels, annotations.clone(), 0);
        assert_eq!(change(&told, limit(100), true), Difference::default());
        assert!(change(&told, limit(99), true).is_limit_alone());
        assert_eq!(change(&bare, limit(100), false), Difference::default());
        let lacks_zone = change(&pod(json!({}), json!({}), 0), limit(100), true);
        assert!(!lacks_zone.is_limit_alone());
        assert!(!keys(&lacks_zone).contains(&"attach-limit"));
    }

    #[test]
    fn switched_off_annotations_are_not_changed() {
        let drained = node(drain());
        let bare = pod(json!({}), json!({}), 0);
        let change = |facts, draining| {
            let switches = AnnotationSwitches { facts, draining };
            Difference::between(&bare, &drained, false, None, switches).annotations.len()
        };
        assert_eq!(change(true, false), 4);
        assert_eq!(change(false, true), 1);
        assert_eq!(change(false, false), 0);
    }
}
