//! The states that are reached from everywhere when faults end.

use ebs_csi_safe_detach::{Mode, OldAgents, Power};

use super::{Agents, Fault, Hold, On, PodKind, Rules, World};
use crate::explore::Goal;

const DETACHED: Goal<World> = Goal {
    name: "L1, L3: on a node that runs, a volume that no pod needs there is detached, whatever was refused before",
    from: |w| w.instance_runs() && w.is_leaving() && w.pod.is_none_or(|pod| pod.on == On::B),
    reached: |w| w.attachment.is_none_or(|va| va.on == On::B),
};

const NEEDED_AGAIN: Goal<World> = Goal {
    name: "L1, L3: on a node that runs, a volume that is to go and that a pod needs there again is detached, or the pod runs",
    from: |w| w.instance_runs() && w.is_leaving() && w.is_wanted_on_a(),
    reached: |w| !w.is_leaving() || w.guest.hold == Hold::Mount,
};

const STAGED: Goal<World> = Goal {
    name: "L6: on a node that runs, a pod whose volume is to stay can use it, whatever was promised before",
    from: |w| w.instance_runs() && w.stays() && w.ec2.held == Some(On::A) && w.is_wanted_on_a(),
    reached: |w| w.guest.hold == Hold::Mount || !w.stays() || !w.is_wanted_on_a(),
};

const MOVED: Goal<World> = Goal {
    name: "L2: the pod of an instance that is off, or on its way there, runs elsewhere with its volume",
    from: |w| !matches!(w.ec2.power, Power::Running | Power::Pending) && !w.ec2.hibernated,
    reached: |w| {
        let (pod, va) = (w.pod.map(|pod| pod.on), w.attachment.map(|va| va.on));
        (pod, va, w.ec2.held) == (Some(On::B), Some(On::B), Some(On::B))
    },
};

const ENDED: Goal<World> = Goal {
    name: "L4: every call and every DetachVolume ends",
    from: |w| !w.is_idle(),
    reached: World::is_idle,
};

const UNTAINTED: Goal<World> = Goal {
    name: "L5: our taint is removed when the node is back",
    from: |w| w.has_own_taint() && w.instance_runs(),
    reached: |w| !w.has_own_taint(),
};

/// A pod that was created while its VolumeAttachment is being deleted waits for its detach.
const UNTAINTED_WITH_POD: Goal<World> = Goal {
    name: "L5: our taint is removed when the node is back, with the pod on it",
    from: |w| {
        let waits = w.attachment.is_some_and(|va| va.deleting) && w.is_pod_on_a();
        w.has_own_taint() && w.instance_runs() && !waits
    },
    reached: |w| !w.has_own_taint(),
};

/// Returns the goals that must stay in reach under these rules.
pub(crate) fn goals(rules: Rules) -> Vec<Goal<World>> {
    match rules.pod {
        PodKind::Eligible => {}
        // The taint does not stay because of a pod that does not move.
        PodKind::Tolerates => return vec![UNTAINTED_WITH_POD],
        // A pod that failover leaves alone need not move.
        _ => return Vec::new(),
    }
    let mut goals = vec![ENDED];
    let has_page = matches!(rules.agents, Agents::Stay | Agents::Replaced);
    if has_page || rules.old_agents == OldAgents::KubeletReport || rules.mode == Mode::Ec2Only {
        goals.push(DETACHED);
    }
    // Kubelet's report says for ever that it wants such a volume: known, and planted.
    if has_page || rules.mode == Mode::Ec2Only || rules.fault == Fault::NoPromise {
        goals.push(NEEDED_AGAIN);
    }
    // A downgraded agent could leave a promise that nothing lifts, but it does not read it either.
    goals.push(STAGED);
    if rules.replicas > 0 {
        goals.push(MOVED);
    }
    if rules.replicas > 0 && rules.boots > 0 {
        goals.push(UNTAINTED);
    }
    goals
}
