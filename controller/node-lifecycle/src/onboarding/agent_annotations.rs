//! Annotations of the node-agent's pods: the facts about the node that a pod lacks, how many
//! volumes EC2 says that the instance takes, and whether the node is being drained.
//!
//! The node-agent has no Kubernetes token. It reads its pod's labels and annotations from a file
//! that kubelet writes. The work is level-triggered and never ends, and depends neither on safe
//! detach nor on failover's kill switch.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::NodeFact;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::act::ActResult;
use crate::cluster::{AgentPodRow, Table, TableRow};
use crate::context::Context;
use crate::events::{EventReason, EventSubject};
use crate::metrics::{Metrics, as_gauge};

use super::instance_types::InstanceTypes;
use super::pod_difference::Difference;
use super::{PATCH_PAUSE, PATCH_TIMEOUT};

pub use super::pod_difference::AnnotationSwitches;

/// Most pods that one round patches, so that a starting cluster does not flood the API server.
const MAX_PER_ROUND: usize = 50;
/// A pod that lacks an annotation for longer is counted and reported.
const REPORT_AFTER: Duration = Duration::from_secs(30);

const ZONE_UNKNOWN_NOTE: &str = "the Node has neither the label topology.kubernetes.io/zone nor a providerID with a zone, so \
     kubelet cannot register the driver there unless the node-agent reaches instance metadata; let the cloud \
     controller manager set them";

/// Keeps the annotations.
pub struct AgentAnnotations {
    context: Context,
    /// The pods, by namespace.
    pods: Vec<Arc<Table<AgentPodRow>>>,
    switches: AnnotationSwitches,
    instance_types: InstanceTypes,
    /// The version of each pod that was last patched, by uid, and when.
    last_patched: HashMap<String, (String, Instant)>,
    /// The time since when each pod has lacked an annotation, by uid.
    lacking_since: HashMap<String, Instant>,
    last_refusal: Option<Instant>,
}

impl AgentAnnotations {
    /// Creates the task for the pods in these tables.
    pub fn new(
        context: Context,
        pods: Vec<Arc<Table<AgentPodRow>>>,
        switches: AnnotationSwitches,
    ) -> Self {
        Self {
            context,
            pods,
            switches,
            instance_types: InstanceTypes::default(),
            last_patched: HashMap::new(),
            lacking_since: HashMap::new(),
            last_refusal: None,
        }
    }

    /// Looks for pods to annotate, for ever.
    pub async fn run(mut self) {
        loop {
            if super::wait_for_round(&self.context).await {
                self.annotate_pods().await;
            } else {
                self.last_patched.clear();
                self.lacking_since.clear();
                self.context.metrics.pods_behind.set(0);
            }
        }
    }

    /// Runs one round.
    pub async fn annotate_pods(&mut self) {
        let differences = self.find_differences();
        self.report_lacking(&differences);
        self.last_patched.retain(|_, (_, at)| at.elapsed() < PATCH_PAUSE);
        self.last_refusal = self.last_refusal.filter(|at| at.elapsed() < PATCH_PAUSE);
        let was_patched = |pod: &AgentPodRow| {
            let tried = self.last_patched.get(pod.uid());
            tried.is_some_and(|(version, _)| version == pod.version())
        };
        let mut due: Vec<_> = differences
            .into_iter()
            .filter(|(pod, difference)| difference.needs_patch() && !was_patched(pod))
            .collect();
        // Kubelet can register the driver without the limit, which an admission policy of an
        // earlier release refuses.
        due.sort_by_key(|(_, difference)| difference.is_limit_alone());
        due.truncate(MAX_PER_ROUND);
        for (pod, difference) in due {
            // What refuses one patch refuses the others, too.
            if self.last_refusal.is_some() || !self.context.leader.is_leader() {
                return;
            }
            let result = self.patch(&pod, &difference).await;
            Metrics::count(&self.context.metrics.pods_annotated, result);
            let tried = (pod.version().to_owned(), Instant::now());
            self.last_patched.insert(pod.uid().to_owned(), tried);
        }
    }

