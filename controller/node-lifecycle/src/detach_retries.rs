//! Retries refused detaches as soon as the reason for the refusal has ended.
//!
//! After a refusal external-attacher waits for up to five minutes (`--retry-interval-max`). It
//! ignores a change of an attachment's errors, but queues the attachment at once, without its
//! back-off, when anything else in the attachment changes (`shouldEnqueueVAChange`). The leader
//! therefore checks each refused attachment, also on nodes that are Ready, and changes an
//! annotation of the attachment when the next attempt can succeed. The controller judges that
//! attempt like any other.
//!
//! Refusals are counted and reported here, with and without failover: the controller also refuses
//! detaches without it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::Node;
use ebs_csi_safe_detach::lifecycle::{Attachment, Intent};
use ebs_csi_safe_detach::{Fact, NodeEvidence};
use jiff::Timestamp;

use crate::act::ActResult;
use crate::cluster::{BREAK_GLASS, RefusedDetach};
use crate::context::Context;
use crate::controller_client::node_reports::{NodeReports, READ_TIMEOUT};
use crate::events::{EventReason, EventSubject, VOLUME_ATTACHMENT};
use crate::failover::stop_reason;

/// Pause between two rounds.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// Every second round also queries the controller, and through it EC2, about the attachments that
/// kubelet's report does not free: the instance may have ended, a person may have given an override
/// order, or the mode may have changed.
const QUERY_EVERY_ROUNDS: u64 = 2;
/// Pause before another retry of the same detach is triggered, in case the next attempt is refused
/// as well.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Most attachments that one round checks, so that many refusals do not flood the API server. The
/// attachments whose last check is the oldest come first.
const MAX_PER_ROUND: usize = 50;

/// Retries refused detaches.
pub struct DetachRetries {
    context: Context,
    node_reports: NodeReports,
    /// By the attachment's uid.
    progress: HashMap<String, RetryProgress>,
    rounds: u64,
}

/// When an attachment was last checked, and when its detach was last retried.
#[derive(Clone, Copy, Debug, Default)]
struct RetryProgress {
    last_checked: Option<Instant>,
    last_retry: Option<Instant>,
}

impl DetachRetries {
    /// Creates the task.
    pub fn new(context: Context, node_reports: NodeReports) -> Self {
        Self { context, node_reports, progress: HashMap::new(), rounds: 0 }
    }

