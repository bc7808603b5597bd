//! Tests whole nodes: their phases, and this driver's taint.

use super::*;

/// Proof counts neither for a Ready node nor while the nodes cannot be listed.
#[test]
fn node_without_usable_proof_is_left_alone() {
    check(
        FailoverMode::ProveFirst,
        &[
            ("ready", |f| node(f).ready = Readiness::Ready, Phase::Healthy, &[]),
            (
                "ready, whatever is answered",
                |f| {
                    node(f).ready = Readiness::Ready;
                    is_off(f, HERE);
                },
                Phase::Healthy,
                &[],
            ),
            ("nothing is answered", |_| (), Phase::Suspect, &[]),
            (
                "nodes could not be listed",
                |f| {
                    f.object = Fact::Unknown;
                    is_off(f, HERE);
                },
                Phase::Suspect,
                &[],
            ),
            (
                "F9: the instance runs",
                |f| {
                    answer(f, "vol-1", Evidence::Unproven);
                    answer(f, "vol-2", Evidence::Unproven);
                },
                Phase::Querying,
                &[],
            ),
            (
                "F4: the instance is stopping",
                |f| answer(f, "vol-1", Evidence::Waiting),
                Phase::Querying,
                &[],
            ),
            (
                "F43: a fence was refused, or did nothing: the instance runs",
                |f| {
                    f.instances.insert(HERE.to_owned(), running());
                    answer(f, "vol-1", Evidence::Unproven);
                    answer(f, "vol-2", Evidence::Unproven);
                },
                Phase::Querying,
                &[],
            ),
            (
                "F43: a fence was accepted, and the stop does not end",
                |f| {
                    f.instances.insert(HERE.to_owned(), InstanceEvidence::NotOff);
                    answer(f, "vol-1", Evidence::Waiting);
                    answer(f, "vol-2", Evidence::Waiting);
                },
                Phase::Querying,
                &[],
            ),
            (
                "F29, F30: throttled, or NotFound: nothing of it proves anything",
                |f| {
                    f.instances.insert(HERE.to_owned(), InstanceEvidence::NotOff);
                    answer(f, "vol-1", Evidence::Unproven);
                },
                Phase::Querying,
                &[],
            ),
        ],
    );
}

/// An opted-out node, and a node without this driver's pods and attachments, get no taint.
#[test]
fn instance_off_taints_its_own_node() {
    check(
        FailoverMode::ProveFirst,
        &[
            (
                "F1, F3: the instance is off",
                |f| is_off(f, HERE),
                Phase::NodeProven,
                &["taint i-1 boot-1"],
            ),
            ("another instance is off", |f| is_off(f, ELSEWHERE), Phase::Suspect, &[]),
            (
                "off, and nothing of this driver is there",
                |f| {
                    is_off(f, HERE);
                    f.attachments.clear();
                    f.pods.clear();
                },
                Phase::Suspect,
                &[],
            ),
            (
                "off, and the person does not want it",
                |f| {
                    is_off(f, HERE);
                    node(f).opted_out = true;
                },
                Phase::NodeProven,
                &[],
            ),
            (
                "F39: one of three nodes that use a volume at once is off",
                |f| {
                    is_off(f, HERE);
                    f.pods[0].claims =
                        vec![Claim::Ours { volume: "vol-1".to_owned(), shared: true }];
                    let key = (ELSEWHERE.to_owned(), "vol-1".to_owned());
                    f.volumes.insert(key, Evidence::Unproven);
                },
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
            (
                "F34: a person's taint, the instance runs",
                |f| {
                    node(f).out_of_service = OutOfService::Foreign;
                    answer(f, "vol-1", Evidence::Unproven);
                    answer(f, "vol-2", Evidence::Unproven);
                },
                Phase::Querying,
                &[],
            ),
            (
                "a person's taint is not doubled",
                |f| {
                    node(f).out_of_service = OutOfService::Foreign;
                    is_off(f, HERE);
                },
                Phase::NodeProven,
                &[],
            ),
            (
                "F35: a person's taint on a ready node",
                |f| {
                    node(f).out_of_service = OutOfService::Foreign;
                    node(f).ready = Readiness::Ready;
                    f.attachments.clear();
                    f.pods.clear();
                },
                Phase::Healthy,
                &[],
            ),
        ],
    );
}

/// Kubernetes evicts because of the taint; what it has not asked to end stays.
#[test]
fn evicted_pod_is_deleted_while_instance_is_off() {
    let rows: [Row; 5] = [
        ("the pod was asked to end", |f| f.pods[0].deleting = true, Phase::Acting, &["pod db-0"]),
        ("the pod was not asked to end", |_| (), Phase::Acting, &[]),
        (
            "the pod may not be deleted by force",
            |f| {
                f.pods[0].deleting = true;
                f.pods[0].opted_out = true;
            },
            Phase::Acting,
            &[],
        ),
        (
            "one of its volumes is not proved free",
            |f| {
                f.pods[0].deleting = true;
                answer(f, "vol-2", Evidence::Unproven);
            },
            Phase::Acting,
            &[],
        ),
        (
            "the node is Ready",
            |f| {
                f.pods[0].deleting = true;
                node(f).ready = Readiness::Ready;
            },
            Phase::Acting,
            &[],
        ),
    ];
    let mut start = dead();
    node(&mut start).out_of_service = tainted("boot-1");
    is_off(&mut start, HERE);
    answer(&mut start, "vol-1", Evidence::Proven);
    answer(&mut start, "vol-2", Evidence::Proven);
    for mode in [FailoverMode::ProveFirst, FailoverMode::Kep] {
        check_from(&start, mode, &rows);
    }
}

/// The node must be Ready under another boot, with no attachment left and no pod still ending.
#[test]
fn driver_taint_is_removed_after_clean_new_boot() {
    check(
        FailoverMode::ProveFirst,
        &[
            (
                "ours, not back",
                |f| {
                    node(f).out_of_service = tainted("boot-1");
                    f.attachments.clear();
                    f.pods.clear();
                },
                Phase::Acting,
                &[],
            ),
            (
                "ours, ready, and the same boot",
                |f| {
                    node(f).out_of_service = tainted("boot-1");
                    node(f).ready = Readiness::Ready;
                    f.attachments.clear();
                    f.pods.clear();
                },
                Phase::Acting,
                &[],
            ),
            (
                "ours, booted again, an attachment is left",
                |f| {
                    node(f).out_of_service = tainted("boot-0");
                    node(f).ready = Readiness::Ready;
                    f.pods.clear();
                },
                Phase::Recovering,
                &[],
            ),
            (
                "ours, booted again, a pod is ending",
                |f| {
                    node(f).out_of_service = tainted("boot-0");
                    node(f).ready = Readiness::Ready;
                    f.attachments.clear();
                    f.pods[0].deleting = true;
                },
                Phase::Recovering,
                &[],
            ),
            (
                "ours, booted again, nothing left",
                |f| {
                    node(f).out_of_service = tainted("boot-0");
                    node(f).ready = Readiness::Ready;
                    f.attachments.clear();
                    f.pods.clear();
                },
                Phase::Recovering,
                &["lift"],
            ),
        ],
    );
}
