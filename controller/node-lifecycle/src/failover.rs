//! From what is seen to what is done: the executor of the steps.
//!
//! A round looks at the tables, asks the controller about every suspect at once, and lets the brake choose. What was chosen is looked at
//! again, this time at the API server itself and at EC2 through the controller, and only what still follows is done.

mod look;
mod lost;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::fence_request::Mode;
use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::brake::{Seen, admit};
use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen, Intent, Phase, Step, fence, step};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{Api, Client, ResourceExt};

use crate::act::{self, act};
use crate::controller::{Answers, Controller};
use crate::flags::Fence;
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::tell::{Tale, Teller};

pub use look::{Suspect, Tables};
pub use lost::Lost;

/// The ConfigMap whose `stop: "true"` stops failover.
pub const KILL_SWITCH: &str = "ebs-csi-node-lifecycle";
/// The annotation by which the CSIDriver object advertises safe detach.
pub const ADVERTISED: &str = "ebs.csi.aws.com/safe-detach";
/// Its value.
pub const ADVERTISED_VERSION: &str = "v1";

/// The executor.
pub struct Failover {
    /// For acts and fresh looks.
    pub client: Client,
    /// Where the kill switch is.
    pub namespace: String,
    /// What was seen.
    pub tables: Arc<Tables>,
    /// What EC2 proves.
    pub controller: Controller,
    /// Whether this process may act.
    pub leader: Arc<Leader>,
    /// What is asked of a pod.
    pub mode: FailoverMode,
    /// What is done to the instance of a node that is lost.
    pub fence: Fence,
    /// Which nodes are lost for long.
    pub lost: Lost,
    /// Between two rounds.
    pub every: Duration,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Says.
    pub teller: Teller,
}

