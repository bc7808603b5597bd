//! Tests the decision table, row by row.

use super::*;

/// Has a case for each row of the table, and for each fact that is no evidence.
#[test]
fn facts_decide_verdict_as_in_decision_table() {
    use Power::{Pending, ShuttingDown, Stopped, Stopping, Terminated, Unrecognised};
    use Verdict::{Done, Refuse, Safe, Wait};
    const NO_REPORT: Verdict = Refuse(Refusal::NoReport);
    let stopped = || instance(Stopped, Fact::Absent);
    let node_is = |node| Facts { node: Fact::Present(node), ..silent() };
    let with = |power, hibernation| Facts { instance: instance(power, hibernation), ..silent() };
    let at = |phase| Facts { attachment: attachment(phase), instance: stopped(), ..silent() };
    let fenced = |facts| Facts { fence: Fact::Present(()), ..facts };
    let ordered =
        |node, since, facts| Facts { override_order: override_order(node, since), ..facts };
    let transition = Wait(Waiting::Transition);
    let no_attachment = Facts { attachment: Fact::Absent, instance: Fact::Unknown, ..silent() };
    let off = Facts { mode: Mode::Off, instance: Fact::Unknown, ..silent() };
    let timeless = Facts {
        attachment: Fact::Present(AttachmentFact { phase: Phase::Attached, since: None }),
        ..ordered(node(), SINCE, silent())
    };
    let volume_unknown = Facts { attachment: Fact::Unknown, instance: stopped(), ..silent() };
    let missing = |mode| Facts { instance: Fact::Absent, mode, ..silent() };
    let former = fenced(ordered(node(), LATER, node_is(NodeEvidence::InUse)));
    let hibernated = || with(Stopped, Fact::Present(()));
    let no_node = Facts { node: Fact::Absent, ..silent() };
    let instance_unknown = Facts { instance: Fact::Unknown, ..silent() };
    let rows: &[(&str, Facts, Verdict)] = &[
        ("no attachment", no_attachment, Done),
        ("off already", at(Phase::NotAttached), Done),
        ("F26: on its way off, busy or not", at(Phase::Leaving), Wait(Waiting::Leaving)),
        ("terminated", with(Terminated, Fact::Unknown), Safe(Evidence::Terminated)),
        ("stopped", with(Stopped, Fact::Absent), Safe(Evidence::Stopped)),
        ("stopped by our fence", fenced(with(Stopped, Fact::Absent)), Safe(Evidence::Fenced)),
        ("running, released", node_is(NodeEvidence::Released), Safe(Evidence::NodeAnswer)),
        (
            "running, released by kubelet's report",
            node_is(NodeEvidence::ReleasedByKubelet),
            Safe(Evidence::KubeletReport),
        ),
        ("F53: wanted again", node_is(NodeEvidence::PromiseNeeded), Wait(Waiting::Promise)),
        ("running, trusted", Facts { mode: Mode::Ec2Only, ..silent() }, Safe(Evidence::Trusted)),
        ("running, off", off, Safe(Evidence::Trusted)),
        ("override ordered", ordered(node(), SINCE, silent()), Safe(Evidence::OverrideOrder)),
        (
            "stuck, ordered",
            ordered(node(), SINCE, at(Phase::Leaving)),
            Safe(Evidence::OverrideOrder),
        ),
        // Facts that are no evidence.
        ("F32: ordered elsewhere", ordered(other_node(), SINCE, silent()), NO_REPORT),
        ("F27, F28: ordered for an attachment before", ordered(node(), LATER, silent()), NO_REPORT),
        ("attachment without a time", timeless, NO_REPORT),
        ("F10, F29: volume unknown", volume_unknown, Refuse(Refusal::AttachmentUnknown)),
        ("F10, F29: instance unknown", instance_unknown, Refuse(Refusal::InstanceUnknown)),
        ("F30: NotFound", missing(Mode::Enforce), Refuse(Refusal::InstanceMissing)),
        ("F30: NotFound, ec2-only", missing(Mode::Ec2Only), Refuse(Refusal::InstanceMissing)),
        ("F5: hibernated", hibernated(), Refuse(Refusal::Hibernated)),
        ("hibernated by our fence", fenced(hibernated()), Refuse(Refusal::Hibernated)),
        ("hibernated?", with(Stopped, Fact::Unknown), Refuse(Refusal::HibernationUnknown)),
        ("launching", with(Pending, Fact::Absent), transition),
        ("F4: stopping", with(Stopping, Fact::Absent), transition),
        ("shutting down", with(ShuttingDown, Fact::Absent), transition),
        ("F43: a fence that EC2 does not show, or that failed", fenced(silent()), NO_REPORT),
        ("F9, F33: in use", node_is(NodeEvidence::InUse), Refuse(Refusal::InUse)),
        ("F9: not ready", node_is(NodeEvidence::NotReady), Refuse(Refusal::NodeNotReady)),
        ("no report", silent(), NO_REPORT),
        ("F31: no Node object", no_node, NO_REPORT),
        ("F28: evidence from before the attach", former, Refuse(Refusal::InUse)),
        ("F43: a stop that does not end", fenced(with(Stopping, Fact::Absent)), transition),
        (
            "F43: it terminates instead",
            fenced(with(Terminated, Fact::Absent)),
            Safe(Evidence::Fenced),
        ),
        ("strange attachment", at(Phase::Unrecognised), Refuse(Refusal::UnrecognisedState)),
        ("strange instance", with(Unrecognised, Fact::Absent), Refuse(Refusal::UnrecognisedState)),
    ];
    for (what, facts, want) in rows {
        assert_eq!(decide(facts), *want, "{what}");
    }
}
