//! One look at an instance, as a fact for the decision about detaches.

use ebs_csi_ec2::{Hibernation, Instance, InstanceState, LookResult};
use ebs_csi_safe_detach::{Fact, InstanceFact, Power};

/// Converts a look at an instance to a fact.
pub(super) fn instance_look_to_fact(seen: &LookResult<Instance>) -> Fact<InstanceFact> {
    match seen {
        LookResult::Present(instance) => Fact::Present(instance_fact(instance)),
        LookResult::Absent => Fact::Absent,
        LookResult::Unknown(_) => Fact::Unknown,
    }
}

fn instance_fact(instance: &Instance) -> InstanceFact {
    InstanceFact {
        power: match instance.state {
            InstanceState::Pending => Power::Pending,
            InstanceState::Running => Power::Running,
            InstanceState::ShuttingDown => Power::ShuttingDown,
            InstanceState::Terminated => Power::Terminated,
            InstanceState::Stopping => Power::Stopping,
            InstanceState::Stopped => Power::Stopped,
            InstanceState::Other(_) => Power::Strange,
        },
        hibernation: match instance.hibernation {
            Hibernation::No => Fact::Absent,
            Hibernation::Yes => Fact::Present(()),
            Hibernation::Unclear => Fact::Unknown,
        },
    }
}