    fn find_differences(&self) -> Vec<(Arc<AgentPodRow>, Difference)> {
        let pods = self.pods.iter().flat_map(|table| table.filter(|_| true));
        let pods_and_nodes: Vec<_> = pods
            .filter_map(|pod| {
                let node = self.context.tables.nodes.get(pod.node())?;
                Some((pod, node))
            })
            .collect();
        if self.switches.facts {
            let types = pods_and_nodes.iter().map(|(_, node)| node.fact(NodeFact::InstanceType));
            let types: BTreeSet<&str> = types.filter(|name| !name.is_empty()).collect();
            self.instance_types.ask(&self.context.controller, &types);
        }
        let differences = pods_and_nodes.into_iter().filter_map(|(pod, node)| {
            let csi_node = self.context.tables.csi_nodes.get(&node.name);
            let registered = csi_node.is_some_and(|row| row.belongs_to(&node.uid));
            let limit = self.instance_types.limit_of(&node);
            let difference =
                Difference::between(&pod, &node, registered, limit.as_ref(), self.switches);
            (difference != Difference::default()).then_some((pod, difference))
        });
        differences.collect()
    }

    /// Counts the pods that have lacked an annotation for long, and reports those whose Node lacks
    /// the fact, too.
    fn report_lacking(&mut self, differences: &[(Arc<AgentPodRow>, Difference)]) {
        let now = Instant::now();
        let before = std::mem::take(&mut self.lacking_since);
        for (pod, difference) in differences {
            let since = before.get(pod.uid()).copied().unwrap_or(now);
            self.lacking_since.insert(pod.uid().to_owned(), since);
            if difference.unknown && now.duration_since(since) >= REPORT_AFTER {
                let subject = EventSubject::new(pod.name(), pod.uid());
                self.context.events.send(subject, EventReason::FactsUnknown, ZONE_UNKNOWN_NOTE);
            }
        }
        self.context.events.retain(|subject, reason| {
            reason != EventReason::FactsUnknown || self.lacking_since.contains_key(&subject.uid)
        });
        let lasting = self.lacking_since.values();
        let lasting = lasting.filter(|since| now.duration_since(**since) >= REPORT_AFTER);
        self.context.metrics.pods_behind.set(as_gauge(lasting.count()));
    }

    /// Patches one pod. Returns the result's label.
    async fn patch(&mut self, pod: &AgentPodRow, difference: &Difference) -> &'static str {
        let annotated = annotate(&self.context.client, pod, difference.patch(pod));
        match tokio::time::timeout(PATCH_TIMEOUT, annotated).await {
            Ok(Ok(ActResult::Done)) => {
                let keys: Vec<&str> = difference.annotations.iter().map(|(key, _)| *key).collect();
                tracing::info!(
                    pod = pod.key(),
                    node = pod.node(),
                    annotations = keys.join(","),
                    "the node-agent's pod is annotated"
                );
                return "done";
            }
            Ok(Ok(ActResult::Conflict)) => return "overtaken",
            Ok(Err(error)) => tracing::warn!(
                pod = pod.key(),
                node = pod.node(),
                %error,
                "the node-agent's pod could not be annotated: it does not learn from Kubernetes what its Node says, nor what EC2 says of its instance type"
            ),
            Err(_) => tracing::warn!(
                pod = pod.key(),
                node = pod.node(),
                "the API server does not answer in time: the node-agent's pod is not annotated for now"
            ),
        }
        self.last_refusal = Some(Instant::now());
        "failed"
    }
}

/// Writes annotations of one pod.
pub(crate) async fn annotate(
    client: &Client,
    pod: &AgentPodRow,
    patch: Value,
) -> Result<ActResult, kube::Error> {
    let (namespace, name) = pod.name();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(patch);
    ActResult::of(api.patch_metadata(name, &PatchParams::default(), &patch).await)
}
