//! Chooses the nodes to act on in a round: those that the steps call for, minus those that the
//! brake and the switches hold.

use std::collections::{BTreeSet, HashSet};

use ebs_csi_safe_detach::lifecycle::brake::{Admitted, NodeState, admit};
use ebs_csi_safe_detach::lifecycle::{Intent, Transition};
use jiff::Timestamp;

use super::Failover;
use super::kill_switch::stopped;
use crate::cluster::Suspect;
use crate::events::EventReason;
use crate::leader::Term;

/// The work of a round.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    /// Nodes with something to do; first those in `taking`.
    pub(super) due: Vec<&'a Suspect>,
    /// The names of the nodes with a braked act or a fence.
    pub(super) taking: BTreeSet<&'a str>,
    /// The term in which the brake's decision is valid.
    pub(super) term: Term,
    /// Why the other nodes are held, one reason for each.
    pub(super) held: Vec<&'static str>,
}

impl Failover {
    /// Chooses the nodes, and reports the reason for those that are held.
    pub(super) async fn choose<'a>(
        &self,
        suspects: &'a [Suspect],
        steps: &[Transition],
    ) -> Chosen<'a> {
        let takes = |suspect: &Suspect, step: &Transition| {
            step.intents.iter().any(Intent::is_braked)
                || self.fencing.due(&suspect.facts, step).is_some()
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
            true => stopped(&self.client, &self.namespace).await,
            false => None,
        };
        let mut chosen = Chosen { term, ..Chosen::default() };
        for (suspect, step) in suspects.iter().zip(steps) {
            if let Some(held) = admitted.held.get(&suspect.name) {
                chosen.held.push(held.token());
                self.tell(suspect, EventReason::Held, held.token());
            } else if step.intents.is_empty() && !taking.contains(suspect.name.as_str()) {
                self.say_unproven(suspect, step.phase);
            } else if let Some(why) = stopped {
                chosen.held.push(why);
                self.tell(suspect, EventReason::Held, why);
            } else {
                chosen.due.push(suspect);
            }
        }
        let only_tidied = |suspect: &&Suspect| !taking.contains(suspect.name.as_str());
        chosen.due.sort_by_key(only_tidied);
        chosen.taking = taking;
        chosen
    }

    /// Returns which of the nodes in `taking` the brake admits, and the term in which that is
    /// valid.
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
        // A node that was acted on counts even when its object has gone since.
        for node in journal.nodes(now).filter(|node| !there.contains(*node)) {
            seen.push(NodeState {
                node: node.to_owned(),
                zone: String::new(),
                suspect: false,
                acted: true,
                wanted: false,
            });
        }
        (admit(&seen), term)
    }
}
