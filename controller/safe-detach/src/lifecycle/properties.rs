//! What holds for every state of a node, not only for the expected ones.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;

use super::brake::{NodeState, admit};
use super::*;
use crate::facts::Fact;

const INSTANCES: [&str; 2] = ["i-1", "i-2"];
const VOLUMES: [&str; 3] = ["vol-1", "vol-2", "vol-3"];

fn text<const N: usize>(of: [&'static str; N]) -> impl Strategy<Value = String> {
    select(of.to_vec()).prop_map(str::to_owned)
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn claims() -> impl Strategy<Value = Claim> {
    prop_oneof![
        8 => (text(VOLUMES), rarely()).prop_map(|(volume, shared)| Claim::Ours { volume, shared }),
        1 => Just(Claim::Foreign),
        1 => Just(Claim::Unknown),
    ]
}

fn pods() -> impl Strategy<Value = Pod> {
    let flags = (any::<bool>(), rarely(), rarely(), rarely(), rarely(), rarely());
    (prop::collection::vec(claims(), 0..3), flags).prop_map(|(claims, flags)| {
        let (deleting, ended, tolerates, of_daemon_set, mirror, opted_out) = flags;
        let tolerations = tolerates.then(Toleration::default).into_iter().collect();
        Pod {
            deleting,
            ended,
            claims,
            tolerations,
            of_daemon_set,
            mirror,
            opted_out,
            ..Pod::default()
        }
    })
}

fn attachments() -> impl Strategy<Value = Attachment> {
    (text(VOLUMES), prop::option::of(text(INSTANCES)), any::<bool>(), any::<bool>()).prop_map(
        |(volume, instance, deleting, retry_requested)| Attachment {
            volume,
            instance,
            deleting,
            retry_requested,
            ..Attachment::default()
        },
    )
}

fn objects() -> impl Strategy<Value = Fact<Node>> {
    let boots = || text(["boot-1", "boot-2"]);
    let ours = (text(INSTANCES), boots()).prop_map(|(instance, boot)| {
        OutOfService::Ours(TaintedBoot { instance, launched: String::new(), boot })
    });
    let taints =
        prop_oneof![3 => Just(OutOfService::None), 1 => Just(OutOfService::Foreign), 1 => ours];
    let ready = prop::bool::weighted(0.25);
    let instance = prop::option::weighted(0.9, text(INSTANCES));
    let nodes = (ready, instance, boots(), taints, rarely()).prop_map(
        |(ready, instance, boot, out_of_service, opted_out)| {
            let node = Node { ready, instance, boot, out_of_service, opted_out, ..Node::default() };
            Fact::Present(node)
        },
    );
    prop_oneof![6 => nodes, 2 => Just(Fact::Absent), 1 => Just(Fact::Unknown)]
}

fn facts() -> impl Strategy<Value = NodeFacts> {
    let evidence =
        select(vec![VolumeEvidence::Proven, VolumeEvidence::Waiting, VolumeEvidence::Unproven]);
    let power = select(vec![
        InstanceEvidence::Off { launched: String::new() },
        InstanceEvidence::Running { impaired: Fact::Unknown },
        InstanceEvidence::NotOff,
    ]);
    (
        objects(),
        prop::collection::vec(attachments(), 0..4),
        prop::collection::vec(pods(), 0..4),
        prop::collection::btree_map((text(INSTANCES), text(VOLUMES)), evidence, 0..6),
        prop::collection::btree_map(text(INSTANCES), power, 0..3),
    )
        .prop_map(|(object, mut attachments, mut pods, volumes, instances)| {
            // A uid belongs to one object:
            // <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#uids>.
            for (number, attachment) in attachments.iter_mut().enumerate() {
                attachment.object.uid = format!("uid-{number}");
            }
            for (number, pod) in pods.iter_mut().enumerate() {
                pod.object.uid = format!("uid-{number}");
            }
            NodeFacts { object, attachments, pods, volumes, instances }
        })
}

fn modes() -> impl Strategy<Value = FailoverMode> {
    select(vec![FailoverMode::ProveFirst, FailoverMode::Kep])
}

fn pod_of<'a>(facts: &'a NodeFacts, object: &ObjectVersion) -> &'a Pod {
    facts
        .pods
        .iter()
        .find(|pod| pod.object == *object)
        .expect("an intent names a pod that was seen")
}

