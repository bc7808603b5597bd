//! Annotations of the node-agent's pods: the facts about the node that a pod lacks, and whether the
//! node is being drained.
//!
//! The node-agent has no Kubernetes token. It reads its pod's labels and annotations from a file
//! that kubelet writes. The work is level-triggered and never ends, and depends neither on safe
//! detach nor on failover's kill switch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::act::Done;
use crate::cluster::{DRAINING, FACTS, NodeFact, SeenAgentPod, SeenNode, Table, TableRow, Tables};
use crate::events::{EventReason, EventSender, EventSubject};
use crate::leader::Leader;
use crate::metrics::Metrics;

/// Pause between two looks, which ask the API server for nothing.
const EVERY: Duration = Duration::from_secs(1);
/// Pause after a patch of a pod that the watch has not shown yet, and after a refused patch.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest time for which one pod delays the others.
const WITHIN: Duration = Duration::from_secs(10);
/// Most pods of one look, so that a starting cluster does not flood the API server.
const AT_ONCE: usize = 50;
/// A pod that lacks something for longer is counted and reported.
const LASTING: Duration = Duration::from_secs(30);

/// The note of the event about a node whose zone nothing tells.
const NO_ZONE: &str = "the Node has neither the label topology.kubernetes.io/zone nor a providerID with a zone, so \
     kubelet cannot register the driver there unless the node-agent reaches instance metadata; let the cloud \
     controller manager set them";

/// Which annotations are kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Missing facts about the node.
    pub facts: bool,
    /// Whether the node is being drained.
    pub draining: bool,
}

/// Keeps the annotations.
pub struct AgentAnnotations {
    client: Client,
    tables: Arc<Tables>,
    /// The pods, by namespace.
    pods: Vec<Arc<Table<SeenAgentPod>>>,
    kept: Kept,
    leader: Arc<Leader>,
    metrics: Arc<Metrics>,
    teller: Arc<EventSender>,
    /// The version of each pod that was last patched, by uid, and when.
    tried: HashMap<String, (String, Instant)>,
    /// Since when each pod has lacked something, by uid.
    behind: HashMap<String, Instant>,
    /// When the API server last refused a patch.
    refused: Option<Instant>,
}

impl AgentAnnotations {
    /// Creates the task for the pods in these tables.
    pub fn new(
        client: Client,
        tables: Arc<Tables>,
        pods: Vec<Arc<Table<SeenAgentPod>>>,
        kept: Kept,
        leader: Arc<Leader>,
        metrics: Arc<Metrics>,
        teller: Arc<EventSender>,
    ) -> Self {
        Self {
            client,
            tables,
            pods,
            kept,
            leader,
            metrics,
            teller,
            tried: HashMap::new(),
            behind: HashMap::new(),
            refused: None,
        }
    }

