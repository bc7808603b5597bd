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

/// Decides about a [`fence_candidate`] whose instance runs, so that there can be no other proof:
/// `Ok` with the instance that may be fenced, `Err` with the stable reason why it is left alone.
///
/// `when` is what EC2 must report of the instance. The caller applies the brake and the kill
/// switch.
pub fn decide_fence(facts: &NodeFacts, when: FenceWhen) -> Option<Result<&str, &'static str>> {
    let instance = fence_candidate(facts)?;
    let InstanceEvidence::Running { impaired } = facts.instances.get(instance)? else {
        return None;
    };
    Some(match (when, impaired) {
        (FenceWhen::Lost, _) | (FenceWhen::Impaired, Fact::Present(())) => Ok(instance),
        (FenceWhen::Impaired, Fact::Absent) => Err("checks-pass"),
        (FenceWhen::Impaired, Fact::Unknown) => Err("checks-unknown"),
    })
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

    type Decision<'a> = Option<Result<&'a str, &'static str>>;

    const FENCED: Decision<'_> = Some(Ok("i-1"));

    /// Returns what is decided where the checks must fail, and where they do not matter.
    fn decisions(facts: &NodeFacts) -> [Decision<'_>; 2] {
        [FenceWhen::Impaired, FenceWhen::Lost].map(|when| decide_fence(facts, when))
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
            let want = FENCED.filter(|_| want);
            assert_eq!(decisions(&facts), [want, want], "{name}");
        }
        let off = InstanceEvidence::Off { launched: String::new() };
        let (pass, unknown) = (Some(Err("checks-pass")), Some(Err("checks-unknown")));
        let evidence = [
            ("checks fail", running(Fact::Present(())), [FENCED, FENCED]),
            ("checks pass", running(Fact::Absent), [pass, FENCED]),
            ("no checks are known", running(Fact::Unknown), [unknown, FENCED]),
            ("F43: a stop that does not end", InstanceEvidence::NotOff, [None, None]),
            ("off", off, [None, None]),
        ];
        for (name, evidence, want) in evidence {
            let mut facts = impaired();
            facts.instances.insert("i-1".to_owned(), evidence);
            assert_eq!(decisions(&facts), want, "{name}");
            node(&mut facts).may_fence = false;
            assert_eq!(decisions(&facts), [None, None], "{name}");
        }
    }
}
