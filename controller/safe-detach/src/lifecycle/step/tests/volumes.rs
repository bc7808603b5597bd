//! Tests single volumes: pods first, then attachments.

use super::*;

const BOTH_ATTACHMENTS: &[&str] = &["attachment csi-vol-1", "attachment csi-vol-2"];

/// A pod stays when one of its volumes is unproven, shared or another driver's; a shared volume's
/// attachment stays too.
#[test]
fn proven_pods_are_deleted_before_their_attachments() {
    let foreign_volume = |f: &mut NodeFacts| f.pods[0].claims.push(Claim::Foreign);
    let (first, second) = (&BOTH_ATTACHMENTS[..1], &BOTH_ATTACHMENTS[1..]);
    check(
        FailoverMode::ProveFirst,
        &[
            ("F36: one of two volumes", &[one_proven, other_unproven], VolumesProven, &[]),
            ("both volumes are proved", &[both_proven], VolumesProven, &["pod db-0"]),
            ("proved, and its pods are gone", &[no_pods, one_proven], VolumesProven, first),
            ("proved, and its pod has ended", &[pod_ended, one_proven], VolumesProven, first),
            ("F37: another driver's volume", &[foreign_volume, both_proven], VolumesProven, &[]),
            ("F39: shared, free of this node", &[share_volume, both_proven], VolumesProven, second),
        ],
    );
}

#[test]
fn refused_detach_is_retried_once() {
    let refused = |f: &mut NodeFacts| f.attachments[0].deleting = true;
    let requested = |f: &mut NodeFacts| f.attachments[0].retry_requested = true;
    let again: [Change; 4] = [no_pods, refused, one_proven, requested];
    check(
        FailoverMode::ProveFirst,
        &[
            ("it is safe now", &again[..3], VolumesProven, &["retry csi-vol-1"]),
            ("requested already", &again, VolumesProven, &[]),
        ],
    );
}

/// When the Node's name belongs to another instance now, the former instance's attachments are not
/// deleted.
#[test]
fn attachment_is_judged_by_its_own_instance() {
    let replaced = |f: &mut NodeFacts| node(f).instance = Some(ELSEWHERE.to_owned());
    let gone: [Change; 4] = [no_object, no_pods, here_off, both_proven];
    // F32: the name belongs to another instance now.
    let former_off: [Change; 4] = [no_pods, replaced, one_proven, here_off];
    let new_off: [Change; 4] = [no_pods, replaced, one_unproven, elsewhere_off];
    let new_off_former_free: [Change; 4] = [no_pods, replaced, both_proven, elsewhere_off];
    check(
        FailoverMode::ProveFirst,
        &[
            ("F31: no Node, it runs", &[no_object, one_unproven], Querying, &[]),
            ("F2: no Node, it is off", &gone, NodeProven, BOTH_ATTACHMENTS),
            ("gone, and nothing is left", &[no_object, nothing_left], Healthy, &[]),
            ("F32: the former instance is off", &former_off, VolumesProven, &[]),
            ("F32: the new instance is off", &new_off, NodeProven, &[]),
            ("F32: and all is free", &new_off_former_free, NodeProven, &["taint i-2 boot-1"]),
        ],
    );
}

#[test]
fn kep_mode_deletes_terminating_pods_then_attachments() {
    check(
        FailoverMode::Kep,
        &[
            ("the pod is not evicted yet", &[], Suspect, &[]),
            ("the pod is evicted", &[pod_deleting], Suspect, &["pod db-0"]),
            ("its attachments follow", &[no_pods], Suspect, BOTH_ATTACHMENTS),
        ],
    );
}
