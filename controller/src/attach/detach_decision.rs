//! The decision before a DetachVolume: whether the volume may leave the node.

use std::ops::ControlFlow;
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::Attachments;
use super::own_volume::detach_refused;
use super::recent_changes::name;
use crate::ec2::csi_failure::failure;
use crate::ec2::{Ec2, Force, InstanceState, LookResult};
use crate::operation::Mandate;
use crate::request::Pair;
use crate::safe_detach::verdict_text::refused;
use crate::safe_detach::{
    Fact, Facts, Mode, Phase, Refusal, Rung, Verdict, Waiting, decide, gather,
};

/// The pause before the next look, while a look may be from before the attach.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long reads may miss an existing volume and its instance.
const UNSEEN: Duration = Duration::from_secs(75);

/// The next step of a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetachDecision {
    /// Send DetachVolume.
    Send(Force),
    /// A detach is under way; the caller waits for its end.
    InProgress,
    /// EC2 shows no attachment.
    NotAttached,
}

impl Attachments {
    /// Decides on fresh facts, and waits while the instance is in a transitional state.
    ///
    /// # Errors
    /// [`Condition::InUse`] when the volume may not leave; EC2's error when that error left the
    /// facts unknown; [`Condition::DeadlinePassed`].
    pub(super) async fn decide_detach(
        &self,
        ec2: &Ec2,
        pair: &Pair,
        mandate: &Mandate,
        deadline: Instant,
    ) -> Result<DetachDecision, Failure> {
        if self.safe_detach == Mode::Off {
            return Ok(DetachDecision::Send(Force::No));
        }
        loop {
            if mandate.is_superseded() {
                return Err(Mandate::superseded_failure());
            }
            let mut gathered = gather(ec2, self.safe_detach, pair, &self.cluster_evidence).await;
            if let Some(device) = &gathered.root_device {
                return Err(detach_refused(&pair.volume, &pair.node, device));
            }
            if !gathered.is_unseen {
                self.unseen.forget(&name(&pair.volume, &pair.node));
            }
            let facts = &mut gathered.facts;
            let mut verdict = decide(facts);
            if verdict == Verdict::Refuse(Refusal::NoReport) {
                // Kubelet's report is read only when no other evidence decides.
                facts.kubelet_report = self.cluster_evidence.reports.of(pair).await;
                verdict = decide(facts);
            }
            self.tally.metrics().safe_detach_decided(verdict.label());
            match verdict {
                // The look may be from before the attach.
                Verdict::Done if self.recent.is_new(&pair.volume, &pair.node) => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Verdict::Done if gathered.is_unseen => {
                    self.is_gone(pair)?;
                    return Ok(DetachDecision::NotAttached);
                }
                Verdict::Done => return Ok(DetachDecision::NotAttached),
                Verdict::Safe(Rung::OverrideOrder) => {
                    return Ok(self.by_order(pair, &gathered.facts));
                }
                Verdict::Safe(rung) => {
                    tracing::debug!(evidence = rung.label(), facts = ?gathered.facts, "the volume may leave");
                    return Ok(DetachDecision::Send(Force::No));
                }
                Verdict::Wait(Waiting::Leaving) => return Ok(DetachDecision::InProgress),
                Verdict::Wait(Waiting::Transition) => {
                    mandate.check_wanted()?;
                    wait_for_transition(ec2, pair, mandate, deadline).await?;
                }
                Verdict::Refuse(why) => {
                    tracing::info!(reason = why.token(), facts = ?gathered.facts, "the detach is refused");
                    return Err(match gathered.silence.filter(|_| why.is_silence()) {
                        Some(error) => {
                            failure(&error).context(refused(why, pair, &gathered.facts.instance))
                        }
                        None => Failure::new(
                            Condition::InUse,
                            refused(why, pair, &gathered.facts.instance),
                        ),
                    });
                }
            }
        }
    }

    /// Checks that EC2 has shown neither the volume nor the instance for [`UNSEEN`]. No request
    /// that is safe in both cases tells whether they are gone.
    ///
    /// # Errors
    /// [`Condition::OperationPending`] until then.
    fn is_gone(&self, pair: &Pair) -> Result<(), Failure> {
        let (name, now) = (name(&pair.volume, &pair.node), Instant::now());
        let since = self.unseen.get(&name).unwrap_or(now);
        if now.duration_since(since) >= UNSEEN {
            return Ok(());
        }
        self.unseen.put(&name, since, 48 * UNSEEN);
        Err(Failure::new(
            Condition::OperationPending,
            format!(
                "EC2 shows neither volume {} nor node {}; when neither is shown for {} s, both are gone",
                pair.volume,
                pair.node,
                UNSEEN.as_secs()
            ),
        ))
    }

    /// Follows a person's override order: a plain detach first, then one forced detach if the
    /// attachment is stuck in `detaching`.
    fn by_order(&self, pair: &Pair, facts: &Facts) -> DetachDecision {
        let leaving = matches!(facts.attachment, Fact::Present(at) if at.phase == Phase::Leaving);
        let decision = match leaving {
            false => DetachDecision::Send(Force::No),
            true if self.cluster_evidence.overrides.use_up(pair) => {
                DetachDecision::Send(Force::Yes)
            }
            true => DetachDecision::InProgress,
        };
        tracing::warn!(
            volume.id = pair.volume.as_str(),
            node.id = pair.node.as_str(),
            ?decision,
            ?facts,
            "a detach by a person's order"
        );
        if decision == DetachDecision::Send(Force::Yes) {
            self.tally.metrics().forced_detach();
        }
        decision
    }
}

async fn wait_for_transition(
    ec2: &Ec2,
    pair: &Pair,
    mandate: &Mandate,
    deadline: Instant,
) -> Result<(), Failure> {
    let settled = ec2
        .watch_instance(&pair.node, deadline, |seen| match seen {
            _ if mandate.is_superseded() => ControlFlow::Break(()),
            LookResult::Present(instance) => match instance.state {
                InstanceState::Pending | InstanceState::Stopping | InstanceState::ShuttingDown => {
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            },
            LookResult::Absent => ControlFlow::Break(()),
            LookResult::Unknown(error) if error.is_transient() => ControlFlow::Continue(()),
            LookResult::Unknown(_) => ControlFlow::Break(()),
        })
        .await;
    settled.ok_or_else(|| {
        Failure::new(
            Condition::DeadlinePassed,
            format!(
                "volume {} may leave node {} when its instance has come to rest; the next call looks again",
                pair.volume, pair.node
            ),
        )
    })
}
