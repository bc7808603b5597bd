//! Chooses the nodes to act on in a round: those that the steps call for, minus those that the
//! brake and the switches hold.

use std::collections::{BTreeSet, HashSet};

use ebs_csi_safe_detach::lifecycle::brake::{Admitted, NodeState, admit};
use ebs_csi_safe_detach::lifecycle::{Intent, Transition};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{Api, Client, ResourceExt};

use super::Failover;
use crate::cluster::Suspect;
use crate::events::EventReason;
use crate::leader::Term;

/// The work of a round.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    /// Nodes with something to do; first those in `braked`.
    pub(super) due: Vec<&'a Suspect>,
    pub(super) braked: BTreeSet<&'a str>,
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
        let is_braked = |(suspect, step): &(&Suspect, &Transition)| {
            step.intents.iter().any(Intent::is_braked)
                || self.fencing.instance_to_fence(&suspect.facts, step).is_some()
        };
        let braked = suspects.iter().zip(steps).filter(is_braked);
        let braked: BTreeSet<&str> = braked.map(|(suspect, _)| suspect.name.as_str()).collect();
        let (admitted, term) = match braked.is_empty() {
            true => (Admitted::default(), Term::default()),
            false => self.brake(suspects, &braked).await,
        };
        let has_work = !braked.is_empty() || steps.iter().any(|step| !step.intents.is_empty());
        let stop_reason = match has_work {
            true => stop_reason(&self.context.client, &self.context.namespace).await,
            false => None,
        };
        let mut chosen = Chosen { term, ..Chosen::default() };
        for (suspect, step) in suspects.iter().zip(steps) {
            if let Some(held) = admitted.held.get(&suspect.name) {
                chosen.held.push(held.token());
                self.send_event(suspect, EventReason::Held, held.token());
            } else if step.intents.is_empty() && !braked.contains(suspect.name.as_str()) {
                self.report_unproven(suspect, step.phase);
            } else if let Some(why) = stop_reason {
                chosen.held.push(why);
                self.send_event(suspect, EventReason::Held, why);
            } else {
                chosen.due.push(suspect);
            }
        }
        let has_no_braked_act = |suspect: &&Suspect| !braked.contains(suspect.name.as_str());
        chosen.due.sort_by_key(has_no_braked_act);
        chosen.braked = braked;
        chosen
    }

    /// Returns which of the nodes in `braked` the brake admits, and the term in which that is
    /// valid.
    async fn brake(&self, suspects: &[Suspect], braked: &BTreeSet<&str>) -> (Admitted, Term) {
        let now = Timestamp::now();
        let (journal, term) = self.context.leader.journal().await;
        let mut states = self.context.tables.brake_states(suspects);
        let mut listed = HashSet::new();
        for state in &mut states {
            state.acted = journal.was_acted_on(&state.name, now);
            state.wanted = braked.contains(state.name.as_str());
            listed.insert(state.name.clone());
        }
        // A node that was acted on counts even when its object has gone since.
        for node in journal.nodes(now).filter(|node| !listed.contains(*node)) {
            states.push(NodeState { name: node.to_owned(), acted: true, ..NodeState::default() });
        }
        (admit(&states), term)
    }
}

/// The ConfigMap whose `stop: "true"` stops failover.
const KILL_SWITCH: &str = "ebs-csi-node-lifecycle";
/// The annotation by which the CSIDriver object advertises safe detach.
pub const ADVERTISED: &str = "ebs.csi.aws.com/safe-detach";
/// The value of that annotation.
pub const ADVERTISED_VERSION: &str = "v1";

/// Returns why no act is allowed. A switch that cannot be read also stops all acts.
pub(crate) async fn stop_reason(client: &Client, namespace: &str) -> Option<&'static str> {
    let switches: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
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
    let drivers: Api<CSIDriver> = Api::all(client.clone());
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
