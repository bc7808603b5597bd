//! Tests whole nodes: their phases, and this driver's taint.

use super::*;

fn foreign_taint(facts: &mut NodeFacts) {
    node(facts).out_of_service = OutOfService::Foreign;
}

/// A second pod uses the second volume.
fn second_pod(facts: &mut NodeFacts) {
    facts.pods[0].claims.truncate(1);
    facts.pods.push(pod("db-1", &["vol-2"]));
}

/// The taint is about the present boot.
fn own_taint(facts: &mut NodeFacts) {
    node(facts).out_of_service = tainted("boot-1");
}

/// The taint is about a boot before the present one.
fn former_taint(facts: &mut NodeFacts) {
    node(facts).out_of_service = tainted("boot-0");
}

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
    let stopping: [Change; 3] = [here_not_off, one_waiting, other_waiting];
    check(
        FailoverMode::ProveFirst,
        &[
            ("ready", &[ready], Healthy, &[]),
            ("ready, whatever is answered", &[ready, here_off], Healthy, &[]),
            ("nothing is answered", &[], Suspect, &[]),
            ("nodes could not be listed", &[unlisted, here_off], Suspect, &[]),
            ("F9: the instance runs", &[both_unproven], Querying, &[]),
            ("F4: the instance is stopping", &[one_waiting], Querying, &[]),
            ("F43: a fence was refused, or did nothing", &[running, both_unproven], Querying, &[]),
            ("F43: a stop does not end", &stopping, Querying, &[]),
            ("F29, F30: throttled, or NotFound", &[here_not_off, one_unproven], Querying, &[]),
        ],
    );
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
    let two_pods: [Change; 5] = [here_off, pod_opted_out, pod_deleting, second_pod, both_proven];
    // F39: one of three nodes that use a volume at once is off.
    let shared: [Change; 3] = [here_off, share_volume, used_elsewhere];
    let taint: &[&str] = &["taint i-1 boot-1"];
    check(
        FailoverMode::ProveFirst,
        &[
            ("F1, F3: it is off", &[here_off], NodeProven, taint),
            ("another instance is off", &[elsewhere_off], Suspect, &[]),
            ("nothing of this driver is there", &[here_off, nothing_left], Suspect, &[]),
            ("opted out", &[here_off, opted_out], NodeProven, &[]),
            ("a pod is opted out", &[here_off, pod_opted_out], NodeProven, &[]),
            ("a pod is opted out, another is free", &two_pods, NodeProven, &["pod db-1"]),
            ("an opted-out pod ended", &[here_off, pod_opted_out, pod_ended], NodeProven, taint),
            ("F39: the volume is used elsewhere, too", &shared, NodeProven, taint),
        ],
    );
}

#[test]
fn foreign_taint_is_neither_duplicated_nor_removed() {
    check(
        FailoverMode::ProveFirst,
        &[
            ("F34: the instance runs", &[foreign_taint, both_unproven], Querying, &[]),
            ("the instance is off", &[foreign_taint, here_off], NodeProven, &[]),
            ("F35: the node is Ready", &[foreign_taint, ready, nothing_left], Healthy, &[]),
        ],
    );
}

/// Kubernetes evicts because of the taint; a pod that it has not evicted stays.
#[test]
fn evicted_pod_is_deleted_while_instance_is_off() {
    let mut start = dead();
    for change in [own_taint, here_off, both_proven] {
        change(&mut start);
    }
    for mode in [FailoverMode::ProveFirst, FailoverMode::Kep] {
        check_from(
            &start,
            mode,
            &[
                ("the pod was evicted", &[pod_deleting], Acting, &["pod db-0"]),
                ("the pod was not evicted", &[], Acting, &[]),
                ("the pod is opted out", &[pod_deleting, pod_opted_out], Acting, &[]),
                ("a volume is unproven", &[pod_deleting, other_unproven], Acting, &[]),
                ("the node is Ready", &[pod_deleting, ready], Acting, &[]),
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
    former_taint(&mut start);
    check_from(
        &start,
        FailoverMode::ProveFirst,
        &[
            ("not back", &[own_taint, nothing_left], Acting, &[]),
            ("the same boot", &[own_taint, ready, nothing_left], Acting, &[]),
            ("an attachment is left", &[ready, no_pods], Recovering, &[]),
            ("a pod is ending", &[ready, ending], Recovering, &[]),
            ("its attachment is being deleted", &[ready, tolerates, detaching], Recovering, &[]),
            ("it was made for another instance", &[ready, tolerates, elsewhere], Recovering, &[]),
            ("a pod that stays has ended", &[ready, tolerates, pod_ended], Recovering, &[]),
            ("a pod tolerates another taint", &[ready, tolerates_another], Recovering, &[]),
            ("only a pod that stays is left", &[ready, tolerates], Recovering, &["remove taint"]),
            ("nothing is left", &[ready, nothing_left], Recovering, &["remove taint"]),
        ],
    );
}
