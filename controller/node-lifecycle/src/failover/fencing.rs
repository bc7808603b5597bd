//! Which instances are powered off, whose status checks are queried for that, and which are left
//! alone and why.

use std::time::Instant;

use ebs_csi_proto::lock;
use ebs_csi_proto::safe_detach::fence_request::Mode as FenceMode;
use ebs_csi_safe_detach::lifecycle::{
    FenceWhen, Intent, NodeFacts, Transition, decide_fence, fence_candidate,
};

use super::Failover;
use crate::cluster::Suspect;
use crate::events::EventReason;
use crate::flags::Fence;

/// How the instances of lost nodes are treated.
#[derive(Clone, Copy, Debug)]
pub struct Fencing {
    /// Whether, and how, the instances are powered off.
    pub power_off: Fence,
    /// What EC2 must report about the instances.
    pub when: FenceWhen,
}

impl Fencing {
    fn mode(self) -> Option<FenceMode> {
        match self.power_off {
            Fence::Off => None,
            Fence::Stop => Some(FenceMode::Stop),
            Fence::Terminate => Some(FenceMode::Terminate),
        }
    }

    pub(super) fn instance_to_fence<'a>(
        self,
        facts: &'a NodeFacts,
        step: &Transition,
    ) -> Option<(&'a str, FenceMode)> {
        let mode = self.mode()?;
        // Acts that follow from a proof come first.
        if step.intents.iter().any(Intent::is_braked) {
            return None;
        }
        Some((decide_fence(facts, self.when)?.ok()?, mode))
    }

    /// Returns the instance whose status checks decide; `None` where they make no difference, so
    /// that they cost no request.
    pub(super) fn instance_to_check(self, facts: &NodeFacts) -> Option<&str> {
        self.mode()?;
        match self.when {
            FenceWhen::Lost => None,
            FenceWhen::Impaired => fence_candidate(facts),
        }
    }

    /// Returns why a running instance that may be fenced is not fenced, as a stable label.
    pub(super) fn reason_left_alone(self, facts: &NodeFacts) -> Option<&'static str> {
        self.mode()?;
        decide_fence(facts, self.when)?.err()
    }
}

/// Returns the reason of [`Fencing::reason_left_alone`] as text, with EC2's report.
pub(super) fn fence_held_note(why: &str, checks: &str) -> String {
    let why = match why {
        "checks-pass" => "its node is only cut off (--fence-when=impaired)",
        _ => "nobody knows whether it is impaired (--fence-when=impaired)",
    };
    format!("the instance is not powered off: {why}; {checks}")
}

impl Failover {
    pub(super) async fn fence(&self, suspect: &Suspect, instance: &str, power_off: FenceMode) {
        if !self.context.leader.is_leader() {
            return;
        }
        let reason = format!("node {} is not heard of", suspect.name);
        let only_impaired = self.fencing.when == FenceWhen::Impaired;
        let fenced = self.context.controller.fence(instance, power_off, only_impaired, &reason);
        match fenced.await {
            Ok(()) => {
                self.context.metrics.count_act("fence", "done");
                lock(&self.episodes).record_fence(&suspect.name, Instant::now());
                let note = format!(
                    "instance {instance} is being powered off ({})",
                    power_off.as_str_name()
                );
                self.send_event(suspect, EventReason::Fenced, &note);
            }
            Err(status) => {
                self.context.metrics.count_act("fence", "failed");
                let note = format!("instance {instance} was not fenced: {}", status.message());
                self.send_event(suspect, EventReason::FenceFailed, &note);
            }
        }
    }
}
