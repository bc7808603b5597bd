//! Tests whole nodes: their phases, and this driver's taint.

use super::*;

const FOREIGN_TAINT: Change = |facts| node(facts).out_of_service = OutOfService::Foreign;

/// A second pod uses the second volume.
const SECOND_POD: Change = |facts| {
    facts.pods[0].claims.truncate(1);
    facts.pods.push(pod("db-1", &["vol-2"]));
};

/// The taint is about the present boot.
const OWN_TAINT: Change = |facts| node(facts).out_of_service = tainted("boot-1");

/// The taint is about a boot before the present one.
const FORMER_TAINT: Change = |facts| node(facts).out_of_service = tainted("boot-0");

/// Proof counts neither for a Ready node nor while the nodes cannot be listed.
#[test]
fn node_without_usable_proof_is_left_alone() {
    let running = |f: &mut NodeFacts| {
        set_instance(f, HERE, InstanceEvidence::Running { impaired: Fact::Unknown });
    };
    let one_waiting = |f: &mut NodeFacts| answer(f, "vol-1", VolumeEvidence::Waiting);
    let other_waiting = |f: &mut NodeFacts| answer(f, "vol-2", VolumeEvidence::Waiting);
    let unlisted = |f: &mut NodeFacts| f.object = Fact::Unknown;
    // F43: a fence was accepted, and the stop does not end.
    let stopping: [Change; 3] = [HERE_NOT_OFF, one_waiting, other_waiting];
    check(&[
        ("ready", &[READY], Healthy, &[]),
        ("ready, whatever is answered", &[READY, HERE_OFF], Healthy, &[]),
        ("nothing is answered", &[], Suspect, &[]),
        ("nodes could not be listed", &[unlisted, HERE_OFF], Suspect, &[]),
        ("F9: the instance runs", &[BOTH_UNPROVEN], Querying, &[]),
        ("F4: the instance is stopping", &[one_waiting], Querying, &[]),
        ("F43: a fence was refused, or did nothing", &[running, BOTH_UNPROVEN], Querying, &[]),
        ("F43: a stop does not end", &stopping, Querying, &[]),
        ("F29, F30: throttled, or NotFound", &[HERE_NOT_OFF, ONE_UNPROVEN], Querying, &[]),
    ]);
}

/// An opted-out node, and a node without this driver's pods and attachments, get no taint.
#[test]
fn instance_off_taints_its_own_node() {
    let opted_out = |f: &mut NodeFacts| node(f).opted_out = true;
    let used_elsewhere = |f: &mut NodeFacts| {
        let key = (ELSEWHERE.to_owned(), "vol-1".to_owned());
        f.volumes.insert(key, VolumeEvidence::Unproven);
    };
    // An opted-out pod is being deleted, and another pod's volume is proved free.
    let two_pods: [Change; 5] = [HERE_OFF, POD_OPTED_OUT, POD_DELETING, SECOND_POD, BOTH_PROVEN];
    // F39: one of three nodes that use a volume at once is off.
    let shared: [Change; 3] = [HERE_OFF, share_volume, used_elsewhere];
    let taint: &[&str] = &["taint i-1 boot-1"];
    check(&[
        ("F1, F3: it is off", &[HERE_OFF], NodeProven, taint),
        ("another instance is off", &[ELSEWHERE_OFF], Suspect, &[]),
        ("nothing of this driver is there", &[HERE_OFF, NOTHING_LEFT], Suspect, &[]),
        ("opted out", &[HERE_OFF, opted_out], NodeProven, &[]),
        ("a pod is opted out", &[HERE_OFF, POD_OPTED_OUT], NodeProven, &[]),
        ("a pod is opted out, another is free", &two_pods, NodeProven, &["pod db-1"]),
        ("an opted-out pod ended", &[HERE_OFF, POD_OPTED_OUT, POD_ENDED], NodeProven, taint),
        ("F39: the volume is used elsewhere, too", &shared, NodeProven, taint),
    ]);
}

#[test]
fn foreign_taint_is_neither_duplicated_nor_removed() {
    check(&[
        ("F34: the instance runs", &[FOREIGN_TAINT, BOTH_UNPROVEN], Querying, &[]),
        ("the instance is off", &[FOREIGN_TAINT, HERE_OFF], NodeProven, &[]),
        ("F35: the node is Ready", &[FOREIGN_TAINT, READY, NOTHING_LEFT], Healthy, &[]),
    ]);
}

/// Kubernetes evicts because of the taint; a pod that it has not evicted stays.
#[test]
fn evicted_pod_is_deleted_while_instance_is_off() {
    let mut start = dead();
    for change in [OWN_TAINT, HERE_OFF, BOTH_PROVEN] {
        change(&mut start);
    }
    for mode in [FailoverMode::ProveFirst, FailoverMode::Kep] {
        check_from(
            &start,
            mode,
            &[
                ("the pod was evicted", &[POD_DELETING], Acting, &["pod db-0"]),
                ("the pod was not evicted", &[], Acting, &[]),
                ("the pod is opted out", &[POD_DELETING, POD_OPTED_OUT], Acting, &[]),
                ("a volume is unproven", &[POD_DELETING, OTHER_UNPROVEN], Acting, &[]),
                ("the node is Ready", &[POD_DELETING, READY], Acting, &[]),
            ],
        );
    }
}

/// The node must be Ready under another boot, with no attachment left that no pod on it may keep,
/// and no pod still ending.
#[test]
fn driver_taint_is_removed_after_clean_new_boot() {
    let ending: Change = |f| {
        f.attachments.clear();
        f.pods[0].deleting = true;
    };
    let tolerates_another: Change = |f| {
        let (key, effect) = ("node.kubernetes.io/unreachable".to_owned(), String::new());
        f.pods[0].tolerations = vec![Toleration { key, effect }];
    };
    let detaching: Change = |f| f.attachments[0].deleting = true;
    let elsewhere: Change = |f| f.attachments[0].instance = Some(ELSEWHERE.to_owned());
    let mut start = dead();
    FORMER_TAINT(&mut start);
    check_from(
        &start,
        FailoverMode::ProveFirst,
        &[
            ("not back", &[OWN_TAINT, NOTHING_LEFT], Acting, &[]),
            ("the same boot", &[OWN_TAINT, READY, NOTHING_LEFT], Acting, &[]),
            ("an attachment is left", &[READY, NO_PODS], Recovering, &[]),
            ("a pod is ending", &[READY, ending], Recovering, &[]),
            ("its attachment is being deleted", &[READY, TOLERATES, detaching], Recovering, &[]),
            ("it was made for another instance", &[READY, TOLERATES, elsewhere], Recovering, &[]),
            ("a pod that stays has ended", &[READY, TOLERATES, POD_ENDED], Recovering, &[]),
            ("a pod tolerates another taint", &[READY, tolerates_another], Recovering, &[]),
            ("only a pod that stays is left", &[READY, TOLERATES], Recovering, &["remove taint"]),
            ("nothing is left", &[READY, NOTHING_LEFT], Recovering, &["remove taint"]),
        ],
    );
}
