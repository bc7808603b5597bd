//! Tests whole nodes: their phases, and this driver's taint.

use super::*;

fn foreign_taint(facts: &mut NodeFacts) {
    node(facts).out_of_service = OutOfService::Foreign;
}

fn unreachable() -> Vec<Toleration> {
    let (key, effect) = ("node.kubernetes.io/unreachable".to_owned(), String::new());
    vec![Toleration { key, effect }]
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
    let one_waiting = |f: &mut NodeFacts| answer(f, "vol-1", Evidence::Waiting);
    let other_waiting = |f: &mut NodeFacts| answer(f, "vol-2", Evidence::Waiting);
    let unlisted = |f: &mut NodeFacts| f.object = Fact::Unknown;
    check(
        FailoverMode::ProveFirst,
        &[
            ("ready", &[ready], Phase::Healthy, &[]),
            ("ready, whatever is answered", &[ready, here_off], Phase::Healthy, &[]),
            ("nothing is answered", &[], Phase::Suspect, &[]),
            ("nodes could not be listed", &[unlisted, here_off], Phase::Suspect, &[]),
            ("F9: the instance runs", &[both_unproven], Phase::Querying, &[]),
            ("F4: the instance is stopping", &[one_waiting], Phase::Querying, &[]),
            (
                "F43: a fence was refused, or did nothing: the instance runs",
                &[running, both_unproven],
                Phase::Querying,
                &[],
            ),
            (
                "F43: a fence was accepted, and the stop does not end",
                &[here_not_off, one_waiting, other_waiting],
                Phase::Querying,
                &[],
            ),
            (
                "F29, F30: throttled, or NotFound: neither proves anything",
                &[here_not_off, one_unproven],
                Phase::Querying,
                &[],
            ),
        ],
    );
}

/// An opted-out node, and a node without this driver's pods and attachments, get no taint.
#[test]
fn instance_off_taints_its_own_node() {
    let opted_out = |f: &mut NodeFacts| node(f).opted_out = true;
    let used_elsewhere = |f: &mut NodeFacts| {
        let key = (ELSEWHERE.to_owned(), "vol-1".to_owned());
        f.volumes.insert(key, Evidence::Unproven);
    };
    check(
        FailoverMode::ProveFirst,
        &[
            ("F1, F3: it is off", &[here_off], Phase::NodeProven, &["taint i-1 boot-1"]),
            ("another instance is off", &[elsewhere_off], Phase::Suspect, &[]),
            (
                "off, and nothing of this driver is there",
                &[here_off, no_attachments, no_pods],
                Phase::Suspect,
                &[],
            ),
            ("off, and opted out", &[here_off, opted_out], Phase::NodeProven, &[]),
            ("off, and a pod is opted out", &[here_off, opted_out_pod], Phase::NodeProven, &[]),
            (
                "off, an opted-out pod is being deleted, and another pod's volume is proved free",
                &[here_off, opted_out_pod, pod_deleting, second_pod, both_proven],
                Phase::NodeProven,
                &["pod db-1"],
            ),
            (
                "off, and an opted-out pod has ended",
                &[here_off, opted_out_pod, |f| f.pods[0].ended = true],
                Phase::NodeProven,
                &["taint i-1 boot-1"],
            ),
            (
                "F39: one of three nodes that use a volume at once is off",
                &[here_off, share_volume, used_elsewhere],
                Phase::NodeProven,
                &["taint i-1 boot-1"],
            ),
        ],
    );
}

#[test]
fn foreign_taint_is_neither_duplicated_nor_removed() {
    check(
        FailoverMode::ProveFirst,
        &[
            ("F34: the instance runs", &[foreign_taint, both_unproven], Phase::Querying, &[]),
            ("the instance is off", &[foreign_taint, here_off], Phase::NodeProven, &[]),
            (
                "F35: the node is Ready",
                &[foreign_taint, ready, no_attachments, no_pods],
                Phase::Healthy,
                &[],
            ),
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
                ("the pod was evicted", &[pod_deleting], Phase::Acting, &["pod db-0"]),
                ("the pod was not evicted", &[], Phase::Acting, &[]),
                ("the pod is opted out", &[pod_deleting, opted_out_pod], Phase::Acting, &[]),
                ("a volume is unproven", &[pod_deleting, other_unproven], Phase::Acting, &[]),
                ("the node is Ready", &[pod_deleting, ready], Phase::Acting, &[]),
            ],
        );
    }
}

/// The node must be Ready under another boot, with no attachment left that no pod on it may keep,
/// and no pod still ending.
#[test]
fn driver_taint_is_removed_after_clean_new_boot() {
    check(
        FailoverMode::ProveFirst,
        &[
            ("not back", &[own_taint, no_attachments, no_pods], Phase::Acting, &[]),
            ("the same boot", &[own_taint, ready, no_attachments, no_pods], Phase::Acting, &[]),
            ("an attachment is left", &[former_taint, ready, no_pods], Phase::Recovering, &[]),
            (
                "a pod is ending",
                &[former_taint, ready, no_attachments, pod_deleting],
                Phase::Recovering,
                &[],
            ),
            (
                "the attachment of a pod that stays is being deleted",
                &[former_taint, ready, tolerates, |f| f.attachments[0].deleting = true],
                Phase::Recovering,
                &[],
            ),
            (
                "the attachment of a pod that stays was made for another instance",
                &[former_taint, ready, tolerates, |f| {
                    f.attachments[0].instance = Some(ELSEWHERE.to_owned())
                }],
                Phase::Recovering,
                &[],
            ),
            (
                "a pod that stays has ended",
                &[former_taint, ready, tolerates, |f| f.pods[0].ended = true],
                Phase::Recovering,
                &[],
            ),
            (
                "a pod tolerates another taint",
                &[former_taint, ready, |f| f.pods[0].tolerations = unreachable()],
                Phase::Recovering,
                &[],
            ),
            (
                "booted again, only a pod that stays and its volumes are there",
                &[former_taint, ready, tolerates],
                Phase::Recovering,
                &["remove taint"],
            ),
            (
                "booted again, nothing left",
                &[former_taint, ready, no_attachments, no_pods],
                Phase::Recovering,
                &["remove taint"],
            ),
        ],
    );
}
