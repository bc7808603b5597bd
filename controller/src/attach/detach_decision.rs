//! The decision before a DetachVolume: whether the volume may leave the node.

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Force, InstanceState, LookResult, Timestamp};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::Attachments;
use super::detaching::Detaching;
use super::own_volume::root_volume_refusal;
use crate::operation::Cancellation;
use crate::request::Pair;
use crate::safe_detach::verdict_text::refusal_text;
use crate::safe_detach::{
    Evidence, Fact, Facts, Mode, Phase, Refusal, Verdict, Waiting, decide, gather,
};

/// How long reads may miss an existing volume and its instance.
const GONE_AFTER: Duration = Duration::from_secs(75);
/// The pause between two questions to a node that has yet to promise.
const PROMISE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetachDecision {
    /// Send DetachVolume, on facts of which the oldest was read at this time.
    Send(Force, Instant),
    /// A detach is under way; the caller waits for its end.
    InProgress,
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
        call: &Call,
        pair: &Pair,
        machine: &mut Detaching,
        cancellation: &Cancellation,
        deadline: Instant,
    ) -> Result<DetachDecision, Failure> {
        if self.safe_detach == Mode::Off {
            return Ok(DetachDecision::Send(Force::No, Instant::now()));
        }
        self.cluster_evidence.overrides.note_asked(pair);
        loop {
            cancellation.check_not_superseded()?;
            let mut gathered =
                gather(&self.ec2, call, self.safe_detach, pair, &self.cluster_evidence).await;
            if let Some(device) = &gathered.root_device {
                return Err(root_volume_refusal(&pair.volume, &pair.node, device));
            }
            if gathered.shows_neither {
                self.check_gone(pair)?;
                return Ok(DetachDecision::NotAttached);
            }
            self.unseen.remove(&pair.to_string());
            if let Fact::Present(attachment) = gathered.facts.attachment {
                let attached = attachment
                    .since
                    .map(|at| Timestamp { seconds: at.seconds, nanoseconds: at.nanoseconds });
                machine.note_attached(attached);
            }
            let looked_at = gathered.looked_at;
            let facts = &mut gathered.facts;
            let mut verdict = decide(facts);
            if verdict == Verdict::Refuse(Refusal::NoReport) {
                // The node is asked only when no other evidence decides.
                let since = match facts.attachment {
                    Fact::Present(attachment) => attachment.since,
                    Fact::Absent | Fact::Unknown => None,
                };
                facts.node = self.cluster_evidence.reports.read(pair, since).await;
                verdict = decide(facts);
            }
            self.operation_count.metrics().safe_detach_decided(verdict.label());
            match verdict {
                Verdict::Done if looked_at < machine.absence_counts_from() => {
                    tokio::time::sleep_until(machine.absence_counts_from()).await;
                }
                Verdict::Done => return Ok(DetachDecision::NotAttached),
                Verdict::Safe(Evidence::OverrideOrder) => {
                    return Ok(self.follow_override_order(pair, &gathered.facts, looked_at));
                }
                Verdict::Safe(evidence) => {
                    tracing::debug!(evidence = evidence.label(), facts = ?gathered.facts, "the volume may leave");
                    return Ok(DetachDecision::Send(Force::No, looked_at));
                }
                Verdict::Wait(Waiting::Leaving) => return Ok(DetachDecision::InProgress),
                Verdict::Wait(Waiting::Transition) => {
                    cancellation.check_wanted()?;
                    wait_for_transition(&self.ec2, call, pair, cancellation, deadline).await?;
                }
                Verdict::Wait(Waiting::Promise) => {
                    cancellation.check_wanted()?;
                    wait_for_promise(pair, deadline).await?;
                }
                Verdict::Refuse(why) => {
                    tracing::info!(reason = why.token(), facts = ?gathered.facts, "the detach is refused");
                    return Err(match gathered.unknown_because.filter(|_| why.is_missing_data()) {
                        Some(error) => Failure::from(error).context(refusal_text(
                            why,
                            pair,
                            &gathered.facts.instance,
                        )),
                        None => Failure::new(
                            Condition::InUse,
                            refusal_text(why, pair, &gathered.facts.instance),
                        ),
                    });
                }
            }
        }
    }

    /// Checks that EC2 has shown neither the volume nor the instance for [`GONE_AFTER`]. No request
    /// that is safe in both cases tells whether they are gone.
    fn check_gone(&self, pair: &Pair) -> Result<(), Failure> {
        let (key, now) = (pair.to_string(), Instant::now());
        let since = self.unseen.get(&key).unwrap_or(now);
        if now.duration_since(since) >= GONE_AFTER {
            return Ok(());
        }
        self.unseen.put(&key, since, 48 * GONE_AFTER);
        Err(Failure::pending(format!(
            "EC2 shows neither volume {} nor node {}; when neither is shown for {} s, both are gone",
            pair.volume,
            pair.node,
            GONE_AFTER.as_secs()
        )))
    }

    /// Follows an override order: a plain detach first, then one forced detach if the
    /// attachment is stuck in `detaching`.
    fn follow_override_order(
        &self,
        pair: &Pair,
        facts: &Facts,
        looked_at: Instant,
    ) -> DetachDecision {
        let is_detaching =
            matches!(facts.attachment, Fact::Present(at) if at.phase == Phase::Leaving);
        let decision = match is_detaching {
            false => DetachDecision::Send(Force::No, looked_at),
            true if self.cluster_evidence.overrides.is_unused(pair) => {
                DetachDecision::Send(Force::Yes, looked_at)
            }
            true => DetachDecision::InProgress,
        };
        tracing::warn!(
            volume.id = pair.volume.as_str(),
            node.id = pair.node.as_str(),
            ?decision,
            ?facts,
            by = self.cluster_evidence.overrides.by(pair).as_deref(),
            "a detach by an override order"
        );
        decision
    }
}

/// Waits before the node is asked again.
async fn wait_for_promise(pair: &Pair, deadline: Instant) -> Result<(), Failure> {
    let next = Instant::now() + PROMISE_INTERVAL;
    tokio::time::sleep_until(next.min(deadline)).await;
    if next < deadline {
        return Ok(());
    }
    Err(Failure::new(
        Condition::DeadlinePassed,
        format!(
            "volume {} may leave node {} when the node has promised not to use it; the next call asks again",
            pair.volume, pair.node
        ),
    ))
}

async fn wait_for_transition(
    ec2: &Ec2,
    call: &Call,
    pair: &Pair,
    cancellation: &Cancellation,
    deadline: Instant,
) -> Result<(), Failure> {
    let transition_end = ec2
        .watch_instance(call, &pair.node, deadline, |look| {
            let is_under_way = match &look.result {
                LookResult::Present(instance) => matches!(
                    instance.state,
                    InstanceState::Pending | InstanceState::Stopping | InstanceState::ShuttingDown
                ),
                LookResult::Absent => false,
                LookResult::Unknown(error) => error.is_transient(),
            };
            (cancellation.is_superseded() || !is_under_way).then_some(())
        })
        .await;
    transition_end.ok_or_else(|| {
        Failure::new(
            Condition::DeadlinePassed,
            format!(
                "volume {} may leave node {} when its instance has come to rest; the next call looks again",
                pair.volume, pair.node
            ),
        )
    })
}
