//! When an instance may be stopped to prove that its node is dead.

use crate::facts::Fact;
use crate::lifecycle::{InstanceEvidence, NodeFacts, OutOfService, eligible};

/// The state that EC2 must report for an instance before it is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FenceWhen {
    /// The instance's status checks fail: the instance hangs, or its host has failed.
    #[default]
    Impaired,
    /// The instance runs, whatever its status checks report: an instance that is only disconnected
    /// is stopped too.
    Lost,
}

/// Returns the instance that may be fenced if EC2's answers about it allow that.
///
/// All of the following must hold: a person permits the fence for this node and has not opted
/// the node out; the node has been not Ready for long enough, and does not carry this
/// driver's out-of-service taint; and there is a pod that would move. The caller decides whether
/// fencing is on at all.
pub fn fence_candidate(facts: &NodeFacts) -> Option<&str> {
    let Fact::Present(node) = &facts.object else {
        return None;
    };
    let is_permitted = node.may_fence && !node.opted_out;
    let is_lost = !node.ready && node.lost_for_long;
    let has_own_taint = matches!(node.out_of_service, OutOfService::Ours(_));
    let instance = node.instance.as_deref()?;
    let mut pods = facts.pods.iter().filter(|pod| !pod.ended);
    let has_movable_pod = pods.any(|pod| eligible(pod).is_ok());
    (is_permitted && is_lost && !has_own_taint && has_movable_pod).then_some(instance)
}

/// Returns the instance that may be fenced, if there is one.
///
/// Besides the conditions of [`fence_candidate`], EC2 must report that the node's own instance
/// runs, so that there can be no other proof, and that the instance is as `when` requires. The
/// caller applies the brake and the kill switch.
pub fn instance_to_fence(facts: &NodeFacts, when: FenceWhen) -> Option<&str> {
    let instance = fence_candidate(facts)?;
    let is_due = match (facts.instances.get(instance)?, when) {
        (InstanceEvidence::Running { .. }, FenceWhen::Lost) => true,
        (InstanceEvidence::Running { impaired }, FenceWhen::Impaired) => {
            *impaired == Fact::Present(())
        }
        (InstanceEvidence::Off { .. } | InstanceEvidence::NotOff, _) => false,
    };
    is_due.then_some(instance)
}

/// Returns the stable reason why a running instance that [`fence_candidate`] is left alone; `None`
/// when it is not left alone, or when another rule applies.
pub fn reason_left_alone(facts: &NodeFacts, when: FenceWhen) -> Option<&'static str> {
    match (facts.instances.get(fence_candidate(facts)?)?, when) {
        (InstanceEvidence::Running { impaired: Fact::Absent }, FenceWhen::Impaired) => {
            Some("checks-pass")
        }
        (InstanceEvidence::Running { impaired: Fact::Unknown }, FenceWhen::Impaired) => {
            Some("checks-unknown")
        }
        (_, FenceWhen::Impaired | FenceWhen::Lost) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Node;
    use crate::lifecycle::step::tests::{node, pod, share_volume, tainted};

    fn running(impaired: Fact<()>) -> InstanceEvidence {
        InstanceEvidence::Running { impaired }
    }

    /// Returns the facts of a lost node whose running instance fails its status checks.
    fn impaired() -> NodeFacts {
        NodeFacts {
            object: Fact::Present(Node {
                instance: Some("i-1".to_owned()),
                may_fence: true,
                lost_for_long: true,
                ..Node::default()
            }),
            pods: vec![pod("db-0", &["vol-1"])],
            instances: [("i-1".to_owned(), running(Fact::Present(())))].into(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn fence_needs_every_condition_and_running_instance() {
        type Change = fn(&mut NodeFacts);
        let rows: [(&str, Change, bool); 13] = [
            ("all conditions hold", |_| (), true),
            ("nobody permits it", |f| node(f).may_fence = false, false),
            ("the node is opted out", |f| node(f).opted_out = true, false),
            ("not long enough", |f| node(f).lost_for_long = false, false),
            ("F44: it is Ready again", |f| node(f).ready = true, false),
            ("it has our taint", |f| node(f).out_of_service = tainted("boot-1"), false),
            ("nothing is known of its instance", |f| f.instances.clear(), false),
            ("F32: another instance runs", |f| node(f).instance = Some("i-2".to_owned()), false),
            ("it has no instance", |f| node(f).instance = None, false),
            ("no pod would move", |f| f.pods.clear(), false),
            ("its pods have ended", |f| f.pods[0].ended = true, false),
            ("F39: its pods share their volumes with other nodes", share_volume, false),
            ("its object is gone", |f| f.object = Fact::Absent, false),
        ];
        for (name, change, want) in rows {
            let mut facts = impaired();
            change(&mut facts);
            for when in [FenceWhen::Impaired, FenceWhen::Lost] {
                assert_eq!(instance_to_fence(&facts, when).is_some(), want, "{name}, {when:?}");
            }
        }
        let off = InstanceEvidence::Off { launched: String::new() };
        let evidence = [
            ("checks fail", running(Fact::Present(())), [true, true], None),
            ("checks pass", running(Fact::Absent), [false, true], Some("checks-pass")),
            ("no checks are known", running(Fact::Unknown), [false, true], Some("checks-unknown")),
            ("F43: a stop that does not end", InstanceEvidence::NotOff, [false, false], None),
            ("off", off, [false, false], None),
        ];
        for (name, evidence, want, why) in evidence {
            let mut facts = impaired();
            facts.instances.insert("i-1".to_owned(), evidence);
            let got =
                [FenceWhen::Impaired, FenceWhen::Lost].map(|when| instance_to_fence(&facts, when));
            assert_eq!(got.map(|fenced| fenced.is_some()), want, "{name}");
            assert_eq!(reason_left_alone(&facts, FenceWhen::Impaired), why, "{name}");
            assert_eq!(reason_left_alone(&facts, FenceWhen::Lost), None, "{name}");
            node(&mut facts).may_fence = false;
            assert_eq!(reason_left_alone(&facts, FenceWhen::Impaired), None, "{name}");
        }
    }
}
