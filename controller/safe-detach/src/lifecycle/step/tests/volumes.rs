//! Tests single volumes: pods first, then attachments.

use super::*;

const BOTH_ATTACHMENTS: &[&str] = &["attachment csi-vol-1", "attachment csi-vol-2"];

/// A pod stays when one of its volumes is unproven, shared or another driver's; a shared volume's
/// attachment stays too.
#[test]
fn proven_pods_are_deleted_before_their_attachments() {
    let foreign_volume = |f: &mut NodeFacts| f.pods[0].claims.push(Claim::Foreign);
    let (first, second) = (&BOTH_ATTACHMENTS[..1], &BOTH_ATTACHMENTS[1..]);
    check(&[
        ("F36: one of two volumes", &[ONE_PROVEN, OTHER_UNPROVEN], VolumesProven, &[]),
        ("both volumes are proved", &[BOTH_PROVEN], VolumesProven, &["pod db-0"]),
        ("proved, and its pods are gone", &[NO_PODS, ONE_PROVEN], VolumesProven, first),
        ("proved, and its pod has ended", &[POD_ENDED, ONE_PROVEN], VolumesProven, first),
        ("F37: another driver's volume", &[foreign_volume, BOTH_PROVEN], VolumesProven, &[]),
        ("F39: shared, free of this node", &[share_volume, BOTH_PROVEN], VolumesProven, second),
    ]);
}

#[test]
fn refused_detach_is_retried_once() {
    let refused = |f: &mut NodeFacts| f.attachments[0].deleting = true;
    let requested = |f: &mut NodeFacts| f.attachments[0].retry_requested = true;
    let again: [Change; 4] = [NO_PODS, refused, ONE_PROVEN, requested];
    check(&[
        ("it is safe now", &again[..3], VolumesProven, &["retry csi-vol-1"]),
        ("requested already", &again, VolumesProven, &[]),
    ]);
}

/// When the Node's name belongs to another instance now, the former instance's attachments are not
/// deleted.
#[test]
fn attachment_is_judged_by_its_own_instance() {
    let replaced = |f: &mut NodeFacts| node(f).instance = Some(ELSEWHERE.to_owned());
    let gone: [Change; 4] = [NO_OBJECT, NO_PODS, HERE_OFF, BOTH_PROVEN];
    // F32: the name belongs to another instance now.
    let former_off: [Change; 4] = [NO_PODS, replaced, ONE_PROVEN, HERE_OFF];
    let new_off: [Change; 4] = [NO_PODS, replaced, ONE_UNPROVEN, ELSEWHERE_OFF];
    let new_off_former_free: [Change; 4] = [NO_PODS, replaced, BOTH_PROVEN, ELSEWHERE_OFF];
    check(&[
        ("F31: no Node, it runs", &[NO_OBJECT, ONE_UNPROVEN], Querying, &[]),
        ("F2: no Node, it is off", &gone, NodeProven, BOTH_ATTACHMENTS),
        ("gone, and nothing is left", &[NO_OBJECT, NOTHING_LEFT], Healthy, &[]),
        ("F32: the former instance is off", &former_off, VolumesProven, &[]),
        ("F32: the new instance is off", &new_off, NodeProven, &[]),
        ("F32: and all is free", &new_off_former_free, NodeProven, &["taint i-2 boot-1"]),
    ]);
}

#[test]
fn kep_mode_deletes_terminating_pods_then_attachments() {
    check_from(
        &dead(),
        FailoverMode::Kep,
        &[
            ("the pod is not evicted yet", &[], Suspect, &[]),
            ("the pod is evicted", &[POD_DELETING], Suspect, &["pod db-0"]),
            ("its attachments follow", &[NO_PODS], Suspect, BOTH_ATTACHMENTS),
        ],
    );
}
