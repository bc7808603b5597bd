//! Executes the steps of failover.
//!
//! A round reads the tables, queries the controller about every suspect at once, and lets the brake
//! choose. The chosen nodes are then read again, this time from the API server itself and from EC2
//! through the controller, and only acts that still follow are done.

mod choose;
mod confirmed_acts;
mod durations;
mod fencing;
mod query_schedule;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::{FailoverMode, Intent, NodePhase, ObjectVersion, step};
use jiff::Timestamp;

use crate::cluster::Suspect;
use crate::context::Context;
use crate::controller_client::ControllerAnswers;
use crate::events::{EventReason, EventSubject, NODE};
use crate::metrics::Metrics;
pub(crate) use choose::stop_reason;
pub use choose::{ADVERTISED, ADVERTISED_VERSION};
use durations::{Episodes, FinishedPhase, LostNodes, NodeObservation};
pub use fencing::Fencing;
use query_schedule::{QuerySchedule, Question, fill_answers, interval_of_rounds};

/// Default for how long an answer of EC2 is valid.
const ANSWER_VALIDITY: Duration = Duration::from_secs(2);

/// Executes failover.
pub struct Failover {
    /// What the tasks share.
    pub context: Context,
    mode: FailoverMode,
    fencing: Fencing,
    lost_nodes: LostNodes,
    episodes: Mutex<Episodes>,
    query_schedule: Mutex<QuerySchedule>,
    /// From the beginning of a round to the next, while one query covers all suspects.
    round_interval: Duration,
    /// Whether the controller did not answer the last query: that is logged once.
    is_controller_silent: AtomicBool,
    /// Limit for the age of EC2's answer in a braked act or a fence. A node whose answer is older
    /// is queried again at once.
    pub answer_validity: Duration,
}

impl Failover {
    /// Creates the task. `fence_after` is how long a node must be lost before it is fenced;
    /// `round_interval` is the time between two rounds while one query covers all suspects.
    pub fn new(
        context: Context,
        mode: FailoverMode,
        fencing: Fencing,
        fence_after: Duration,
        round_interval: Duration,
    ) -> Self {
        Self {
            context,
            mode,
            fencing,
            lost_nodes: LostNodes::new(fence_after),
            episodes: Mutex::default(),
            query_schedule: Mutex::default(),
            round_interval,
            is_controller_silent: AtomicBool::new(false),
            answer_validity: ANSWER_VALIDITY,
        }
    }

    /// Runs rounds, for ever.
    pub async fn run(self) {
        loop {
            let began = Instant::now();
            let leads = self.context.leader.is_leader();
            self.context.metrics.leads.set(i64::from(leads));
            let next = if leads && self.context.tables.are_complete() {
                self.round().await
            } else {
                self.lost_nodes.observe(std::iter::empty(), Instant::now());
                self.context.metrics.clear_failover();
                lock(&self.episodes).clear();
                self.round_interval
            };
            tokio::time::sleep_until((began + next).into()).await;
        }
    }

    /// Runs one round. Returns when the next round is to begin, counted from the beginning of this
    /// one.
    pub async fn round(&self) -> Duration {
        self.context.metrics.set_taints(&self.context.tables.own_taint_times(), Timestamp::now());
        let mut suspects = self.context.tables.suspects();
        // The retries report on attachments, onboarding on pods.
        self.context.events.retain(|about, reason| {
            reason.object() != NODE || suspects.iter().any(|suspect| suspect.name == about.name)
        });
        let now = Instant::now();
        let lost = suspects.iter().filter(|suspect| suspect.is_lost());
        self.lost_nodes.observe(lost.map(|suspect| suspect.name.as_str()), now);
        for suspect in &mut suspects {
            self.fill_lost_for_long(suspect);
        }
        self.query_suspects(&mut suspects).await;
        let steps: Vec<_> =
            suspects.iter().map(|suspect| step(&suspect.facts, self.mode)).collect();
        let phases: Vec<NodePhase> = steps.iter().map(|step| step.phase).collect();
        self.context.metrics.set_phases(&phases);
        let left_alone = suspects.iter().map(|suspect| &suspect.facts);
        let left_alone = left_alone.filter_map(|facts| self.fencing.reason_left_alone(facts));
        self.context.metrics.set_left_alone(&left_alone.collect::<Vec<_>>());
        self.record_finished(&suspects, &phases);
        let chosen = self.choose(&suspects, &steps).await;
        let acted = self.act_on_chosen(&chosen).await;
        let held: Vec<&str> = chosen.held.iter().chain(&acted.held).copied().collect();
        self.context.metrics.set_held(&held);
        match acted.postponed {
            0 => {
                interval_of_rounds(self.round_interval, lock(&self.query_schedule).rounds_per_cycle)
            }
            // A node with a proof does not wait for its turn.
            _ => Duration::ZERO,
        }
    }

