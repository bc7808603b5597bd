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

use crate::act::Done;
use crate::cluster::{SeenAgentPod, Table, TableRow, Tables};
use crate::events::{EventReason, EventSender, EventSubject};
use crate::leader::Leader;
use crate::metrics::Metrics;

use super::pod_difference::Difference;
use super::{AGAIN, WITHIN};

pub use super::pod_difference::Kept;

/// Most pods of one look, so that a starting cluster does not flood the API server.
const AT_ONCE: usize = 50;
/// A pod that lacks something for longer is counted and reported.
const LASTING: Duration = Duration::from_secs(30);

/// The note of the event about a node whose zone nothing tells.
const NO_ZONE: &str = "the Node has neither the label topology.kubernetes.io/zone nor a providerID with a zone, so \
     kubelet cannot register the driver there unless the node-agent reaches instance metadata; let the cloud \
     controller manager set them";

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
            if super::turn(&self.leader, &self.tables).await {
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