impl Failover {
    /// Rounds, for ever.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let leads = self.leader.leads();
            self.metrics.leads(leads);
            if leads && self.tables.are_complete() {
                self.round().await;
            } else {
                self.lost.note(std::iter::empty(), Instant::now());
                self.metrics.nodes(&[]);
                self.metrics.held(&[]);
            }
        }
    }

    async fn round(&self) {
        let mut suspects = self.tables.suspects();
        self.teller
            .keep_only(|node| suspects.iter().any(|suspect| suspect.name == node));
        let now = Instant::now();
        let lost = suspects.iter().filter(|suspect| suspect.is_lost());
        self.lost
            .note(lost.map(|suspect| suspect.name.as_str()), now);
        for suspect in &mut suspects {
            self.judge_absence(suspect);
        }
        let answers = self.ask(&mut suspects).await;
        let mut phases = Vec::new();
        let mut steps = Vec::new();
        for suspect in &suspects {
            let step = step(&suspect.facts, self.mode);
            phases.push(step.phase);
            steps.push(step);
        }
        self.metrics.nodes(&phases);
        let held = self.act_on(&suspects, &steps, &answers).await;
        self.metrics.held(&held);
    }

    fn judge_absence(&self, suspect: &mut Suspect) {
        if let Fact::Present(node) = &mut suspect.facts.object {
            node.lost_for_long = self.lost.is_long(&suspect.name, Instant::now());
        }
    }

    /// The instance that is to be fenced, and how.
    fn to_fence<'a>(&self, suspect: &'a Suspect, step: &Step) -> Option<(&'a str, Mode)> {
        let mode = match self.fence {
            Fence::Off => return None,
            Fence::Stop => Mode::Stop,
            Fence::Terminate => Mode::Terminate,
        };
        // What can be done by proof is done first.
        if step.intents.iter().any(Intent::is_braked) {
            return None;
        }
        // Nobody reads EC2's status checks yet: the person who labels the node accepts that one that is only cut off is powered off, too.
        Some((fence(&suspect.facts, FenceWhen::Lost)?, mode))
    }

    /// Fills in what the controller answers; without an answer nothing is known.
    async fn ask(&self, suspects: &mut [Suspect]) -> Answers {
        let mut questions: Vec<_> = suspects
            .iter()
            .flat_map(|suspect| suspect.facts.questions())
            .collect();
        questions.sort();
        questions.dedup();
        if questions.is_empty() {
            return Answers::default();
        }
        match self.controller.ask(&questions).await {
            Ok(answers) => {
                self.metrics.question("answered");
                for suspect in suspects {
                    suspect.facts.volumes = answers.volumes.clone();
                    suspect.facts.instances = answers.instances.clone();
                }
                answers
            }
            Err(status) => {
                self.metrics.question("failed");
                tracing::warn!(code = ?status.code(), text = status.message(), "the controller does not answer: nothing is known, nothing is done");
                Answers::default()
            }
        }
    }

    /// Acts on what the brake lets through; says why on the others. Returns the reasons.
    async fn act_on(
        &self,
        suspects: &[Suspect],
        steps: &[Step],
        answers: &Answers,
    ) -> Vec<&'static str> {
        let now = Timestamp::now();
        let journal = self.leader.journal().await;
        let mut seen: Vec<Seen> = self
            .tables
            .for_brake(suspects)
            .into_iter()
            .map(|mut seen| {
                seen.acted = journal.counts(&seen.node, now);
                let at = suspects.iter().position(|s| s.name == seen.node);
                seen.wanted = at.is_some_and(|at| steps[at].intents.iter().any(Intent::is_braked));
                seen
            })
            .collect();
        // One whose object has gone since still counts.
        let gone: Vec<&str> = journal
            .nodes(now)
            .filter(|node| seen.iter().all(|seen| seen.node != *node))
            .collect();
        for node in gone {
            seen.push(Seen {
                node: node.to_owned(),
                zone: String::new(),
                suspect: false,
                acted: true,
                wanted: false,
            });
        }
        let admitted = admit(&seen);
        let mut reasons = Vec::new();
        let wanted = suspects.iter().zip(steps).any(|(suspect, step)| {
            !step.intents.is_empty() || self.to_fence(suspect, step).is_some()
        });
        let stopped = match wanted {
            true => self.stopped().await,
            false => None,
        };
        for (suspect, step) in suspects.iter().zip(steps) {
            if let Some(held) = admitted.held.get(&suspect.name) {
                reasons.push(held.token());
                self.tell(suspect, Tale::Held, held.token()).await;
                continue;
            }
            let fences = self.to_fence(suspect, step).is_some();
            if step.intents.is_empty() && !fences {
                self.say_unproven(suspect, step.phase, answers).await;
                continue;
            }
            if let Some(why) = stopped {
                reasons.push(why);
                self.tell(suspect, Tale::Held, why).await;
                continue;
            }
            if (fences || step.intents.iter().any(Intent::is_braked))
                && let Err(error) = self.leader.record(&suspect.name).await
            {
                tracing::warn!(node = suspect.name, %error, "not acted on");
                reasons.push("lost-place");
                continue;
            }
            self.act_anew(suspect).await;
        }
        reasons
    }

    /// Looks again, at the API server and at EC2, and does what still follows.
    async fn act_anew(&self, suspect: &Suspect) {
        let (object, mut fresh) = match self.tables.look(&self.client, &suspect.name).await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::warn!(node = suspect.name, %error, "the node could not be looked at again: nothing is done");
                return;
            }
        };
        self.judge_absence(&mut fresh);
        self.ask(std::slice::from_mut(&mut fresh)).await;
        let step = step(&fresh.facts, self.mode);
        if let Some((instance, how)) = self.to_fence(&fresh, &step) {
            self.fence(&fresh, instance, how).await;
        }
        for intent in &step.intents {
            if !self.leader.leads() {
                tracing::warn!(node = fresh.name, "this process no longer leads");
                return;
            }
            let label = act::label(intent);
            match act(&self.client, object.as_ref(), intent).await {
                Ok(done) => {
                    self.metrics.act(label, done.label());
                    tracing::info!(
                        node = fresh.name,
                        act = label,
                        result = done.label(),
                        ?intent,
                        "failover"
                    );
                    if done == act::Done::Done {
                        self.say_done(&fresh, intent).await;
                    }
                }
                Err(error) => {
                    self.metrics.act(label, "failed");
                    tracing::warn!(node = fresh.name, act = label, %error, ?intent, "failover");
                }
            }
        }
    }

    async fn fence(&self, suspect: &Suspect, instance: &str, how: Mode) {
        if !self.leader.leads() {
            return;
        }
        let reason = format!("node {} is not heard of", suspect.name);
        match self.controller.fence(instance, how, &reason).await {
            Ok(()) => {
                self.metrics.act("fence", "done");
                let note = format!(
                    "instance {instance} is being powered off ({})",
                    how.as_str_name()
                );
                self.tell(suspect, Tale::Fenced, &note).await;
            }
            Err(status) => {
                self.metrics.act("fence", "failed");
                let note = format!("instance {instance} was not fenced: {}", status.message());
                self.tell(suspect, Tale::FenceFailed, &note).await;
            }
        }
    }

    /// Why nothing may be done at all. What cannot be read stops it, too.
    async fn stopped(&self) -> Option<&'static str> {
        let switches: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        match switches.get_opt(KILL_SWITCH).await {
            Ok(None) => {}
            Ok(Some(switch)) => {
                let stop = switch.data.as_ref().and_then(|data| data.get("stop"));
                if stop.is_some_and(|stop| stop != "false") {
                    return Some("kill-switch");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the kill switch could not be read: nothing is done");
                return Some("kill-switch");
            }
        }
        let drivers: Api<CSIDriver> = Api::all(self.client.clone());
        match drivers.get_metadata_opt(ebs_csi_proto::DRIVER_NAME).await {
            Ok(Some(driver)) => {
                let value = driver.annotations().get(ADVERTISED);
                let advertised = value.is_some_and(|value| value == ADVERTISED_VERSION);
                (!advertised).then_some("not-advertised")
            }
            Ok(None) => Some("not-advertised"),
            Err(error) => {
                tracing::warn!(%error, "the CSIDriver object could not be read: nothing is done");
                Some("not-advertised")
            }
        }
    }

    async fn say_unproven(&self, suspect: &Suspect, phase: Phase, answers: &Answers) {
        let text = suspect
            .facts
            .instance()
            .and_then(|instance| answers.texts.get(instance));
        let note = match (phase, text) {
            (Phase::Querying | Phase::VolumesProven, Some(text)) => text.clone(),
            (Phase::Querying | Phase::VolumesProven, None) => {
                "nothing proves that its volumes may leave it".to_owned()
            }
            _ => return,
        };
        self.tell(suspect, Tale::Unproven, &note).await;
    }

    async fn say_done(&self, suspect: &Suspect, intent: &Intent) {
        let (tale, note) = match intent {
            Intent::AddTaint(about) => (
                Tale::ProvenDown,
                format!(
                    "instance {} is off: the node is out of service until it has booted again",
                    about.instance
                ),
            ),
            Intent::RemoveTaint => (
                Tale::TaintRemoved,
                "the node has booted again and nothing of the former boot is left".to_owned(),
            ),
            Intent::DeletePod {
                namespace, name, ..
            } => (
                Tale::FailedOver,
                format!("pod {namespace}/{name} was deleted: its volumes may leave the node"),
            ),
            Intent::DeleteAttachment { name, .. } => (
                Tale::FailedOver,
                format!("VolumeAttachment {name} was deleted: its volume may leave the node"),
            ),
            Intent::Nudge { .. } => return,
        };
        self.tell(suspect, tale, &note).await;
    }

    async fn tell(&self, suspect: &Suspect, tale: Tale, note: &str) {
        self.teller
            .tell(&suspect.name, &suspect.uid, tale, note)
            .await;
    }
}

/// The Node object as a fact.
fn fact(object: Option<&Node>) -> Fact<ebs_csi_safe_detach::lifecycle::Node> {
    match object {
        Some(object) => Fact::Present(crate::seen::SeenNode::new(object).node),
        None => Fact::Absent,
    }
}
