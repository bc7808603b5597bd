//! Verdicts as text.

use ebs_csi_safe_detach::{Evidence, Fact, InstanceFact, Refusal, Verdict, Waiting};
use ebs_csi_wire::InstanceId;

use crate::request::Pair;

/// Returns why the volume stays. The text has no time or count, since it is written to the status
/// of a VolumeAttachment.
pub(crate) fn refusal_text(why: Refusal, pair: &Pair, instance: &Fact<InstanceFact>) -> String {
    format!(
        "SafeDetachRefused/{why}: volume {} stays at node {}, whose instance {}; {}",
        pair.volume,
        pair.node,
        state_of(instance),
        why.next_step()
    )
}

pub(super) fn of_volume(verdict: Verdict, pair: &Pair, instance: &Fact<InstanceFact>) -> String {
    let Pair { volume, node } = pair;
    match verdict {
        Verdict::Done => format!("EC2 shows no attachment of volume {volume} to node {node}"),
        Verdict::Safe(evidence) => {
            format!("volume {volume} may leave node {node}: {}", evidence_text(evidence))
        }
        Verdict::Wait(Waiting::Leaving) => {
            format!("volume {volume} is on its way off node {node}; nothing more is sent")
        }
        Verdict::Wait(Waiting::Transition) => format!(
            "volume {volume} may leave node {node} when its instance, which {}, has come to rest",
            state_of(instance)
        ),
        Verdict::Wait(Waiting::Promise) => {
            format!(
                "volume {volume} may leave node {node} when the node has promised not to use it"
            )
        }
        Verdict::Refuse(why) => refusal_text(why, pair, instance),
    }
}

pub(super) fn of_instance(
    verdict: Verdict,
    id: &InstanceId,
    instance: &Fact<InstanceFact>,
) -> String {
    let state = state_of(instance);
    match verdict {
        Verdict::Done | Verdict::Safe(_) => {
            format!("volumes may leave instance {id}, which {state}")
        }
        Verdict::Wait(_) => format!("instance {id} {state}; it comes to rest by itself"),
        Verdict::Refuse(why) => format!(
            "SafeDetachRefused/{why}: volumes stay at instance {id}, which {state}; {}",
            why.next_step()
        ),
    }
}

fn evidence_text(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Terminated => "its instance is terminated",
        Evidence::Stopped => "its instance is stopped",
        Evidence::Fenced => "this driver has taken its instance off",
        Evidence::NodeAnswer => "its node's kernel does not hold it",
        Evidence::KubeletReport => "its node's kubelet has released it",
        Evidence::Trusted => "of a running instance the orchestrator's word is taken",
        Evidence::OverrideOrder => "an override order names this attachment",
    }
}

fn state_of(instance: &Fact<InstanceFact>) -> String {
    match instance {
        Fact::Present(instance) => format!("is {}", instance.power.label()),
        Fact::Absent => "is not known to EC2".to_owned(),
        Fact::Unknown => "cannot be seen".to_owned(),
    }
}