    /// Looks for pods to annotate, for ever.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            if self.leader.leads() && self.tables.identities_are_complete() {
                self.look().await;
            } else {
                self.tried.clear();
                self.behind.clear();
                self.metrics.pods_behind(0);
            }
        }
    }

    /// Takes one look.
    pub async fn look(&mut self) {
        let different = self.different();
        self.count(&different);
        self.tried.retain(|_, (_, at)| at.elapsed() < AGAIN);
        self.refused = self.refused.filter(|at| at.elapsed() < AGAIN);
        let is_tried = |pod: &SeenAgentPod| {
            let tried = self.tried.get(pod.uid());
            tried.is_some_and(|(version, _)| version == pod.version())
        };
        let due: Vec<_> = different
            .into_iter()
            .filter(|(pod, difference)| difference.is_writable() && !is_tried(pod))
            .take(AT_ONCE)
            .collect();
        for (pod, difference) in due {
            // What refuses one patch refuses the others, too.
            if self.refused.is_some() || !self.leader.leads() {
                return;
            }
            let result = self.patch(&pod, &difference).await;
            self.metrics.pod_annotated(result);
            let tried = (pod.version().to_owned(), Instant::now());
            self.tried.insert(pod.uid().to_owned(), tried);
        }
    }

    /// Returns the pods that do not say what they should.
    fn different(&self) -> Vec<(Arc<SeenAgentPod>, Difference)> {
        let pods = self.pods.iter().flat_map(|table| table.pick(|_| true));
        let differences = pods.filter_map(|pod| {
            let node = self.tables.nodes.get(pod.node())?;
            let csi_node = self.tables.csi_nodes.get(&node.name);
            let registered = csi_node.is_some_and(|seen| seen.is_of(&node.uid));
            let difference = Difference::of(&pod, &node, registered, self.kept);
            (difference != Difference::default()).then_some((pod, difference))
        });
        differences.collect()
    }

    /// Counts the pods that have lacked something for long, and reports those whose Node lacks it.
    fn count(&mut self, different: &[(Arc<SeenAgentPod>, Difference)]) {
        let now = Instant::now();
        let before = std::mem::take(&mut self.behind);
        for (pod, difference) in different {
            let since = before.get(pod.uid()).copied().unwrap_or(now);
            self.behind.insert(pod.uid().to_owned(), since);
            if difference.unknown && now.duration_since(since) >= LASTING {
                let (namespace, name) = pod.name();
                let about = EventSubject::Pod {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: pod.uid().to_owned(),
                };
                self.teller.tell(about, EventReason::FactsUnknown, NO_ZONE);
            }
        }
        self.teller.keep_only(|about| match about {
            EventSubject::Pod { uid, .. } => self.behind.contains_key(uid),
            EventSubject::Node { .. } | EventSubject::Attachment { .. } => true,
        });
        let lasting = self.behind.values();
        let lasting = lasting.filter(|since| now.duration_since(**since) >= LASTING);
        self.metrics.pods_behind(lasting.count());
    }

    /// Patches one pod. Returns the result's label.
    async fn patch(&mut self, pod: &SeenAgentPod, difference: &Difference) -> &'static str {
        let annotated = annotate(&self.client, pod, difference);
        match tokio::time::timeout(WITHIN, annotated).await {
            Ok(Ok(Done::Done)) => {
                let keys: Vec<&str> = difference.annotations.iter().map(|(key, _)| *key).collect();
                tracing::info!(
                    pod = pod.key(),
                    node = pod.node(),
                    annotations = keys.join(","),
                    "the node-agent's pod is annotated"
                );
                return "done";
            }
            Ok(Ok(Done::Overtaken)) => return "overtaken",
            Ok(Err(error)) => tracing::warn!(
                pod = pod.key(),
                node = pod.node(),
                %error,
                "the node-agent's pod could not be annotated: it does not learn its zone from Kubernetes, nor that its node is being drained"
            ),
            Err(_) => tracing::warn!(
                pod = pod.key(),
                node = pod.node(),
                "the API server does not answer in time: the node-agent's pod is not annotated for now"
            ),
        }
        self.refused = Some(Instant::now());
        "failed"
    }
}

/// What a pod should say and does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Difference {
    /// The annotations to set or, without a value, to remove.
    annotations: Vec<(&'static str, Option<String>)>,
    /// The pod lacks the zone, the Node lacks it, too, and the driver is not registered there.
    unknown: bool,
}

impl Difference {
    /// Compares a pod with its Node. `registered` is whether the driver is registered there.
    fn of(pod: &SeenAgentPod, node: &SeenNode, registered: bool, kept: Kept) -> Self {
        let mut difference = Self::default();
        if kept.facts {
            let lacks_zone = !pod.has(NodeFact::Zone);
            let zone_is_known = !node.fact(NodeFact::Zone).is_empty();
            // Where Kubernetes has copied the zone, firmware has the rest, except on machines whose
            // agent has ended for want of it.
            let wants_more = pod.has_restarted() && !registered;
            if lacks_zone && zone_is_known || !lacks_zone && wants_more {
                let missing = FACTS.into_iter().filter(|fact| !pod.has(*fact));
                let known = missing.filter(|fact| !node.fact(*fact).is_empty());
                difference.annotations.extend(
                    known.map(|fact| (fact.annotation(), Some(node.fact(fact).to_owned()))),
                );
            }
            difference.unknown = lacks_zone && !zone_is_known && !registered;
        }
        if kept.draining && node.draining != pod.says_draining() {
            let value = node.draining.then(|| "true".to_owned());
            difference.annotations.push((DRAINING, value));
        }
        difference
    }

    fn is_writable(&self) -> bool {
        !self.annotations.is_empty()
    }

    /// Returns the patch, which applies only to the pod that was seen, in the version that was
    /// seen.
    fn patch(&self, pod: &SeenAgentPod) -> Value {
        let annotations: HashMap<_, _> = self.annotations.iter().cloned().collect();
        json!({"metadata": {
            "uid": pod.uid(),
            "resourceVersion": pod.version(),
            "annotations": annotations,
        }})
    }
}

