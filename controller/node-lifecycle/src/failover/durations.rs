//! Measures how long failovers take: from the first observation that a node is lost to the proof,
//! and to the end of its last attachment.
//!
//! The times come from this process's own clock. When a node was already lost at the time this
//! replica began to lead, the beginning is unknown and the failover is not measured.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use ebs_csi_safe_detach::lifecycle::Phase;

/// A round's observation of a node that is not healthy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) node: &'a str,
    pub(super) phase: Phase,
    /// The node still has attachments.
    pub(super) attached: bool,
}

/// The end of a measured phase, with its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// From loss to proof, of the whole node or of one of its volumes.
    Proof(Duration),
    /// From loss to the end of the last attachment.
    Recovery(Duration),
    /// From the request to power off the node's instance until EC2 showed it off.
    Fence(String, Duration),
}

/// The failovers in progress.
#[derive(Debug, Default)]
pub struct Episodes {
    nodes: HashMap<String, Episode>,
    /// Whether this replica led at its last observation.
    led: bool,
}

#[derive(Debug, Default)]
struct Episode {
    since: Option<Instant>,
    fenced: Option<Instant>,
    proven: bool,
    recovered: bool,
}

impl Episodes {
    /// Forgets all episodes: a replica that does not lead does not observe them.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Records that the node's instance is being powered off.
    pub(super) fn fenced(&mut self, node: &str, now: Instant) {
        let episode = self.nodes.entry(node.to_owned()).or_default();
        episode.fenced.get_or_insert(now);
    }

    /// Records all unhealthy nodes of a round; `is_attached` tells whether another node still has
    /// attachments.
    pub(super) fn note(
        &mut self,
        all: &[Shown<'_>],
        is_attached: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<Took> {
        let mut took = Vec::new();
        let first = self.led.then_some(now);
        self.led = true;
        for shown in all {
            let episode = self
                .nodes
                .entry(shown.node.to_owned())
                .or_insert_with(|| Episode { since: first, ..Episode::default() });
            episode.note(shown, now, &mut took);
        }
        let there: HashSet<&str> = all.iter().map(|shown| shown.node).collect();
        self.nodes.retain(|node, episode| {
            let stays = there.contains(node.as_str());
            if !stays && !is_attached(node) {
                episode.recover(now, &mut took);
            }
            stays
        });
        took
    }
}

impl Episode {
    fn note(&mut self, shown: &Shown<'_>, now: Instant, took: &mut Vec<Took>) {
        let proved = matches!(shown.phase, Phase::NodeProven | Phase::VolumesProven);
        if proved && !self.proven {
            took.extend(self.since.map(|since| Took::Proof(now - since)));
        }
        if shown.phase == Phase::NodeProven
            && let Some(at) = self.fenced.take()
        {
            took.push(Took::Fence(shown.node.to_owned(), now - at));
        }
        self.proven |= proved || shown.phase == Phase::Acting;
        if !shown.attached {
            self.recover(now, took);
        }
    }

    fn recover(&mut self, now: Instant, took: &mut Vec<Took>) {
        if self.proven && !self.recovered {
            self.recovered = true;
            took.extend(self.since.map(|since| Took::Recovery(now - since)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "node-1";

    /// Runs rounds ten seconds apart; `None` means that the node is healthy or gone and has no
    /// attachments.
    fn played(rounds: &[Option<(Phase, bool)>]) -> Vec<Took> {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let mut took = Vec::new();
        for (number, shown) in rounds.iter().enumerate() {
            let now = start + Duration::from_secs(10) * u32::try_from(number).unwrap();
            let all: Vec<Shown<'_>> = shown
                .iter()
                .map(|(phase, attached)| Shown { node: NODE, phase: *phase, attached: *attached })
                .collect();
            took.extend(episodes.note(&all, |_| false, now));
        }
        took
    }

    /// Proof and recovery each report once; a node first seen already lost, or back without proof,
    /// reports nothing.
    #[test]
    fn failover_times_are_reported_once_since_node_loss() {
        let secs = Duration::from_secs;
        let lost = Some((Phase::Querying, true));
        let acting = |attached| Some((Phase::Acting, attached));
        let whole = [
            None,
            lost,
            Some((Phase::NodeProven, true)),
            acting(true),
            acting(false),
            Some((Phase::Recovering, false)),
            None,
        ];
        let both = vec![Took::Proof(secs(10)), Took::Recovery(secs(30))];
        assert_eq!(played(&whole), both);
        let gone = [None, lost, Some((Phase::VolumesProven, true)), None];
        let both = vec![Took::Proof(secs(10)), Took::Recovery(secs(20))];
        assert_eq!(played(&gone), both, "the Node object is gone");
        assert_eq!(played(&[None, lost, None]), [], "it came back by itself");
        assert_eq!(played(&whole[1..]), [], "who knows since when it was lost");
        let twice = [None, lost, None, lost, Some((Phase::NodeProven, true))];
        assert_eq!(played(&twice), [Took::Proof(secs(10))], "counted anew");
    }

    #[test]
    fn fence_duration_counts_from_first_request_until_off() {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let shown = |phase| [Shown { node: NODE, phase, attached: true }];
        episodes.note(&shown(Phase::Querying), |_| true, at(0));
        episodes.fenced(NODE, at(3));
        episodes.fenced(NODE, at(6));
        assert_eq!(episodes.note(&shown(Phase::Querying), |_| true, at(9)), []);
        assert_eq!(
            episodes.note(&shown(Phase::NodeProven), |_| true, at(33)),
            [Took::Fence(NODE.to_owned(), Duration::from_secs(30))]
        );
        episodes.forget();
        let mut left = shown(Phase::NodeProven);
        left[0].attached = false;
        assert_eq!(episodes.note(&left, |_| false, at(40)), []);
    }
}
