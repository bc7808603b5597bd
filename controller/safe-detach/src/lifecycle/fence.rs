//! When an instance may be stopped, so that its node is proved dead.

use crate::facts::Fact;
use crate::lifecycle::{InstanceEvidence, NodeFacts, OutOfService, Readiness, eligible};

/// What EC2 must say of an instance before it is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceWhen {
    /// Its status checks fail: it hangs, or its host has failed.
    #[default]
    Impaired,
    /// It runs, whatever its checks say: one that is only cut off is stopped, too.
    Lost,
}

/// The instance that may be fenced, if one may.
///
/// All of it must hold: a person allows it for this node and has not asked to leave it alone; the node has not been Ready for long; EC2 says that its own
/// instance runs, so nothing else can prove anything, and is as `when` asks; and there is a pod that would move. Whether fencing is on at all, the
/// brake and the kill switch are the caller's.
pub fn fence(facts: &NodeFacts, when: FenceWhen) -> Option<&str> {
    let Fact::Present(node) = &facts.object else {
        return None;
    };
    let allowed = node.may_fence && !node.opted_out;
    let lost = node.ready == Readiness::NotReady && node.lost_for_long;
    let ours = matches!(node.out_of_service, OutOfService::Ours(_));
    let instance = node.instance.as_deref()?;
    let due = match (facts.instances.get(instance)?, when) {
        (InstanceEvidence::Running { .. }, FenceWhen::Lost) => true,
        (InstanceEvidence::Running { impaired }, FenceWhen::Impaired) => {
            *impaired == Fact::Present(())
        }
        (InstanceEvidence::Off { .. } | InstanceEvidence::NotOff, _) => false,
    };
    let mut pods = facts.pods.iter().filter(|pod| !pod.ended);
    let gains = pods.any(|pod| eligible(pod).is_ok());
    (allowed && lost && !ours && due && gains).then_some(instance)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lifecycle::step::tests::pod;
    use crate::lifecycle::{Claim, Node, Return};

    fn node(facts: &mut NodeFacts) -> &mut Node {
        match &mut facts.object {
            Fact::Present(node) => node,
            Fact::Absent | Fact::Unknown => panic!("a node is there"),
        }
    }

    #[test]
    fn each_condition_of_a_fence_has_a_row() {
        type Change = fn(&mut NodeFacts);
        let is = |f: &mut NodeFacts, evidence| drop(f.instances.insert("i-1".to_owned(), evidence));
        let rows: [(&str, Change, bool); 13] = [
            ("all of it", |_| (), true),
            ("nobody allows it", |f| node(f).may_fence = false, false),
            (
                "it is to be left alone",
                |f| node(f).opted_out = true,
                false,
            ),
            ("not long enough", |f| node(f).lost_for_long = false, false),
            (
                "F44: it is Ready again",
                |f| node(f).ready = Readiness::Ready,
                false,
            ),
            (
                "it has our taint",
                |f| {
                    node(f).out_of_service = OutOfService::Ours(Return {
                        instance: "i-1".to_owned(),
                        launched: String::new(),
                        boot: String::new(),
                    });
                },
                false,
            ),
            (
                "nothing is known of its instance",
                |f| f.instances.clear(),
                false,
            ),
            (
                "F32: another instance runs",
                |f| node(f).instance = Some("i-2".to_owned()),
                false,
            ),
            ("it has no instance", |f| node(f).instance = None, false),
            ("no pod would move", |f| f.pods.clear(), false),
            ("its pods have ended", |f| f.pods[0].ended = true, false),
            (
                "F39: its pods share their volumes with other nodes",
                |f| {
                    f.pods[0].claims = vec![Claim::Ours {
                        volume: "vol-1".to_owned(),
                        shared: true,
                    }];
                },
                false,
            ),
            ("its object is gone", |f| f.object = Fact::Absent, false),
        ];
        let facts = || NodeFacts {
            object: Fact::Present(Node {
                ready: Readiness::NotReady,
                instance: Some("i-1".to_owned()),
                boot: "boot-1".to_owned(),
                out_of_service: OutOfService::None,
                opted_out: false,
                may_fence: true,
                lost_for_long: true,
            }),
            attachments: Vec::new(),
            pods: vec![pod("db-0", &["vol-1"])],
            volumes: BTreeMap::new(),
            instances: [("i-1".to_owned(), running(Fact::Present(())))].into(),
        };
        for (name, change, want) in rows {
            let mut facts = facts();
            change(&mut facts);
            for when in [FenceWhen::Impaired, FenceWhen::Lost] {
                assert_eq!(fence(&facts, when).is_some(), want, "{name}, {when:?}");
            }
        }
        let off = InstanceEvidence::Off {
            launched: String::new(),
        };
        let evidence = [
            ("checks fail", running(Fact::Present(())), [true, true]),
            ("checks pass", running(Fact::Absent), [false, true]),
            ("no checks are known", running(Fact::Unknown), [false, true]),
            (
                "F43: a stop that does not end",
                InstanceEvidence::NotOff,
                [false, false],
            ),
            ("off", off, [false, false]),
        ];
        for (name, evidence, want) in evidence {
            let mut facts = facts();
            is(&mut facts, evidence);
            let got = [FenceWhen::Impaired, FenceWhen::Lost].map(|when| fence(&facts, when));
            assert_eq!(got.map(|fenced| fenced.is_some()), want, "{name}");
        }
    }

    fn running(impaired: Fact<()>) -> InstanceEvidence {
        InstanceEvidence::Running { impaired }
    }
}
