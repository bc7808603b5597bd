//! Who is acted on in a round: what follows from the tables, less what the brake and the switches hold.

use std::collections::{BTreeSet, HashSet};

use ebs_csi_safe_detach::lifecycle::brake::{Admitted, Seen, admit};
use ebs_csi_safe_detach::lifecycle::{Intent, Step};
use jiff::Timestamp;

use super::switch::stopped;
use super::{Failover, Suspect};
use crate::leader::Term;
use crate::tell::Tale;

/// What a round is to do.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    /// Nodes for which something is to be done: first those from which something would be taken.
    pub(super) due: Vec<&'a Suspect>,
    /// The names of those from which something would be taken.
    pub(super) taking: BTreeSet<&'a str>,
    /// For how long the brake's word counts.
    pub(super) term: Term,
    /// Why others are held, one reason for each.
    pub(super) held: Vec<&'static str>,
}

impl Failover {
    /// Chooses, and says why on the others.
    pub(super) async fn choose<'a>(&self, suspects: &'a [Suspect], steps: &[Step]) -> Chosen<'a> {
        let takes = |suspect: &Suspect, step: &Step| {
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
        let mut chosen = Chosen {
            term,
            ..Chosen::default()
        };
        for (suspect, step) in suspects.iter().zip(steps) {
            if let Some(held) = admitted.held.get(&suspect.name) {
                chosen.held.push(held.token());
                self.tell(suspect, Tale::Held, held.token());
            } else if step.intents.is_empty() && !taking.contains(suspect.name.as_str()) {
                self.say_unproven(suspect, step.phase);
            } else if let Some(why) = stopped {
                chosen.held.push(why);
                self.tell(suspect, Tale::Held, why);
            } else {
                chosen.due.push(suspect);
            }
        }
        let only_tidied = |suspect: &&Suspect| !taking.contains(suspect.name.as_str());
        chosen.due.sort_by_key(only_tidied);
        chosen.taking = taking;
        chosen
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
}