/// Writes the annotations of one pod.
///
/// # Errors
/// The API server's error, when it did not answer or refused.
async fn annotate(
    client: &Client,
    pod: &SeenAgentPod,
    difference: &Difference,
) -> Result<Done, kube::Error> {
    let (namespace, name) = pod.name();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(difference.patch(pod));
    let how = PatchParams::default();
    match api.patch_metadata(name, &how, &patch).await {
        Ok(_) => Ok(Done::Done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Done::Overtaken),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::Retained;

    use super::*;

    const ALL: Kept = Kept {
        facts: true,
        draining: true,
    };

    fn node(labels: Value, taints: Value) -> SeenNode {
        let object = json!({
            "metadata": {"name": "n", "uid": "n-uid", "labels": labels},
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "taints": taints},
        });
        SeenNode::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    /// A node whose provider id has no zone.
    fn zoneless() -> SeenNode {
        let object = json!({"metadata": {"name": "n", "uid": "n-uid"}});
        SeenNode::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    fn labels() -> Value {
        json!({"topology.kubernetes.io/zone": "us-east-1b", "topology.kubernetes.io/region": "us-east-1",
            "node.kubernetes.io/instance-type": "t2.micro"})
    }

    fn pod(labels: Value, annotations: Value, restarts: u32) -> SeenAgentPod {
        let object = json!({
            "metadata": {"namespace": "kube-system", "name": "ebs-csi-node-x", "uid": "u", "resourceVersion": "7",
                "labels": labels, "annotations": annotations,
                "ownerReferences": [{"kind": "DaemonSet", "name": "ebs-csi-node", "controller": true}]},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [{"restartCount": restarts}]},
        });
        SeenAgentPod::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    fn keys(difference: &Difference) -> Vec<&str> {
        let annotations = difference.annotations.iter();
        annotations
            .map(|(key, _)| key.split_once('/').unwrap().1)
            .collect()
    }

    #[test]
    fn pod_without_zone_gets_missing_facts_once() {
        let node = node(labels(), json!([]));
        let bare = pod(json!({}), json!({}), 0);
        let difference = Difference::of(&bare, &node, false, ALL);
        assert_eq!(
            keys(&difference),
            ["zone", "region", "instance-id", "instance-type"]
        );
        let patch = difference.patch(&bare);
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations["ebs.csi.aws.com/zone"], "us-east-1b");
        assert_eq!(
            annotations["ebs.csi.aws.com/instance-id"],
            "i-0123456789abcdef0"
        );
        let patched = pod(json!({}), annotations.clone(), 0);
        assert_eq!(
            Difference::of(&patched, &node, false, ALL),
            Difference::default()
        );
        // What the pod says already is not written.
        let told = pod(json!({}), json!({"ebs.csi.aws.com/instance-id": "i-1"}), 0);
        let difference = Difference::of(&told, &node, true, ALL);
        assert_eq!(keys(&difference), ["zone", "region", "instance-type"]);
    }

    /// Kubernetes 1.35 copies zone and region to the pod.
    #[test]
    fn pod_with_copied_zone_needs_no_patch() {
        let node = node(labels(), json!([]));
        let copied = json!({"topology.kubernetes.io/zone": "us-east-1b"});
        for (restarts, registered) in [(0, false), (0, true), (3, true)] {
            let pod = pod(copied.clone(), json!({}), restarts);
            let difference = Difference::of(&pod, &node, registered, ALL);
            assert_eq!(difference, Difference::default(), "{restarts} {registered}");
        }
        // An agent that has ended before the driver was registered may lack more than the zone.
        let restarted = pod(copied, json!({}), 1);
        let difference = Difference::of(&restarted, &node, false, ALL);
        assert_eq!(
            keys(&difference),
            ["region", "instance-id", "instance-type"]
        );
    }

    #[test]
    fn unknown_zone_is_reported_unless_driver_is_registered() {
        let bare = pod(json!({}), json!({}), 0);
        let difference = Difference::of(&bare, &zoneless(), false, ALL);
        assert!(difference.unknown && !difference.is_writable());
        assert_eq!(
            Difference::of(&bare, &zoneless(), true, ALL),
            Difference::default()
        );
    }

    #[test]
    fn draining_annotation_follows_drain_taint() {
        let drained = node(
            labels(),
            json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
        );
        let calm = node(labels(), json!([]));
        let zone = json!({"topology.kubernetes.io/zone": "us-east-1b"});
        let quiet = pod(zone.clone(), json!({}), 0);
        let loud = pod(zone, json!({DRAINING: "true"}), 0);
        let change = |pod: &SeenAgentPod, node: &SeenNode| Difference::of(pod, node, true, ALL);
        assert_eq!(
            change(&quiet, &drained).annotations,
            [(DRAINING, Some("true".to_owned()))]
        );
        assert_eq!(change(&loud, &calm).annotations, [(DRAINING, None)]);
        let patch = change(&loud, &calm).patch(&loud);
        assert_eq!(patch["metadata"]["annotations"], json!({DRAINING: null}));
        assert_eq!(change(&quiet, &calm), Difference::default());
        assert_eq!(change(&loud, &drained), Difference::default());
    }

    #[test]
    fn switched_off_annotations_are_left_alone() {
        let drained = node(
            labels(),
            json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
        );
        let bare = pod(json!({}), json!({}), 0);
        let change = |facts, draining| {
            let difference = Difference::of(&bare, &drained, false, Kept { facts, draining });
            difference.annotations.len()
        };
        assert_eq!(change(true, false), 4);
        assert_eq!(change(false, true), 1);
        assert_eq!(change(false, false), 0);
    }
}
