//! Acts on nodes. Each act needs a second look at the API server itself and at EC2 through the
//! controller.

use std::time::Instant;

use ebs_csi_safe_detach::lifecycle::{Intent, step};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;

use super::choose::Chosen;
use super::query_schedule::{AT_ONCE, fill};
use super::{Failover, questions};
use crate::act::{self, act};
use crate::cluster::Suspect;
use crate::controller_client::Answers;

/// Nodes that are looked at and acted on together: one query to EC2 and one write of the Lease
/// cover all of them.
const TOGETHER: usize = AT_ONCE;
/// Nodes that are processed at the same time, so that the API server does not get all requests at
/// once.
const AT_A_TIME: usize = 25;
/// The result of a round's acts.
#[derive(Debug, Default)]
pub(super) struct Acted {
    /// Why nodes were not acted on, one reason for each.
    pub(super) held: Vec<&'static str>,
    /// Nodes whose answers became too old before all acts were done.
    pub(super) left: usize,
}

impl Failover {
    /// Does what was chosen, where a second look confirms it.
    pub(super) async fn act_on(&self, chosen: &Chosen<'_>) -> Acted {
        let mut acted = Acted::default();
        for some in chosen.due.chunks(TOGETHER) {
            let names: Vec<&str> = some
                .iter()
                .map(|suspect| suspect.name.as_str())
                .filter(|name| chosen.taking.contains(name))
                .collect();
            if !names.is_empty()
                && let Err(error) = self.leader.record(&names, chosen.term).await
            {
                tracing::warn!(nodes = ?names, %error, "not acted on");
                acted.held.extend(names.iter().map(|_| "lost-place"));
                continue;
            }
            acted.left += self.act_anew(some, &names).await;
        }
        acted
    }

    /// Looks at these nodes again, at the API server and, with one query for all of them, at EC2;
    /// then does what still follows. Braked acts and fences happen only for the nodes that are
    /// recorded in the Lease: for another node, the second look may be the first to permit such an
    /// act. Returns how many nodes were left.
    async fn act_anew(&self, suspects: &[&Suspect], written: &[&str]) -> usize {
        let looks: Vec<_> = suspects.iter().map(|s| self.look_again(s)).collect();
        let looks = stream::iter(looks).buffer_unordered(AT_A_TIME);
        let mut looked: Vec<(Option<Node>, Suspect)> =
            looks.filter_map(std::future::ready).collect().await;
        let questions = questions(looked.iter().map(|(_, fresh)| fresh));
        let fresh = looked.iter().map(|(_, fresh)| fresh);
        let checks = self.checks(fresh.filter(|s| written.contains(&s.name.as_str())));
        let answers = match questions.is_empty() {
            true => Answers::default(),
            false => self.put(&questions, &checks).await.unwrap_or_default(),
        };
        let answered = Instant::now();
        for (_, fresh) in &mut looked {
            fill(&answers, &mut fresh.facts);
        }
        let acts: Vec<_> = looked
            .iter()
            .map(|(object, fresh)| {
                let may_take = written.contains(&fresh.name.as_str());
                self.act_on_one(object.as_ref(), fresh, may_take, answered)
            })
            .collect();
        let acts = stream::iter(acts).buffer_unordered(AT_A_TIME);
        acts.filter(|done| std::future::ready(!done)).count().await
    }

    async fn look_again(&self, suspect: &Suspect) -> Option<(Option<Node>, Suspect)> {
        match self.tables.look(&self.client, &suspect.name).await {
            Ok((object, mut fresh)) => {
                self.judge_absence(&mut fresh);
                Some((object, fresh))
            }
            Err(error) => {
                tracing::warn!(node = suspect.name, %error, "the node could not be looked at again: nothing is done");
                None
            }
        }
    }

    /// Returns whether every act was tried.
    async fn act_on_one(
        &self,
        object: Option<&Node>,
        fresh: &Suspect,
        may_take: bool,
        answered: Instant,
    ) -> bool {
        let is_old = || answered.elapsed() >= self.fresh;
        let mut step = step(&fresh.facts, self.mode);
        if !may_take {
            step.intents.retain(|intent| !intent.is_braked());
        } else if let Some((instance, how)) = self.fencing.due(&fresh.facts, &step) {
            if is_old() {
                return false;
            }
            self.fence(fresh, instance, how).await;
        }
        for intent in &step.intents {
            if !self.leader.leads() {
                tracing::warn!(node = fresh.name, "this process no longer leads");
                return true;
            }
            if intent.is_braked() && is_old() {
                return false;
            }
            self.act_out(object, fresh, intent).await;
        }
        true
    }

    async fn act_out(&self, object: Option<&Node>, fresh: &Suspect, intent: &Intent) {
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
                    self.say_done(fresh, intent);
                }
            }
            Err(error) => {
                self.metrics.act(label, "failed");
                tracing::warn!(node = fresh.name, act = label, %error, ?intent, "failover");
            }
        }
    }
}
