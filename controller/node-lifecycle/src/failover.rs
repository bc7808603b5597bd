//! Executes the steps of failover.
//!
//! A round reads the tables, queries the controller about every suspect at once, and lets the brake
//! choose. The chosen nodes are looked at again, this time at the API server itself and at EC2
//! through the controller, and only acts that still follow are done.

mod choose;
mod confirmed_acts;
mod durations;
mod fencing;
mod kill_switch;
mod lost_nodes;
mod node_events;
mod query_schedule;
mod round_interval;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::{FailoverMode, Phase, step};
use jiff::Timestamp;
use kube::Client;

use crate::cluster::{Suspect, Tables};
use crate::controller_client::{Answers, Controller};
use crate::events::{EventReason, EventSender, EventSubject};
use crate::leader::Leader;
use crate::metrics::Metrics;
use durations::{Shown, Took};
use query_schedule::Question;
use round_interval::pace;

use durations::Episodes;
pub use fencing::Fencing;
pub(crate) use kill_switch::stopped;
pub use kill_switch::{ADVERTISED, ADVERTISED_VERSION};
pub use lost_nodes::Lost;
use query_schedule::QuerySchedule;

/// Default for how long an answer of EC2 is valid.
pub(crate) const FRESH: Duration = Duration::from_secs(2);

/// Executes failover.
pub struct Failover {
    /// The client for acts and fresh looks.
    pub client: Client,
    /// The namespace of the kill switch.
    pub namespace: String,
    /// The watched objects.
    pub tables: Arc<Tables>,
    /// The controller, which reports what EC2 proves.
    pub controller: Controller,
    /// Whether this process may act.
    pub leader: Arc<Leader>,
    /// What a pod must meet before it is deleted by force.
    pub mode: FailoverMode,
    /// How the instance of a lost node is treated.
    pub fencing: Fencing,
    /// The nodes that have been lost for long.
    pub lost: Lost,
    /// The durations of failovers.
    pub episodes: Mutex<Episodes>,
    /// The instances to query in each round.
    pub rota: Mutex<QuerySchedule>,
    /// From the beginning of a round to the next, while one query covers all suspects.
    pub every: Duration,
    /// Whether the controller did not answer the last query: that is logged once.
    pub silent: AtomicBool,
    /// Limit for the age of EC2's answer in a braked act or a fence. A node whose answer is older
    /// is looked at again at once.
    pub fresh: Duration,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Writes the events.
    pub teller: Arc<EventSender>,
}

impl Failover {
    /// Runs rounds, for ever.
    pub async fn run(self) {
        loop {
            let began = Instant::now();
            let leads = self.leader.leads();
            self.metrics.leads(leads);
            let next = if leads && self.tables.are_complete() {
                self.round().await
            } else {
                self.lost.note(std::iter::empty(), Instant::now());
                self.metrics.nodes(&[]);
                self.metrics.held(&[]);
                self.metrics.left_alone(&[]);
                self.metrics.taints(&[], Timestamp::now());
                self.episodes().forget();
                self.every
            };
            tokio::time::sleep_until((began + next).into()).await;
        }
    }

    /// Runs one round. Returns when the next round is to begin, counted from the beginning of this
    /// one.
    pub async fn round(&self) -> Duration {
        self.metrics.taints(&self.tables.taints(), Timestamp::now());
        let mut suspects = self.tables.suspects();
        self.teller.keep_only(|about| match about {
            EventSubject::Node { name, .. } => suspects.iter().any(|suspect| suspect.name == *name),
            // The retries report on attachments, onboarding on pods.
            EventSubject::Attachment { .. } | EventSubject::Pod { .. } => true,
        });
        let now = Instant::now();
        let lost = suspects.iter().filter(|suspect| suspect.is_lost());
        self.lost.note(lost.map(|suspect| suspect.name.as_str()), now);
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
        let left_alone: Vec<_> =
            suspects.iter().filter_map(|suspect| self.fencing.left_alone(&suspect.facts)).collect();
        self.metrics.left_alone(&left_alone);
        self.note_ends(&suspects, &phases);
        let chosen = self.choose(&suspects, &steps).await;
        let acted = self.act_on(&chosen).await;
        let held: Vec<&str> = chosen.held.iter().chain(&acted.held).copied().collect();
        self.metrics.held(&held);
        match acted.left {
            0 => pace(self.every, self.rota().turns()),
            // A node with a proof does not wait for its turn.
            _ => Duration::ZERO,
        }
    }

