//! Tests single volumes: pods first, then attachments.

use super::*;

/// A pod stays when one of its volumes is unproven, shared or another driver's; a shared volume's
/// attachment stays too.
#[test]
fn proven_pods_are_deleted_before_their_attachments() {
    let ended = |f: &mut NodeFacts| f.pods[0].ended = true;
    let foreign_volume = |f: &mut NodeFacts| f.pods[0].claims.push(Claim::Foreign);
    let (proven, first) = (Phase::VolumesProven, "attachment csi-vol-1");
    check(
        FailoverMode::ProveFirst,
        &[
            ("F36: one of the pod's two volumes", &[one_proven, other_unproven], proven, &[]),
            ("both volumes are proved", &[both_proven], proven, &["pod db-0"]),
            ("proved, and its pods are gone", &[no_pods, one_proven], proven, &[first]),
            ("proved, and its pod has ended", &[ended, one_proven], proven, &[first]),
            ("F37: another driver's volume", &[foreign_volume, both_proven], proven, &[]),
            (
                "F39: one of three nodes that use a volume at once; it is free of this one",
                &[share_volume, both_proven],
                proven,
                &["attachment csi-vol-2"],
            ),
        ],
    );
}

#[test]
fn refused_detach_is_retried_once() {
    let refused = |f: &mut NodeFacts| f.attachments[0].deleting = true;
    let requested = |f: &mut NodeFacts| f.attachments[0].retry_requested = true;
    let proven = Phase::VolumesProven;
    check(
        FailoverMode::ProveFirst,
        &[
            ("it is safe now", &[no_pods, refused, one_proven], proven, &["retry csi-vol-1"]),
            ("requested already", &[no_pods, refused, requested, one_proven], proven, &[]),
        ],
    );
}

/// When the Node's name belongs to another instance now, the former instance's attachments are not
/// deleted.
#[test]
fn attachment_is_judged_by_its_own_instance() {
    let replaced = |f: &mut NodeFacts| node(f).instance = Some(ELSEWHERE.to_owned());
    check(
        FailoverMode::ProveFirst,
        &[
            ("F31: no Node, it runs", &[no_object, one_unproven], Phase::Querying, &[]),
            (
                "F2: the Node object is gone, the instance is off",
                &[no_object, no_pods, here_off, both_proven],
                Phase::NodeProven,
                &["attachment csi-vol-1", "attachment csi-vol-2"],
            ),
            (
                "gone, and nothing is left",
                &[no_object, no_pods, no_attachments],
                Phase::Healthy,
                &[],
            ),
            (
                "F32: the name belongs to another instance now",
                &[no_pods, replaced, one_proven, here_off],
                Phase::VolumesProven,
                &[],
            ),
            (
                "F32: the other instance is off; the attachment is the former one's",
                &[no_pods, replaced, one_unproven, elsewhere_off],
                Phase::NodeProven,
                &[],
            ),
            (
                "F32: the same, and the former instance's volumes are free",
                &[no_pods, replaced, both_proven, elsewhere_off],
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
            ("the pod is not evicted yet", &[], Phase::Suspect, &[]),
            ("the pod is evicted", &[pod_deleting], Phase::Suspect, &["pod db-0"]),
            (
                "its attachments follow",
                &[no_pods],
                Phase::Suspect,
                &["attachment csi-vol-1", "attachment csi-vol-2"],
            ),
        ],
    );
}
