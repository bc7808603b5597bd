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
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::Node;
use ebs_csi_safe_detach::lifecycle::{Attachment, Evidence, Intent};
use ebs_csi_safe_detach::{Fact, KubeletReport, NodeReport, kubelet_report};
use jiff::Timestamp;
use kube::Client;

use crate::act::{self, Done, act};
use crate::cluster::Tables;
use crate::controller_client::Controller;
use crate::controller_client::kubelet_reports::{KubeletReports, READ_WITHIN};
use crate::events::{EventReason, EventSender, EventSubject};
use crate::failover::stopped;
use crate::leader::Leader;
use crate::metrics::Metrics;

/// Pause between two looks at the refused attachments.
const EVERY: Duration = Duration::from_secs(3);
/// Every second look also queries the controller, and through it EC2, about the attachments that
/// kubelet's report does not free.
const ASK_EVERY: u64 = 2;
/// Pause before the same attachment is changed again, should the next attempt be refused as well.
const AGAIN: Duration = Duration::from_secs(10);
/// Most attachments of one look, so that many refusals do not flood the API server. The attachments
/// with the oldest look come first.
const AT_ONCE: usize = 50;

/// Looks at the refused attachments.
pub struct Retries {
    /// The client for the acts.
    pub client: Client,
    /// The namespace of the kill switch.
    pub namespace: String,
    /// The watched objects, with the refusals.
    pub tables: Arc<Tables>,
    /// Kubelet's reports.
    pub words: KubeletReports,
    /// The controller, which reports what EC2 proves.
    pub controller: Controller,
    /// Whether this process may act.
    pub leader: Arc<Leader>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Writes the events.
    pub teller: Arc<EventSender>,
    /// The state of each attachment, by uid.
    pub known: HashMap<String, Known>,
    /// Number of looks so far.
    pub looks: u64,
}

/// When an attachment was last looked at, and last changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    looked: Option<Instant>,
    nudged: Option<Instant>,
}

/// What kubelet's report says about a refused detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The volume is released.
    Released,
    /// The volume is in use, so that only a change of the report or of the mode frees it.
    InUse,
    /// Kubelet's report does not decide.
    Nothing,
}

