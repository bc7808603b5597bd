//! Tests single volumes: pods first, then attachments.

use super::*;

/// A pod stays when one of its volumes is unproven, shared or another driver's; a shared volume's
/// attachment stays too.
#[test]
fn proven_pods_are_deleted_before_their_attachments() {
    check(
        FailoverMode::ProveFirst,
        &[
            (
                "F36: one of the pod's two volumes is proved",
                |f| {
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Unproven);
                },
                Phase::VolumesProven,
                &[],
            ),
            (
                "both volumes are proved",
                |f| {
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Proven);
                },
                Phase::VolumesProven,
                &["pod db-0"],
            ),
            (
                "proved, and its pods are gone",
                |f| {
                    f.pods.clear();
                    answer(f, "vol-1", Evidence::Proven);
                },
                Phase::VolumesProven,
                &["attachment csi-vol-1"],
            ),
            (
                "proved, and its pod has ended",
                |f| {
                    f.pods[0].ended = true;
                    answer(f, "vol-1", Evidence::Proven);
                },
                Phase::VolumesProven,
                &["attachment csi-vol-1"],
            ),
            (
                "F37: a pod with another driver's volume",
                |f| {
                    f.pods[0].claims.push(Claim::Foreign);
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Proven);
                },
                Phase::VolumesProven,
                &[],
            ),
            (
                "F39: one of three nodes that use a volume at once; it is free of this one",
                |f| {
                    f.pods[0].claims =
                        vec![Claim::Ours { volume: "vol-1".to_owned(), shared: true }];
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Proven);
                },
                Phase::VolumesProven,
                &["attachment csi-vol-2"],
            ),
        ],
    );
}

#[test]
fn refused_detach_is_retried_once() {
    check(
        FailoverMode::ProveFirst,
        &[
            (
                "a detach that was refused and is safe now",
                |f| {
                    f.pods.clear();
                    f.attachments[0].deleting = true;
                    answer(f, "vol-1", Evidence::Proven);
                },
                Phase::VolumesProven,
                &["retry csi-vol-1"],
            ),
            (
                "the retry was requested already",
                |f| {
                    f.pods.clear();
                    f.attachments[0].deleting = true;
                    f.attachments[0].retry_requested = true;
                    answer(f, "vol-1", Evidence::Proven);
                },
                Phase::VolumesProven,
                &[],
            ),
        ],
    );
}

/// When the Node's name belongs to another instance now, the former instance's attachments are not
/// deleted.
#[test]
fn attachment_is_judged_by_its_own_instance() {
    check(
        FailoverMode::ProveFirst,
        &[
            (
                "F31: the Node object is gone, the instance runs",
                |f| {
                    f.object = Fact::Absent;
                    answer(f, "vol-1", Evidence::Unproven);
                },
                Phase::Querying,
                &[],
            ),
            (
                "F2: the Node object is gone, the instance is off",
                |f| {
                    f.object = Fact::Absent;
                    f.pods.clear();
                    is_off(f, HERE);
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Proven);
                },
                Phase::NodeProven,
                &["attachment csi-vol-1", "attachment csi-vol-2"],
            ),
            (
                "gone, and nothing is left",
                |f| {
                    f.object = Fact::Absent;
                    f.pods.clear();
                    f.attachments.clear();
                },
                Phase::Healthy,
                &[],
            ),
            (
                "F32: the name belongs to another instance now",
                |f| {
                    f.pods.clear();
                    node(f).instance = Some(ELSEWHERE.to_owned());
                    answer(f, "vol-1", Evidence::Proven);
                    is_off(f, HERE);
                },
                Phase::VolumesProven,
                &[],
            ),
            (
                "F32: the name belongs to another instance now, which is off; the attachment is the former one's",
                |f| {
                    f.pods.clear();
                    node(f).instance = Some(ELSEWHERE.to_owned());
                    answer(f, "vol-1", Evidence::Unproven);
                    is_off(f, ELSEWHERE);
                },
                Phase::NodeProven,
                &[],
            ),
            (
                "F32: the same, and the former instance has let its volumes go",
                |f| {
                    f.pods.clear();
                    node(f).instance = Some(ELSEWHERE.to_owned());
                    answer(f, "vol-1", Evidence::Proven);
                    answer(f, "vol-2", Evidence::Proven);
                    is_off(f, ELSEWHERE);
                },
                Phase::NodeProven,
                &["taint i-2 boot-1"],
            ),
        ],
    );
}

#[test]
fn kep_mode_deletes_terminating_pods_then_attachments() {
    check(
        FailoverMode::Kep,
        &[
            ("kep: a pod that Kubernetes does not want to end yet", |_| (), Phase::Suspect, &[]),
            (
                "kep: a pod that Kubernetes wants to end",
                |f| f.pods[0].deleting = true,
                Phase::Suspect,
                &["pod db-0"],
            ),
            (
                "kep: its attachments follow",
                |f| f.pods.clear(),
                Phase::Suspect,
                &["attachment csi-vol-1", "attachment csi-vol-2"],
            ),
        ],
    );
}