    /// Runs rounds, for ever.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.context.metrics.leads.set(i64::from(self.context.leader.is_leader()));
            if self.context.leader.is_leader() && self.context.tables.are_complete_for_refusals() {
                self.check_refused().await;
            } else {
                self.progress.clear();
                self.context.metrics.set_refused(&[], Timestamp::now());
            }
        }
    }

    /// Counts the refusals, and reports each once on its attachment and on the pods that wait for
    /// its end.
    fn report_refusals(&self) {
        let all = self.context.tables.refused_detaches();
        self.context.metrics.set_refused(&all, Timestamp::now());
        self.report_waiting_pods(&all);
        self.context.events.retain(|subject, reason| {
            reason.object() != VOLUME_ATTACHMENT
                || all.iter().any(|refused| refused.name == subject.name)
        });
        for refused in all {
            let mut note = format!(
                "the detach is refused ({}); status.detachError has the reason and the next step",
                refused.token
            );
            if !self.context.tables.is_identified(&refused.name) {
                note.push_str("; its Node has neither a providerID nor an entry of this driver in its CSINode, so nobody can say which instance it is");
            }
            let subject = EventSubject::new(("", &refused.name), &refused.uid);
            self.context.events.send(subject, EventReason::Refused, &note);
        }
    }

    /// Reports the refusals, each once on each pod that waits.
    fn report_waiting_pods(&self, all: &[RefusedDetach]) {
        let Context { tables, events, .. } = &self.context;
        let mut waiting = Vec::new();
        for refused in all {
            for pod in tables.pods_waiting_for_end(&refused.name) {
                let subject = EventSubject::new(pod.name(), pod.uid());
                events.send(subject, EventReason::PodWaits, &waiting_note(refused, pod.node()));
                waiting.push(pod);
            }
        }
        events.retain(|subject, reason| {
            reason != EventReason::PodWaits || waiting.iter().any(|pod| pod.uid() == subject.uid)
        });
    }

    /// Runs one round. Returns how many detaches are retried.
    pub async fn check_refused(&mut self) -> usize {
        self.rounds += 1;
        self.report_refusals();
        let now = Instant::now();
        let mut refused = self.context.tables.refused_attachments();
        self.progress
            .retain(|uid, _| refused.iter().any(|attachment| attachment.object.uid == *uid));
        let progress = |attachment: &Attachment| self.progress.get(&attachment.object.uid).copied();
        refused.retain(|attachment| {
            let last_retry = progress(attachment).and_then(|progress| progress.last_retry);
            last_retry.is_none_or(|at| now.duration_since(at) >= RETRY_PAUSE)
        });
        refused.sort_by_key(|attachment| {
            progress(attachment).and_then(|progress| progress.last_checked)
        });
        refused.truncate(MAX_PER_ROUND);
        for attachment in &refused {
            let uid = attachment.object.uid.clone();
            self.progress.entry(uid).or_default().last_checked = Some(now);
        }
        let retryable = self.retryable(refused).await;
        if retryable.is_empty() {
            return 0;
        }
        if let Some(why) = stop_reason(&self.context.client, &self.context.namespace).await {
            tracing::debug!(why, "refused detaches are not tried again sooner");
            return 0;
        }
        let mut changed = 0;
        for attachment in retryable {
            if !self.context.leader.is_leader() {
                break;
            }
            changed += usize::from(self.request_retry(attachment).await);
        }
        changed
    }

    async fn retryable(&self, refused: Vec<Attachment>) -> Vec<Attachment> {
        let mut reports: HashMap<String, Vec<Node>> = HashMap::new();
        let (mut retryable, mut others) = (Vec::new(), Vec::new());
        for attachment in refused {
            let Some(instance) = &attachment.instance else {
                continue;
            };
            if !reports.contains_key(instance) {
                let nodes = self.read_reports(instance).await;
                reports.insert(instance.clone(), nodes);
            }
            let nodes = reports.get(instance).cloned().unwrap_or_default();
            match self.node_reports.evidence(nodes, instance, &attachment.volume).await {
                // The next attempt requests the promise.
                Fact::Present(
                    NodeEvidence::Released
                    | NodeEvidence::ReleasedByKubelet
                    | NodeEvidence::PromiseNeeded,
                ) => retryable.push(attachment),
                Fact::Present(NodeEvidence::InUse | NodeEvidence::NotReady)
                | Fact::Absent
                | Fact::Unknown => others.push(attachment),
            }
        }
        if self.rounds.is_multiple_of(QUERY_EVERY_ROUNDS) && !others.is_empty() {
            retryable.extend(self.detachable(others).await);
        }
        retryable
    }

    /// Returns the reports of an instance's Node objects; empty when they cannot be read soon.
    async fn read_reports(&self, instance: &str) -> Vec<Node> {
        let read = self.node_reports.read_reports(instance);
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(nodes)) => nodes,
            Ok(Err(error)) => {
                tracing::debug!(%error, instance, "the node of a refused detach could not be read");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    async fn detachable(&self, others: Vec<Attachment>) -> Vec<Attachment> {
        let question = |attachment: &Attachment| {
            let instance = attachment.instance.clone().unwrap_or_default();
            (instance, attachment.volume.clone())
        };
        let questions: Vec<_> = others.iter().map(question).collect();
        let detachable = match self.context.controller.detachable(&questions).await {
            Ok(detachable) => detachable,
            Err(status) => {
                tracing::debug!(code = ?status.code(), "the controller does not say what became of refused detaches");
                return Vec::new();
            }
        };
        others.into_iter().filter(|attachment| detachable.contains(&question(attachment))).collect()
    }

    async fn request_retry(&mut self, attachment: Attachment) -> bool {
        let uid = attachment.object.uid.clone();
        let intent = Intent::RetryDetach(attachment.object);
        let why = "a refused detach can be tried again";
        let done = self.context.perform(None, None, &intent, why).await;
        if done.is_some() {
            let progress = self.progress.entry(uid).or_default();
            progress.last_retry = Some(Instant::now());
        }
        done == Some(ActResult::Done)
    }
}

/// Returns what a pod on `node` waits for, and the way out.
fn waiting_note(refused: &RefusedDetach, node: &str) -> String {
    let RefusedDetach { name, node: attached_to, token, .. } = refused;
    if node == attached_to {
        format!(
            "the volume is attached anew only after its detach from this node, which is refused \
             ({token}). Delete this pod, and scale down or delete what creates it again, until \
             VolumeAttachment {name} is gone. Or order the detach: kubectl annotate \
             volumeattachment {name} {BREAK_GLASS}=\"INSTANCE ATTACHTIME\" (node-lifecycle.md, \
             Override orders)"
        )
    } else {
        format!(
            "the volume is still attached to {attached_to}, and its detach is refused ({token}); \
             status.detachError of VolumeAttachment {name} has the reason and the next step"
        )
    }
}
