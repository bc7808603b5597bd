//! Tests the steps that an attach derives from its looks at EC2.

use ebs_csi_ec2::Ec2ErrorKind;

use super::*;
use crate::attach::tests::{attach_time, attachment, node, other_node, pair, unknown};
use crate::example::example_volume;

fn machine() -> Attaching {
    Attaching::new(pair(), true)
}

fn with(state: VolumeState, attachments: Vec<Attachment>) -> LookResult<Volume> {
    LookResult::Present(Volume { state, attachments, ..example_volume() })
}

/// Shows a volume with Multi-Attach that is in use.
fn shared(attachments: Vec<Attachment>) -> LookResult<Volume> {
    let state = VolumeState::InUse;
    LookResult::Present(Volume { state, multi_attach: true, attachments, ..example_volume() })
}

fn refusal(step: AttachStep) -> Condition {
    match step {
        AttachStep::Refuse(failure) => failure.condition(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn first_volume_state_decides_attach_wait_or_refusal() {
    use AttachmentState::{Attached, Attaching as InProgress, Busy, Detached, Detaching};
    use VolumeState::{Available, Creating, InUse};
    let ours = |state| vec![attachment(node(), state)];
    let theirs = |state| vec![attachment(other_node(), state)];
    let now = Instant::now();
    let rows = [
        (with(Available, vec![]), AttachStep::Attach),
        (with(Creating, vec![]), AttachStep::Wait),
        (with(InUse, ours(InProgress)), AttachStep::Wait),
        (with(InUse, ours(Detaching)), AttachStep::Wait),
        (with(InUse, ours(Busy)), AttachStep::Wait),
        (with(Available, ours(Detached)), AttachStep::Attach),
        (with(InUse, theirs(Detaching)), AttachStep::Wait),
        (with(InUse, theirs(Busy)), AttachStep::Wait),
        (with(InUse, vec![]), AttachStep::Wait),
        (LookResult::Absent, AttachStep::Attach),
        (unknown(Ec2ErrorKind::Throttled), AttachStep::Wait),
    ];
    for (look, want) in rows {
        assert_eq!(machine().observe(&look, now), want, "{look:?}");
    }
    assert!(matches!(machine().observe(&with(InUse, ours(Attached)), now), AttachStep::Done(_)));
    for (look, want) in [
        (with(InUse, theirs(Attached)), Condition::PublishedElsewhere),
        (with(InUse, theirs(InProgress)), Condition::PublishedElsewhere),
        (with(VolumeState::Deleting, vec![]), Condition::NotFound),
        (with(VolumeState::Error, vec![]), Condition::Local),
        (unknown(Ec2ErrorKind::Unauthorized), Condition::NotPermitted),
    ] {
        assert_eq!(refusal(machine().observe(&look, now)), want, "{look:?}");
    }
    let shared = shared(theirs(Attached));
    assert_eq!(machine().observe(&shared, now), AttachStep::Attach);
    let mut for_one_node = Attaching::new(pair(), false);
    assert_eq!(refusal(for_one_node.observe(&shared, now)), Condition::PublishedElsewhere);
}

#[test]
fn attached_at_2_nodes_waits_unless_multi_attach() {
    let now = Instant::now();
    let both =
        || [node(), other_node()].map(|node| attachment(node, AttachmentState::Attached)).to_vec();
    let mut machine = machine();
    assert_eq!(machine.observe(&with(VolumeState::InUse, both()), now), AttachStep::Wait);
    assert!(machine.overdue_failure().text().contains("at once"));
    assert!(matches!(machine.observe(&shared(both()), now), AttachStep::Done(_)));
}

#[test]
fn failed_attach_is_resent_until_request_limit() {
    let free = with(VolumeState::Available, vec![]);
    let coming = with(VolumeState::InUse, vec![attachment(node(), AttachmentState::Attaching)]);
    let now = Instant::now();
    let mut machine = machine();
    for _ in 0..MAX_REQUESTS {
        machine.note_sent(now);
        assert_eq!(machine.observe(&coming, now), AttachStep::Wait);
        // One look that goes backwards proves nothing.
        assert_eq!(machine.observe(&free, now), AttachStep::Wait);
        // Several such looks prove nothing either while reads may still lag behind the request.
        assert_eq!(machine.observe(&free, now), AttachStep::Wait);
        if machine.requests < MAX_REQUESTS {
            assert_eq!(machine.observe(&free, now + LOST_AFTER), AttachStep::Attach);
        }
    }
    assert_eq!(refusal(machine.observe(&free, now + LOST_AFTER)), Condition::OperationPending);
}

/// EC2 reports an unusable KMS key only indirectly: it accepts the attach and shows no attachment.
#[test]
fn lost_attaches_report_kms_key_of_encrypted_volume() {
    let now = Instant::now();
    for (encrypted, named) in [(true, true), (false, false)] {
        let mut machine = machine();
        machine.requests = MAX_REQUESTS;
        let free = LookResult::Present(Volume {
            state: VolumeState::Available,
            encrypted,
            kms_key_id: encrypted.then(|| "arn:aws:kms:us-east-1:111122223333:key/k".to_owned()),
            ..example_volume()
        });
        let mut step = AttachStep::Wait;
        for _ in 0..NO_EFFECT_LOOKS {
            machine.last_sent = Some(now);
            step = machine.observe(&free, now + NO_EFFECT_AFTER);
        }
        let AttachStep::Refuse(failure) = step else { panic!("{step:?}") };
        assert_eq!(failure.text().contains("key/k is enabled"), named, "{failure}");
    }
}

/// Reads can lag behind the request until then, so earlier looks prove nothing.
#[test]
fn attach_without_effect_is_resent_after_5_seconds() {
    let free = with(VolumeState::Available, vec![]);
    let now = Instant::now();
    let mut machine = machine();
    machine.note_sent(now);
    for _ in 0..5 {
        assert_eq!(machine.observe(&free, now), AttachStep::Wait);
    }
    assert_eq!(machine.observe(&free, now + NO_EFFECT_AFTER), AttachStep::Attach);
}

#[test]
fn attachment_is_stuck_after_90_seconds_attaching() {
    let coming = with(VolumeState::InUse, vec![attachment(node(), AttachmentState::Attaching)]);
    let now = Instant::now();
    let mut machine = machine();
    assert_eq!(machine.observe(&coming, now), AttachStep::Wait);
    assert_eq!(machine.observe(&coming, now + Duration::from_secs(89)), AttachStep::Wait);
    assert_eq!(machine.observe(&coming, now + STUCK_AFTER), AttachStep::Stuck);
}

#[test]
fn attach_is_sent_after_detach_ends() {
    let now = Instant::now();
    let mut machine = machine();
    let leaving = with(VolumeState::InUse, vec![attachment(node(), AttachmentState::Detaching)]);
    assert_eq!(machine.observe(&leaving, now), AttachStep::Wait);
    assert_eq!(machine.observe(&with(VolumeState::Available, vec![]), now), AttachStep::Attach);
}

#[test]
fn attachment_from_before_request_is_not_taken() {
    let attached = |seconds| {
        let attachment = Attachment {
            attached: attach_time(seconds),
            ..attachment(node(), AttachmentState::Attached)
        };
        with(VolumeState::InUse, vec![attachment])
    };
    let now = Instant::now();
    let mut clear = machine();
    clear.note_sent(now);
    clear.note_accepted(attach_time(100));
    assert_eq!(clear.observe(&attached(12), now), AttachStep::Wait);
    assert!(matches!(clear.observe(&attached(99), now), AttachStep::Done(_)));

    let mut unclear = machine();
    unclear.note_sent(now);
    unclear.note_unclear(now);
    assert_eq!(unclear.observe(&attached(12), now), AttachStep::Wait);
    let later = now + LOST_AFTER;
    assert!(matches!(unclear.observe(&attached(100), later), AttachStep::Done(_)));
}