    /// Measures the failovers that have ended.
    fn note_ends(&self, suspects: &[Suspect], phases: &[Phase]) {
        let shown: Vec<Shown<'_>> = suspects
            .iter()
            .zip(phases)
            .map(|(suspect, phase)| Shown {
                node: &suspect.name,
                phase: *phase,
                attached: !suspect.facts.attachments.is_empty(),
            })
            .collect();
        let is_attached = |node: &str| self.tables.is_attached(node);
        let ends = self.episodes().note(&shown, is_attached, Instant::now());
        for end in ends {
            match end {
                Took::Proof(took) => self.metrics.proved(took),
                Took::Recovery(took) => self.metrics.recovered(took),
                Took::Fence(node, took) => {
                    self.metrics.fenced(took);
                    if let Some(suspect) = suspects.iter().find(|s| s.name == node) {
                        let note = "EC2 shows the instance that was to be powered off to be off";
                        self.tell(suspect, EventReason::FenceSucceeded, note);
                    }
                }
            }
        }
    }

    fn episodes(&self) -> MutexGuard<'_, Episodes> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rota(&self) -> MutexGuard<'_, QuerySchedule> {
        self.rota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge_absence(&self, suspect: &mut Suspect) {
        if let Fact::Present(node) = &mut suspect.facts.object {
            node.lost_for_long = self.lost.is_long(&suspect.name, Instant::now());
        }
    }

    /// Queries the suspects whose turn it is, and fills in what is known about all; without an
    /// answer nothing is known.
    async fn ask(&self, suspects: &mut [Suspect]) {
        let (chosen, checks) = {
            let mut rota = self.rota();
            let chosen = rota.choose(&questions(suspects.iter()));
            let checks = rota.choose_checks(&chosen, self.checks(suspects.iter()));
            (chosen, checks)
        };
        if chosen.is_empty() {
            return;
        }
        match self.put(&chosen, &checks).await {
            Some(answers) => self.rota().note(&chosen, &checks, answers),
            None => self.rota().silence(),
        }
        let rota = self.rota();
        for suspect in suspects {
            rota.fill(&mut suspect.facts);
        }
    }

    /// Returns the instances whose status checks decide something.
    fn checks<'a>(&self, suspects: impl Iterator<Item = &'a Suspect>) -> BTreeSet<String> {
        let all = suspects.filter_map(|suspect| self.fencing.asks_about(&suspect.facts));
        all.map(str::to_owned).collect()
    }

    /// Sends questions to the controller, and requests for status checks with them.
    async fn put(&self, questions: &[Question], checks: &BTreeSet<String>) -> Option<Answers> {
        match self.controller.ask(questions, checks).await {
            Ok(answers) => {
                self.metrics.question("answered");
                if self.silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the controller answers again");
                }
                Some(answers)
            }
            Err(status) => {
                self.metrics.question("failed");
                if self.silent.swap(true, Ordering::Relaxed) {
                    tracing::debug!(code = ?status.code(), text = status.message(), "the controller still does not answer");
                } else {
                    tracing::warn!(code = ?status.code(), text = status.message(), "the controller does not answer: nothing is known, nothing is done");
                }
                None
            }
        }
    }
}

/// Returns the questions about all suspects.
fn questions<'a>(suspects: impl Iterator<Item = &'a Suspect>) -> Vec<Question> {
    let mut questions: Vec<_> = suspects.flat_map(|suspect| suspect.facts.questions()).collect();
    questions.sort();
    questions.dedup();
    questions
}