fn node_of(facts: &NodeFacts) -> &Node {
    match &facts.object {
        Fact::Present(node) => node,
        Fact::Absent | Fact::Unknown => panic!("a taint without a node"),
    }
}

/// Returns the intents that only proof permits.
fn acts(step: &Transition) -> BTreeSet<String> {
    let braked = step.intents.iter().filter(|intent| intent.is_braked());
    braked.map(|intent| format!("{intent:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// S8: in `prove-first` a pod is deleted only when every volume of it is proved free at the
    /// node's instance.
    #[test]
    fn pod_deletion_needs_proof_of_all_volumes(facts in facts()) {
        for intent in step(&facts, FailoverMode::ProveFirst).intents {
            if let Intent::DeletePod(object) = intent {
                let here = facts.instance();
                prop_assert!(pod_of(&facts, &object).volumes().all(|v| facts.is_proven(here, v)));
            }
        }
    }

    /// S9: the taint is set only about this node's own instance, when that is off, on a node that
    /// is not Ready and has no such taint of anybody.
    #[test]
    fn out_of_service_taint_needs_instance_off(facts in facts(), mode in modes()) {
        for intent in step(&facts, mode).intents {
            if let Intent::AddTaint(about) = intent {
                let node = node_of(&facts);
                prop_assert!(!node.ready);
                prop_assert_eq!(&node.out_of_service, &OutOfService::None);
                prop_assert!(!node.opted_out);
                // S10: Kubernetes evicts every pod of a node with the taint.
                let mut opted_out = facts.pods.iter().filter(|pod| pod.opted_out);
                prop_assert!(opted_out.all(|pod| pod.ended && !pod.deleting));
                prop_assert_eq!(node.instance.as_ref(), Some(&about.instance));
                prop_assert_eq!(&node.boot, &about.boot);
                let power = &facts.instances[&about.instance];
                let is_off = matches!(power, InstanceEvidence::Off { .. });
                prop_assert!(is_off);
                // Each attachment that the taint makes Kubernetes detach is of that instance, or
                // proved free at its own instance.
                let touched = facts.attachments.iter().filter(|a| a.instance.is_some());
                let mut others = touched.filter(|a| a.instance != node.instance);
                prop_assert!(others.all(|a| facts.is_proven(a.instance.as_deref(), &a.volume)));
            }
        }
    }

    /// A taint of anybody else is never removed; this driver's is removed only when another boot is
    /// Ready and nothing of the former one is left.
    #[test]
    fn taint_removal_needs_new_ready_boot_without_leftovers(facts in facts(), mode in modes()) {
        if step(&facts, mode).intents.contains(&Intent::RemoveTaint) {
            let node = node_of(&facts);
            let OutOfService::Ours(about) = &node.out_of_service else {
                panic!("somebody else's taint");
            };
            prop_assert!(node.ready);
            prop_assert_ne!(&about.boot, &node.boot);
            prop_assert!(facts.pods.iter().all(|pod| !pod.deleting));
            // What is attached is used by a pod that stays.
            for attachment in &facts.attachments {
                prop_assert!(!attachment.deleting);
                prop_assert_eq!(&attachment.instance, &node.instance);
                let mut users = facts.pods.iter().filter(|pod| !pod.ended);
                let stays = |pod: &Pod| {
                    !pod.tolerations.is_empty() && pod.volumes().any(|v| v == attachment.volume)
                };
                prop_assert!(users.any(stays));
            }
        }
    }

    /// S10: whatever the mode and the evidence, these pods are left alone.
    #[test]
    fn pods_that_are_not_eligible_are_left_alone(facts in facts(), mode in modes()) {
        for intent in step(&facts, mode).intents {
            if let Intent::DeletePod(object) = intent {
                prop_assert_eq!(eligible(pod_of(&facts, &object)), Ok(()));
            }
        }
    }

    /// S16 on this side: an attachment is deleted after its pods, and never for an instance that it
    /// was not made for.
    #[test]
    fn attachment_is_deleted_only_after_its_pods(facts in facts(), mode in modes()) {
        for intent in step(&facts, mode).intents {
            if let Intent::DeleteAttachment(object) = intent {
                let a = facts.attachments.iter().find(|a| a.object == object).expect("seen");
                let users = facts.pods.iter().filter(|pod| !pod.ended || pod.deleting);
                prop_assert!(users.flat_map(Pod::volumes).all(|v| v != a.volume));
                if let Fact::Present(node) = &facts.object {
                    prop_assert_eq!(&a.instance, &node.instance);
                    prop_assert!(!node.ready);
                }
                if mode == FailoverMode::ProveFirst {
                    prop_assert!(facts.is_proven(a.instance.as_deref(), &a.volume));
                }
            }
        }
    }

    /// S17 on this side: without an answer, no act is permitted that was not permitted with it. The
    /// exception: without the proof about the node itself, its volumes' own proofs still permit
    /// acts.
    #[test]
    fn missing_answer_permits_no_additional_action(facts in facts(), mode in modes()) {
        let with = acts(&step(&facts, mode));
        for key in facts.volumes.keys() {
            let mut less = facts.clone();
            less.volumes.remove(key);
            let acts = acts(&step(&less, mode));
            prop_assert!(acts.is_subset(&with) || with.iter().any(|act| act.starts_with("AddTaint")));
        }
        let (volumes, instances) = Default::default();
        let silent = NodeFacts { volumes, instances, ..facts };
        if mode == FailoverMode::ProveFirst {
            prop_assert!(acts(&step(&silent, mode)).is_empty());
        }
    }

    /// S15: at most the cluster's share and each zone's share, including earlier acts; nothing when
    /// all nodes are suspect.
    #[test]
    fn brake_limits_actions_per_cluster_and_zone(
        nodes in prop::collection::vec((0..4_usize, any::<bool>(), prop::bool::weighted(0.1), any::<bool>()), 0..80)
    ) {
        let all: Vec<NodeState> = nodes
            .iter()
            .enumerate()
            .map(|(number, (zone, suspect, acted, wanted))| NodeState {
                name: format!("node-{number}"),
                zone: format!("zone-{zone}"),
                suspect: *suspect,
                acted: *acted,
                wanted: *wanted,
            })
            .collect();
        let admitted = admit(&all);
        let is_fresh = |s: &&NodeState| !s.acted && admitted.nodes.contains(&s.name);
        let fresh: Vec<&NodeState> = all.iter().filter(is_fresh).collect();
        let acted = all.iter().filter(|s| s.acted).count();
        let share = (all.len() / 20).max(1);
        prop_assert!(fresh.is_empty() || acted + fresh.len() <= share);
        for zone in 0..4 {
            let zone = format!("zone-{zone}");
            let of_zone = all.iter().filter(|s| s.zone == zone);
            let taken = of_zone.clone().filter(|s| s.acted).count();
            let more = fresh.iter().filter(|s| s.zone == zone).count();
            prop_assert!(more == 0 || taken + more <= (of_zone.count() / 3).max(1));
        }
        if all.len() > 2 && all.iter().all(|s| s.suspect) {
            let zones: BTreeSet<&str> = all.iter().map(|s| s.zone.as_str()).collect();
            prop_assert!(zones.len() == 1 || admitted.nodes.is_empty());
        }
        prop_assert!(admitted.nodes.iter().all(|n| all.iter().any(|s| s.wanted && s.name == *n)));
    }
}