    fn record_finished<'a>(&self, suspects: &'a [Suspect], phases: &[NodePhase]) {
        let observation = |(suspect, phase): (&'a Suspect, &NodePhase)| NodeObservation {
            node: &suspect.name,
            phase: *phase,
            attached: !suspect.facts.attachments.is_empty(),
        };
        let shown: Vec<_> = suspects.iter().zip(phases).map(observation).collect();
        let is_attached = |node: &str| self.context.tables.is_attached(node);
        let ends = lock(&self.episodes).observe(&shown, is_attached, Instant::now());
        for end in ends {
            match end {
                FinishedPhase::Proof(took) => {
                    self.context.metrics.to_proof.observe(took.as_secs_f64())
                }
                FinishedPhase::Recovery(took) => {
                    self.context.metrics.to_recovery.observe(took.as_secs_f64());
                }
                FinishedPhase::Fence(node, took) => {
                    self.context.metrics.fences.observe(took.as_secs_f64());
                    if let Some(suspect) = suspects.iter().find(|s| s.name == node) {
                        let note = "EC2 shows the instance that was to be powered off to be off";
                        self.send_event(suspect, EventReason::FenceSucceeded, note);
                    }
                }
            }
        }
    }

    fn fill_lost_for_long(&self, suspect: &mut Suspect) {
        if let Fact::Present(node) = &mut suspect.facts.object {
            node.lost_for_long = self.lost_nodes.is_lost_for_long(&suspect.name, Instant::now());
        }
    }

    /// Queries the suspects whose turn it is, and fills in what is known about all; without an
    /// answer nothing is known.
    async fn query_suspects(&self, suspects: &mut [Suspect]) {
        let chosen = lock(&self.query_schedule).choose(&questions(suspects.iter()));
        let relevant = self.instances_to_check(suspects.iter());
        let checks = lock(&self.query_schedule).choose_checks(&chosen, relevant);
        if chosen.is_empty() {
            return;
        }
        match self.query_controller(&chosen, &checks).await {
            Some(answers) => lock(&self.query_schedule).record_answers(&chosen, &checks, answers),
            None => lock(&self.query_schedule).forget_answers(),
        }
        let query_schedule = lock(&self.query_schedule);
        for suspect in suspects {
            fill_answers(&query_schedule.answers, &mut suspect.facts);
        }
    }

    fn instances_to_check<'a>(
        &self,
        suspects: impl Iterator<Item = &'a Suspect>,
    ) -> BTreeSet<String> {
        let all = suspects.filter_map(|suspect| self.fencing.instance_to_check(&suspect.facts));
        all.map(str::to_owned).collect()
    }

    /// Sends questions to the controller, and requests for status checks with them.
    async fn query_controller(
        &self,
        questions: &[Question],
        checks: &BTreeSet<String>,
    ) -> Option<ControllerAnswers> {
        match self.context.controller.query(questions, checks).await {
            Ok(answers) => {
                Metrics::count(&self.context.metrics.queries, "answered");
                if self.is_controller_silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the controller answers again");
                }
                Some(answers)
            }
            Err(status) => {
                Metrics::count(&self.context.metrics.queries, "failed");
                if self.is_controller_silent.swap(true, Ordering::Relaxed) {
                    tracing::debug!(code = ?status.code(), text = status.message(), "the controller still does not answer");
                } else {
                    tracing::warn!(code = ?status.code(), text = status.message(), "the controller does not answer: nothing is known, nothing is done");
                }
                None
            }
        }
    }
}

fn questions<'a>(suspects: impl Iterator<Item = &'a Suspect>) -> Vec<Question> {
    let questions: BTreeSet<_> = suspects.flat_map(|suspect| suspect.facts.questions()).collect();
    questions.into_iter().collect()
}

impl Failover {
    fn report_unproven(&self, suspect: &Suspect, phase: NodePhase) {
        if !matches!(phase, NodePhase::Querying | NodePhase::VolumesProven) {
            return;
        }
        let instance = suspect.facts.instance().unwrap_or_default();
        let answer = lock(&self.query_schedule).answers.instances.get(instance).cloned();
        if let Some(why) = self.fencing.reason_left_alone(&suspect.facts) {
            let checks = answer.map(|answer| answer.checks).unwrap_or_default();
            let note = fencing::fence_held_note(why, &checks);
            self.send_event(suspect, EventReason::FenceHeld, &note);
            return;
        }
        let text = answer.as_ref().map(|answer| answer.text.as_str());
        let note = text.unwrap_or("nothing proves that its volumes may leave it");
        self.send_event(suspect, EventReason::Unproven, note);
    }

    fn report_act(&self, suspect: &Suspect, intent: &Intent) {
        let (reason, note) = match intent {
            Intent::AddTaint(tainted) => (
                EventReason::ProvenDown,
                format!(
                    "instance {} is off: the node is out of service until it has booted again",
                    tainted.instance
                ),
            ),
            Intent::RemoveTaint => (
                EventReason::TaintRemoved,
                "the node has booted again and nothing of the former boot is left".to_owned(),
            ),
            Intent::DeletePod(ObjectVersion { namespace, name, .. }) => (
                EventReason::FailedOver,
                format!("pod {namespace}/{name} was deleted: its volumes may leave the node"),
            ),
            Intent::DeleteAttachment(ObjectVersion { name, .. }) => (
                EventReason::FailedOver,
                format!("VolumeAttachment {name} was deleted: its volume may leave the node"),
            ),
            Intent::RetryDetach(_) => return,
        };
        self.send_event(suspect, reason, &note);
    }

    fn send_event(&self, suspect: &Suspect, reason: EventReason, note: &str) {
        let subject = EventSubject::new(("", &suspect.name), &suspect.uid);
        self.context.events.send(subject, reason, note);
    }
}
