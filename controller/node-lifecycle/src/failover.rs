//! From what is seen to what is done: the executor of the steps.
//!
//! A round looks at the tables, asks the controller about every suspect at once, and lets the brake choose. What was chosen is looked at
//! again, this time at the API server itself and at EC2 through the controller, and only what still follows is done.

mod look;
mod lost;
mod rota;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::fence_request::Mode;
use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::brake::{Admitted, Seen, admit};
use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen, Intent, Phase, Step, fence, step};
use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{Api, Client, ResourceExt};

use crate::act::{self, act};
use crate::controller::{Answers, Controller};
use crate::flags::Fence;
use crate::leader::{Leader, Term};
use crate::metrics::Metrics;
use crate::tell::{Tale, Teller};
use rota::{Question, fill};

pub use look::{Suspect, Tables};
pub use lost::Lost;
pub use rota::Rota;

/// The ConfigMap whose `stop: "true"` stops failover.
pub const KILL_SWITCH: &str = "ebs-csi-node-lifecycle";
/// The annotation by which the CSIDriver object advertises safe detach.
pub const ADVERTISED: &str = "ebs.csi.aws.com/safe-detach";
/// Its value.
pub const ADVERTISED_VERSION: &str = "v1";

/// Nodes that are looked at and acted on together: each look asks EC2 once for all of them.
const TOGETHER: usize = 25;

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
    /// Whom is asked about.
    pub rota: Mutex<Rota>,
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
                self.metrics.refused(&[], Timestamp::now());
            }
        }
    }

    async fn round(&self) {
        self.metrics
            .refused(&self.tables.refused(), Timestamp::now());
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
        self.ask(&mut suspects).await;
        let mut phases = Vec::new();
        let mut steps = Vec::new();
        for suspect in &suspects {
            let step = step(&suspect.facts, self.mode);
            phases.push(step.phase);
            steps.push(step);
        }
        self.metrics.nodes(&phases);
        let held = self.act_on(&suspects, &steps).await;
        self.metrics.held(&held);
    }

    fn rota(&self) -> MutexGuard<'_, Rota> {
        self.rota.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Asks about those whose turn it is, and fills in what is known of all; without an answer nothing is.
    async fn ask(&self, suspects: &mut [Suspect]) {
        let chosen = self.rota().choose(&questions(suspects));
        if chosen.is_empty() {
            return;
        }
        match self.put(&chosen).await {
            Some(answers) => self.rota().note(&chosen, answers),
            None => self.rota().silence(),
        }
        let rota = self.rota();
        for suspect in suspects {
            rota.fill(&mut suspect.facts);
        }
    }

    /// Puts questions to the controller.
    async fn put(&self, questions: &[Question]) -> Option<Answers> {
        match self.controller.ask(questions).await {
            Ok(answers) => {
                self.metrics.question("answered");
                Some(answers)
            }
            Err(status) => {
                self.metrics.question("failed");
                tracing::warn!(code = ?status.code(), text = status.message(), "the controller does not answer: nothing is known, nothing is done");
                None
            }
        }
    }

    /// Acts on what the brake lets through; says why on the others. Returns the reasons.
    async fn act_on(&self, suspects: &[Suspect], steps: &[Step]) -> Vec<&'static str> {
        let takes = |suspect: &Suspect, step: &Step| {
            step.intents.iter().any(Intent::is_braked) || self.to_fence(suspect, step).is_some()
        };
        let mut both = suspects.iter().zip(steps);
        let taking: BTreeSet<&str> = both
            .clone()
            .filter(|(suspect, step)| takes(suspect, step))
            .map(|(suspect, _)| suspect.name.as_str())
            .collect();
        let (admitted, term) = match taking.is_empty() {
            true => (Admitted::default(), Term::default()),
            false => self.brake(suspects, &taking).await,
        };
        let wanted = both.any(|(suspect, step)| {
            !step.intents.is_empty() || taking.contains(suspect.name.as_str())
        });
        let stopped = match wanted {
            true => self.stopped().await,
            false => None,
        };
        let mut reasons = Vec::new();
        let mut due = Vec::new();
        for (suspect, step) in suspects.iter().zip(steps) {
            if let Some(held) = admitted.held.get(&suspect.name) {
                reasons.push(held.token());
                self.tell(suspect, Tale::Held, held.token()).await;
            } else if step.intents.is_empty() && !taking.contains(suspect.name.as_str()) {
                self.say_unproven(suspect, step.phase).await;
            } else if let Some(why) = stopped {
                reasons.push(why);
                self.tell(suspect, Tale::Held, why).await;
            } else {
                due.push(suspect);
            }
        }
        for some in due.chunks(TOGETHER) {
            let names: Vec<&str> = some
                .iter()
                .map(|suspect| suspect.name.as_str())
                .filter(|name| taking.contains(name))
                .collect();
            if !names.is_empty()
                && let Err(error) = self.leader.record(&names, term).await
            {
                tracing::warn!(nodes = ?names, %error, "not acted on");
                reasons.extend(names.iter().map(|_| "lost-place"));
                continue;
            }
            self.act_anew(some, &names).await;
        }
        reasons
    }

    /// What the brake lets through of those from which something would be taken, and for how long that counts.
    async fn brake(&self, suspects: &[Suspect], taking: &BTreeSet<&str>) -> (Admitted, Term) {
        let now = Timestamp::now();
        let (journal, term) = self.leader.journal().await;
        let mut seen = self.tables.for_brake(suspects);
        let mut there = HashSet::new();
        for seen in &mut seen {
            seen.acted = journal.counts(&seen.node, now);
            seen.wanted = taking.contains(seen.node.as_str());
            there.insert(seen.node.clone());
        }
        // One whose object has gone since still counts.
        for node in journal.nodes(now).filter(|node| !there.contains(*node)) {
            seen.push(Seen {
                node: node.to_owned(),
                zone: String::new(),
                suspect: false,
                acted: true,
                wanted: false,
            });
        }
        (admit(&seen), term)
    }

    /// Looks at these again, at the API server and, once for all of them, at EC2; and does what still follows. Something is taken only from
    /// those that are written down: from the others the second look may show for the first time that it could be.
    async fn act_anew(&self, suspects: &[&Suspect], written: &[&str]) {
        let looks = suspects.iter().map(|suspect| async {
            match self.tables.look(&self.client, &suspect.name).await {
                Ok(looked) => Some(looked),
                Err(error) => {
                    tracing::warn!(node = suspect.name, %error, "the node could not be looked at again: nothing is done");
                    None
                }
            }
        });
        let (objects, mut fresh): (Vec<_>, Vec<_>) =
            join_all(looks).await.into_iter().flatten().unzip();
        for suspect in &mut fresh {
            self.judge_absence(suspect);
        }
        let questions = questions(&fresh);
        let answers = match questions.is_empty() {
            true => Answers::default(),
            false => self.put(&questions).await.unwrap_or_default(),
        };
        for suspect in &mut fresh {
            fill(&answers, &mut suspect.facts);
        }
        let acts = objects.iter().zip(&fresh);
        let acts = acts.map(|(object, fresh)| {
            let may_take = written.contains(&fresh.name.as_str());
            self.act_on_one(object.as_ref(), fresh, may_take)
        });
        join_all(acts).await;
    }

    async fn act_on_one(&self, object: Option<&Node>, fresh: &Suspect, may_take: bool) {
        let mut step = step(&fresh.facts, self.mode);
        if !may_take {
            step.intents.retain(|intent| !intent.is_braked());
        } else if let Some((instance, how)) = self.to_fence(fresh, &step) {
            self.fence(fresh, instance, how).await;
        }
        for intent in &step.intents {
            if !self.leader.leads() {
                tracing::warn!(node = fresh.name, "this process no longer leads");
                return;
            }
            let label = act::label(intent);
            match act(&self.client, object, intent).await {
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
                        self.say_done(fresh, intent).await;
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

    async fn say_unproven(&self, suspect: &Suspect, phase: Phase) {
        let text = {
            let rota = self.rota();
            let instance = suspect.facts.instance();
            instance.and_then(|instance| rota.text(instance).map(str::to_owned))
        };
        let note = match (phase, text) {
            (Phase::Querying | Phase::VolumesProven, Some(text)) => text,
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
        Some(object) => Fact::Present(crate::seen::SeenNode::of(object)),
        None => Fact::Absent,
    }
}

/// What is to be asked about all of them.
fn questions(suspects: &[Suspect]) -> Vec<Question> {
    let all = suspects.iter();
    let mut questions: Vec<_> = all.flat_map(|suspect| suspect.facts.questions()).collect();
    questions.sort();
    questions.dedup();
    questions
}