impl Retries {
    /// Looks, for ever.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.metrics.leads(self.leader.leads());
            if self.leader.leads() && self.tables.refusals_are_known() {
                self.look().await;
            } else {
                self.known.clear();
                self.metrics.refused(&[], Timestamp::now());
            }
        }
    }

    /// Counts the refusals, and reports each attachment's once.
    fn tell(&self) {
        let all = self.tables.refused();
        self.metrics.refused(&all, Timestamp::now());
        self.teller.keep_only(|about| match about {
            EventSubject::Node { .. } | EventSubject::Pod { .. } => true,
            EventSubject::Attachment { name, .. } => {
                all.iter().any(|refused| refused.name == *name)
            }
        });
        for refused in all {
            let mut note = format!(
                "the detach is refused ({}); status.detachError has the reason and the next step",
                refused.token
            );
            if !self.tables.is_identified(&refused.name) {
                note.push_str("; its Node has neither a providerID nor an entry of this driver in its CSINode, so nobody can say which instance it is");
            }
            let about = EventSubject::Attachment { name: refused.name, uid: refused.uid };
            self.teller.tell(about, EventReason::Refused, &note);
        }
    }

    /// Takes one look. Returns how many attachments were changed.
    pub async fn look(&mut self) -> usize {
        self.looks += 1;
        self.tell();
        let now = Instant::now();
        let mut refused = self.tables.refusals();
        self.known.retain(|uid, _| refused.iter().any(|attachment| attachment.uid == *uid));
        let known = |attachment: &Attachment| self.known.get(&attachment.uid).copied();
        refused.retain(|attachment| {
            let nudged = known(attachment).and_then(|known| known.nudged);
            nudged.is_none_or(|at| now.duration_since(at) >= AGAIN)
        });
        refused.sort_by_key(|attachment| known(attachment).and_then(|known| known.looked));
        refused.truncate(AT_ONCE);
        for attachment in &refused {
            self.known.entry(attachment.uid.clone()).or_default().looked = Some(now);
        }
        let ended = self.ended(refused).await;
        if ended.is_empty() {
            return 0;
        }
        if let Some(why) = stopped(&self.client, &self.namespace).await {
            tracing::debug!(why, "refused detaches are not tried again sooner");
            return 0;
        }
        let mut changed = 0;
        for attachment in ended {
            if !self.leader.leads() {
                break;
            }
            changed += usize::from(self.nudge(attachment).await);
        }
        changed
    }

    /// Returns the attachments whose next attempt can succeed.
    async fn ended(&self, refused: Vec<Attachment>) -> Vec<Attachment> {
        let mut reports: HashMap<String, Vec<Node>> = HashMap::new();
        let (mut ended, mut others) = (Vec::new(), Vec::new());
        for attachment in refused {
            let Some(instance) = &attachment.instance else {
                continue;
            };
            if !reports.contains_key(instance) {
                let nodes = self.nodes(instance).await;
                reports.insert(instance.clone(), nodes);
            }
            let nodes = reports.get(instance).map_or(&[][..], Vec::as_slice);
            match heard(nodes, &attachment) {
                Heard::Released => ended.push(attachment),
                Heard::InUse => {}
                Heard::Nothing => others.push(attachment),
            }
        }
        if self.looks.is_multiple_of(ASK_EVERY) && !others.is_empty() {
            ended.extend(self.proven(others).await);
        }
        ended
    }

    /// Returns the reports of an instance's Node objects; empty when they cannot be read soon.
    async fn nodes(&self, instance: &str) -> Vec<Node> {
        let read = self.words.of_instance(instance);
        match tokio::time::timeout(READ_WITHIN, read).await {
            Ok(Ok(nodes)) => nodes,
            Ok(Err(error)) => {
                tracing::debug!(%error, instance, "the node of a refused detach could not be read");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Returns the attachments that the controller would detach now.
    async fn proven(&self, others: Vec<Attachment>) -> Vec<Attachment> {
        let question = |attachment: &Attachment| {
            let instance = attachment.instance.clone().unwrap_or_default();
            (instance, attachment.volume.clone())
        };
        let questions: Vec<_> = others.iter().map(question).collect();
        let answers = match self.controller.ask(&questions, &Default::default()).await {
            Ok(answers) => answers,
            Err(status) => {
                tracing::debug!(code = ?status.code(), "the controller does not say what became of refused detaches");
                return Vec::new();
            }
        };
        let is_proven = |attachment: &Attachment| {
            answers.volumes.get(&question(attachment)) == Some(&Evidence::Proven)
        };
        others.into_iter().filter(is_proven).collect()
    }

    async fn nudge(&mut self, attachment: Attachment) -> bool {
        let intent = Intent::Nudge { name: attachment.name, uid: attachment.uid.clone() };
        let label = act::label(&intent);
        match act(&self.client, None, &intent).await {
            Ok(done) => {
                self.metrics.act(label, done.label());
                tracing::info!(
                    act = label,
                    result = done.label(),
                    ?intent,
                    "a refused detach can be tried again"
                );
                let known = self.known.entry(attachment.uid).or_default();
                known.nudged = Some(Instant::now());
                done == Done::Done
            }
            Err(error) => {
                self.metrics.act(label, "failed");
                tracing::warn!(act = label, %error, ?intent, "a refused detach can be tried again");
                false
            }
        }
    }
}

fn heard(nodes: &[Node], attachment: &Attachment) -> Heard {
    let ids = attachment.instance.as_ref().map(|id| id.parse());
    let (Some(Ok(instance)), Ok(volume)) = (ids, attachment.volume.parse()) else {
        return Heard::Nothing;
    };
    let reports: Vec<NodeReport> = nodes.iter().map(report).collect();
    match kubelet_report(&reports, &instance, &volume, Duration::ZERO) {
        Fact::Present(KubeletReport::Released) => Heard::Released,
        Fact::Present(KubeletReport::InUse) => Heard::InUse,
        Fact::Present(KubeletReport::NotReady) | Fact::Absent | Fact::Unknown => Heard::Nothing,
    }
}

fn report(node: &Node) -> NodeReport {
    NodeReport {
        provider_id: node.provider_id.clone(),
        csi_node_id: node.csi_node_id.clone(),
        ready: node.ready,
        lease_age: node.lease_age_ms.map(Duration::from_millis),
        in_use: node.volumes_in_use.clone(),
        attached: node.volumes_attached.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node must be Ready, have a Lease age and a provider id, and not list the volume in use.
    #[test]
    fn only_trusted_node_word_reports_volume_released() {
        let attachment = Attachment {
            name: "csi-1".to_owned(),
            uid: "u".to_owned(),
            version: "1".to_owned(),
            volume: "vol-0123456789abcdef0".to_owned(),
            instance: Some("i-0123456789abcdef0".to_owned()),
            deleting: true,
            nudged: true,
        };
        let node = Node {
            provider_id: "aws:///us-east-1a/i-0123456789abcdef0".to_owned(),
            ready: true,
            lease_age_ms: Some(1),
            ..Node::default()
        };
        let with = |change: fn(&mut Node)| {
            let mut node = node.clone();
            change(&mut node);
            heard(&[node], &attachment)
        };
        assert_eq!(with(|_| ()), Heard::Released);
        let in_use = with(|n| n.volumes_in_use = vec!["x^vol-0123456789abcdef0".to_owned()]);
        assert_eq!(in_use, Heard::InUse);
        assert_eq!(with(|n| n.ready = false), Heard::Nothing);
        assert_eq!(with(|n| n.lease_age_ms = None), Heard::Nothing);
        assert_eq!(with(|n| n.provider_id.clear()), Heard::Nothing);
        assert_eq!(heard(&[], &attachment), Heard::Nothing);
    }
}
