//! Measures how long failovers take: from the first observation that a node is lost to the proof,
//! and to the end of its last attachment.
//!
//! The times come from this process's own clock and observations, so that no other machine's clock
//! matters. When a node was already lost at the time this replica began to lead, the beginning is
//! unknown and the failover is not measured.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use ebs_csi_safe_detach::lifecycle::NodePhase;

/// A round's observation of a node that is not healthy.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeObservation<'a> {
    pub(super) node: &'a str,
    pub(super) phase: NodePhase,
    pub(super) attached: bool,
}

/// The end of a measured phase, with its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FinishedPhase {
    /// From loss to proof, of the whole node or of one of its volumes.
    Proof(Duration),
    /// From loss to the end of the last attachment.
    Recovery(Duration),
    /// From the request to power off the node's instance until EC2 showed it off.
    Fence(String, Duration),
}

/// The failovers in progress.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    nodes: HashMap<String, Episode>,
    /// Whether this replica led at its last observation.
    was_leading: bool,
}

#[derive(Debug, Default)]
struct Episode {
    since: Option<Instant>,
    fence_requested: Option<Instant>,
    proven: bool,
    recovered: bool,
}

impl Episodes {
    /// Forgets all episodes: a replica that does not lead does not observe them.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn record_fence(&mut self, node: &str, now: Instant) {
        let episode = self.nodes.entry(node.to_owned()).or_default();
        episode.fence_requested.get_or_insert(now);
    }

    /// Records all unhealthy nodes of a round; `is_attached` returns whether another node still has
    /// attachments.
    pub(super) fn observe(
        &mut self,
        all: &[NodeObservation<'_>],
        is_attached: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<FinishedPhase> {
        let mut finished = Vec::new();
        let first = self.was_leading.then_some(now);
        self.was_leading = true;
        for observation in all {
            let episode = self
                .nodes
                .entry(observation.node.to_owned())
                .or_insert_with(|| Episode { since: first, ..Episode::default() });
            episode.observe(observation, now, &mut finished);
        }
        let unhealthy: HashSet<&str> = all.iter().map(|observation| observation.node).collect();
        self.nodes.retain(|node, episode| {
            let stays = unhealthy.contains(node.as_str());
            if !stays && !is_attached(node) {
                episode.finish_recovery(now, &mut finished);
            }
            stays
        });
        finished
    }
}

impl Episode {
    fn observe(
        &mut self,
        observation: &NodeObservation<'_>,
        now: Instant,
        finished: &mut Vec<FinishedPhase>,
    ) {
        let proved = matches!(observation.phase, NodePhase::NodeProven | NodePhase::VolumesProven);
        if proved && !self.proven {
            finished.extend(self.since.map(|since| FinishedPhase::Proof(now - since)));
        }
        if observation.phase == NodePhase::NodeProven
            && let Some(at) = self.fence_requested.take()
        {
            finished.push(FinishedPhase::Fence(observation.node.to_owned(), now - at));
        }
        self.proven |= proved || observation.phase == NodePhase::Acting;
        if !observation.attached {
            self.finish_recovery(now, finished);
        }
    }

    fn finish_recovery(&mut self, now: Instant, finished: &mut Vec<FinishedPhase>) {
        if self.proven && !self.recovered {
            self.recovered = true;
            finished.extend(self.since.map(|since| FinishedPhase::Recovery(now - since)));
        }
    }
}

/// How long nodes have not been Ready. A new process has observed no node for long.
#[derive(Debug)]
pub(super) struct LostNodes {
    threshold: Duration,
    since: Mutex<HashMap<String, Instant>>,
}

impl LostNodes {
    pub(super) fn new(threshold: Duration) -> Self {
        Self { threshold, since: Mutex::default() }
    }

    pub(super) fn observe<'a>(&self, lost: impl Iterator<Item = &'a str>, now: Instant) {
        let mut since = lock(&self.since);
        let first = |node: &str| (node.to_owned(), since.get(node).copied().unwrap_or(now));
        *since = lost.map(first).collect();
    }

    pub(super) fn is_lost_for_long(&self, node: &str, now: Instant) -> bool {
        let since = lock(&self.since);
        let since = since.get(node);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "node-1";

    /// Runs rounds ten seconds apart; `None` means that the node is healthy or gone and has no
    /// attachments.
    fn observe_rounds(rounds: &[Option<(NodePhase, bool)>]) -> Vec<FinishedPhase> {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let mut finished = Vec::new();
        for (number, observation) in rounds.iter().enumerate() {
            let now = start + Duration::from_secs(10) * u32::try_from(number).unwrap();
            let all: Vec<NodeObservation<'_>> = observation
                .iter()
                .map(|(phase, attached)| NodeObservation {
                    node: NODE,
                    phase: *phase,
                    attached: *attached,
                })
                .collect();
            finished.extend(episodes.observe(&all, |_| false, now));
        }
        finished
    }

    /// Proof and recovery each report once; a node first seen already lost, or back without proof,
    /// reports nothing.
    #[test]
    fn failover_times_are_reported_once_since_node_loss() {
        let secs = Duration::from_secs;
        let lost = Some((NodePhase::Querying, true));
        let acting = |attached| Some((NodePhase::Acting, attached));
        let whole = [
            None,
            lost,
            Some((NodePhase::NodeProven, true)),
            acting(true),
            acting(false),
            Some((NodePhase::Recovering, false)),
            None,
        ];
        let both = vec![FinishedPhase::Proof(secs(10)), FinishedPhase::Recovery(secs(30))];
        assert_eq!(observe_rounds(&whole), both);
        let gone = [None, lost, Some((NodePhase::VolumesProven, true)), None];
        let both = vec![FinishedPhase::Proof(secs(10)), FinishedPhase::Recovery(secs(20))];
        assert_eq!(observe_rounds(&gone), both, "the Node object is gone");
        assert_eq!(observe_rounds(&[None, lost, None]), [], "it came back by itself");
        assert_eq!(observe_rounds(&whole[1..]), [], "the time of the loss is unknown");
        let twice = [None, lost, None, lost, Some((NodePhase::NodeProven, true))];
        assert_eq!(observe_rounds(&twice), [FinishedPhase::Proof(secs(10))], "counted anew");
    }

    #[test]
    fn fence_duration_counts_from_first_request_until_off() {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let observation = |phase| [NodeObservation { node: NODE, phase, attached: true }];
        episodes.observe(&observation(NodePhase::Querying), |_| true, at(0));
        episodes.record_fence(NODE, at(3));
        episodes.record_fence(NODE, at(6));
        assert_eq!(episodes.observe(&observation(NodePhase::Querying), |_| true, at(9)), []);
        assert_eq!(
            episodes.observe(&observation(NodePhase::NodeProven), |_| true, at(33)),
            [FinishedPhase::Fence(NODE.to_owned(), Duration::from_secs(30))]
        );
        episodes.clear();
        let mut left = observation(NodePhase::NodeProven);
        left[0].attached = false;
        assert_eq!(episodes.observe(&left, |_| false, at(40)), []);
    }

    #[test]
    fn healthy_observation_resets_lost_time() {
        let lost = LostNodes::new(Duration::from_secs(300));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        lost.observe(["a", "b"].into_iter(), at(0));
        lost.observe(["a"].into_iter(), at(200));
        lost.observe(["a", "b"].into_iter(), at(250));
        assert!(!lost.is_lost_for_long("a", at(299)));
        assert!(lost.is_lost_for_long("a", at(300)));
        assert!(!lost.is_lost_for_long("b", at(300)));
        lost.observe([].into_iter(), at(400));
        assert!(!lost.is_lost_for_long("a", at(900)));
    }
}
