//! Requests for promises: the annotation on a node-agent's pod that lists the attachments which the
//! node is to leave alone. Kubelet shows it to the agent.
//!
//! Any replica may add to the list, for the controller beside it; the leader takes off what no
//! VolumeAttachment that is being deleted names any more. The node's promise ends a minute later.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::LEAVING;
use serde_json::json;

use crate::act::ActResult;
use crate::cluster::{AgentPodRow, Table, TableRow};
use crate::context::Context;
use crate::metrics::Metrics;
use crate::onboarding::agent_annotations::annotate;

/// Pause between two looks for entries that nobody needs.
const PAUSE: Duration = Duration::from_secs(5);
/// An entry goes when nobody has needed it for this long: the watches of two replicas differ.
const UNNEEDED: Duration = Duration::from_secs(15);
/// Attempts to write one entry beside other writers.
const ATTEMPTS: usize = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(200);
const PATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps the annotations. Clones share nothing but the tables.
#[derive(Clone)]
pub(crate) struct PromiseRequests {
    context: Context,
    /// The agents' pods, by namespace.
    pods: Vec<Arc<Table<AgentPodRow>>>,
}

fn entry(volume: &str, attached_at: &str) -> String {
    format!("{volume}@{attached_at}")
}

fn entries(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

impl PromiseRequests {
    /// Creates the writer for the pods in these tables.
    pub(crate) fn new(context: &Context, pods: Vec<Arc<Table<AgentPodRow>>>) -> Self {
        Self { context: context.clone(), pods }
    }

    /// Requests the promise for one attachment, unless it is requested already.
    pub(crate) async fn request(&self, pod: &Arc<AgentPodRow>, volume: &str, attached_at: &str) {
        let wanted = entry(volume, attached_at);
        let former = entry(volume, "");
        let add = |entries: &mut BTreeSet<String>| {
            // A volume is attached anew only after the end of its former attachment.
            entries.retain(|entry| *entry == wanted || !entry.starts_with(&former));
            entries.insert(wanted.clone())
        };
        if self.change(pod, add).await {
            tracing::info!(
                node = pod.node(),
                volume.id = volume,
                attached = attached_at,
                "the node is asked to promise that it leaves the volume alone"
            );
        }
    }

    /// Takes unneeded entries off, for ever.
    pub(crate) async fn run(self) {
        let mut unneeded: HashMap<(String, String), Instant> = HashMap::new();
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.context.leader.is_leader() && self.context.tables.are_complete_for_refusals() {
                self.withdraw(&mut unneeded).await;
            } else {
                unneeded.clear();
            }
        }
    }

    async fn withdraw(&self, unneeded: &mut HashMap<(String, String), Instant>) {
        let rows = self.pods.iter().flat_map(|table| table.filter(|pod| !pod.leaving().is_empty()));
        let before = std::mem::take(unneeded);
        for pod in rows {
            let leaving = self.context.tables.volumes_leaving(pod.node());
            let is_needed = |word: &str| {
                word.split_once('@').is_some_and(|(volume, _)| leaving.iter().any(|v| v == volume))
            };
            let mut over = Vec::new();
            for word in entries(pod.leaving()).into_iter().filter(|word| !is_needed(word)) {
                let key = (pod.uid().to_owned(), word.clone());
                let since = before.get(&key).copied().unwrap_or_else(Instant::now);
                if since.elapsed() >= UNNEEDED {
                    over.push(word);
                } else {
                    unneeded.insert(key, since);
                }
            }
            if over.is_empty() {
                continue;
            }
            let remove = |entries: &mut BTreeSet<String>| {
                let count = entries.len();
                entries.retain(|word| !over.contains(word));
                entries.len() != count
            };
            if self.change(&pod, remove).await {
                tracing::info!(
                    node = pod.node(),
                    attachments = over.join(","),
                    "the node need not leave these attachments alone any more"
                );
            }
        }
    }

    /// Changes the list of one pod. Returns whether it was changed.
    async fn change(
        &self,
        pod: &Arc<AgentPodRow>,
        change: impl Fn(&mut BTreeSet<String>) -> bool,
    ) -> bool {
        let mut seen = Arc::clone(pod);
        for _ in 0..ATTEMPTS {
            let mut entries = entries(seen.leaving());
            if !change(&mut entries) {
                return false;
            }
            let list = entries.into_iter().collect::<Vec<_>>().join(",");
            let patch = seen.patch(json!({LEAVING: Some(list).filter(|list| !list.is_empty())}));
            let annotated = annotate(&self.context.client, &seen, patch);
            match tokio::time::timeout(PATCH_TIMEOUT, annotated).await {
                Ok(Ok(ActResult::Done)) => {
                    Metrics::count(&self.context.metrics.pods_annotated, "done");
                    return true;
                }
                Ok(Ok(ActResult::Conflict)) => {
                    // The watch shows soon what another writer has done.
                    tokio::time::sleep(CONFLICT_PAUSE).await;
                    let now = self.pods.iter().find_map(|table| table.get(pod.key()));
                    // Another pod of that name is another agent.
                    match now.filter(|now| now.uid() == pod.uid()) {
                        Some(now) => seen = now,
                        None => return false,
                    }
                }
                Ok(Err(error)) => {
                    Metrics::count(&self.context.metrics.pods_annotated, "failed");
                    tracing::warn!(pod = pod.name().1, node = pod.node(), %error, "the node-agent's pod could not be annotated: its node does not learn which attachments to leave alone");
                    return false;
                }
                Err(_) => {
                    Metrics::count(&self.context.metrics.pods_annotated, "failed");
                    return false;
                }
            }
        }
        Metrics::count(&self.context.metrics.pods_annotated, "overtaken");
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_a_sorted_list_without_repeats() {
        let found = entries("vol-b@t, vol-a@t,,vol-b@t");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["vol-a@t", "vol-b@t"]);
        assert!(entries("").is_empty());
        assert_eq!(entry("vol-a", "t"), "vol-a@t");
    }
}
