//! Acts on nodes. Before each act, the node is read a second time, from the API server itself and
//! from EC2 through the controller.

use std::time::Instant;

use ebs_csi_safe_detach::lifecycle::step;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;

use super::choose::Chosen;
use super::query_schedule::{MAX_INSTANCES, fill_answers};
use super::{Failover, questions};
use crate::act::ActResult;
use crate::cluster::Suspect;
use crate::controller_client::ControllerAnswers;

/// Nodes that are read again and acted on together: one query to EC2 and one write of the Lease
/// cover all of them.
const NODES_PER_QUERY: usize = MAX_INSTANCES;
/// Nodes that are processed at the same time, so that the API server does not get all requests at
/// once.
const CONCURRENT_NODES: usize = 25;
#[derive(Debug, Default)]
pub(super) struct Acted {
    /// Why nodes were not acted on, one reason for each.
    pub(super) held: Vec<&'static str>,
    /// Nodes whose answers became too old before all acts were done.
    pub(super) postponed: usize,
}

impl Failover {
    /// Acts on the chosen nodes, where a second read confirms the act.
    pub(super) async fn act_on_chosen(&self, chosen: &Chosen<'_>) -> Acted {
        let mut acted = Acted::default();
        for chunk in chosen.due.chunks(NODES_PER_QUERY) {
            let names: Vec<&str> = chunk
                .iter()
                .map(|suspect| suspect.name.as_str())
                .filter(|name| chosen.braked.contains(name))
                .collect();
            if !names.is_empty()
                && let Err(error) = self.context.leader.record(&names, chosen.term).await
            {
                tracing::warn!(nodes = ?names, %error, "not acted on");
                acted.held.extend(names.iter().map(|_| "lost-place"));
                continue;
            }
            acted.postponed += self.act_after_second_read(chunk, &names).await;
        }
        acted
    }

    /// Reads these nodes again, from the API server and, with one query for all of them, from EC2;
    /// then does what still follows. Braked acts and fences happen only for the nodes that are
    /// recorded in the Lease: for another node, the second read may be the first to permit such an
    /// act. Returns how many nodes were left.
    async fn act_after_second_read(&self, suspects: &[&Suspect], recorded: &[&str]) -> usize {
        let reads: Vec<_> = suspects.iter().map(|s| self.read_again(s)).collect();
        let reads = stream::iter(reads).buffer_unordered(CONCURRENT_NODES);
        let mut read: Vec<(Option<Node>, Suspect)> =
            reads.filter_map(std::future::ready).collect().await;
        let questions = questions(read.iter().map(|(_, second)| second));
        let second = read.iter().map(|(_, second)| second);
        let checks =
            self.instances_to_check(second.filter(|s| recorded.contains(&s.name.as_str())));
        let answers = match questions.is_empty() {
            true => ControllerAnswers::default(),
            false => self.query_controller(&questions, &checks).await.unwrap_or_default(),
        };
        let answered = Instant::now();
        for (_, second) in &mut read {
            fill_answers(&answers, &mut second.facts);
        }
        let acts: Vec<_> = read
            .iter()
            .map(|(object, second)| {
                let may_do_braked = recorded.contains(&second.name.as_str());
                self.act_on_one(object.as_ref(), second, may_do_braked, answered)
            })
            .collect();
        let acts = stream::iter(acts).buffer_unordered(CONCURRENT_NODES);
        acts.filter(|done| std::future::ready(!done)).count().await
    }

    async fn read_again(&self, suspect: &Suspect) -> Option<(Option<Node>, Suspect)> {
        match self.context.tables.read_node(&self.context.client, &suspect.name).await {
            Ok((object, mut second)) => {
                self.fill_lost_for_long(&mut second);
                Some((object, second))
            }
            Err(error) => {
                tracing::warn!(node = suspect.name, %error, "the node could not be looked at again: nothing is done");
                None
            }
        }
    }

    async fn act_on_one(
        &self,
        object: Option<&Node>,
        second: &Suspect,
        may_do_braked: bool,
        answered: Instant,
    ) -> bool {
        let is_answer_old = || answered.elapsed() >= self.answer_validity;
        let mut step = step(&second.facts, self.mode);
        if !may_do_braked {
            step.intents.retain(|intent| !intent.is_braked());
        } else if let Some((instance, how)) = self.fencing.instance_to_fence(&second.facts, &step) {
            if is_answer_old() {
                return false;
            }
            self.fence(second, instance, how).await;
        }
        for intent in &step.intents {
            if !self.context.leader.is_leader() {
                tracing::warn!(node = second.name, "this process no longer leads");
                return true;
            }
            if intent.is_braked() && is_answer_old() {
                return false;
            }
            let done = self.context.perform(Some(&second.name), object, intent, "failover").await;
            if done == Some(ActResult::Done) {
                self.report_act(second, intent);
            }
        }
        true
    }
}
