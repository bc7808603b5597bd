//! Tests the decision table, row by row.

use super::*;

/// Has a case for each row of the table, and for each fact that is no evidence.
#[test]
fn facts_decide_verdict_as_in_decision_table() {
    use Power::{Pending, ShuttingDown, Stopped, Stopping, Strange, Terminated};
    let stopped = || instance(Stopped, Fact::Absent);
    let kubelet_report =
        |kubelet_report| Facts { kubelet_report: Fact::Present(kubelet_report), ..silent() };
    let with = |power, hibernation| Facts { instance: instance(power, hibernation), ..silent() };
    let at = |phase| Facts { attachment: attachment(phase), instance: stopped(), ..silent() };
    let refuse = Verdict::Refuse;
    let rows: &[(&str, Facts, Verdict)] = &[
        (
            "no attachment",
            Facts { attachment: Fact::Absent, instance: Fact::Unknown, ..silent() },
            Verdict::Done,
        ),
        ("off already", at(Phase::Off), Verdict::Done),
        ("F26: on its way off, busy or not", at(Phase::Leaving), Verdict::Wait(Waiting::Leaving)),
        ("terminated", with(Terminated, Fact::Unknown), Verdict::Safe(Rung::Terminated)),
        ("stopped", with(Stopped, Fact::Absent), Verdict::Safe(Rung::Stopped)),
        (
            "stopped by our fence",
            Facts { instance: stopped(), fence: Fact::Present(()), ..silent() },
            Verdict::Safe(Rung::Fenced),
        ),
        (
            "running, released",
            kubelet_report(KubeletReport::Released),
            Verdict::Safe(Rung::KubeletReport),
        ),
        (
            "running, trusted",
            Facts { mode: Mode::Ec2Only, ..silent() },
            Verdict::Safe(Rung::Trusted),
        ),
        (
            "running, off",
            Facts { mode: Mode::Off, instance: Fact::Unknown, ..silent() },
            Verdict::Safe(Rung::Trusted),
        ),
        (
            "override ordered",
            Facts { override_order: override_order(node(), SINCE), ..silent() },
            Verdict::Safe(Rung::OverrideOrder),
        ),
        (
            "override ordered for what is stuck",
            Facts { override_order: override_order(node(), SINCE), ..at(Phase::Leaving) },
            Verdict::Safe(Rung::OverrideOrder),
        ),
        // Facts that are no evidence.
        (
            "F32: override ordered for another instance",
            Facts { override_order: override_order(other_node(), SINCE), ..silent() },
            refuse(Refusal::NoReport),
        ),
        (
            "F27, F28: override ordered for an attachment before",
            Facts { override_order: override_order(node(), LATER), ..silent() },
            refuse(Refusal::NoReport),
        ),
        (
            "attachment without a time",
            Facts {
                attachment: Fact::Present(AttachmentFact { phase: Phase::Held, since: None }),
                override_order: override_order(node(), SINCE),
                ..silent()
            },
            refuse(Refusal::NoReport),
        ),
        (
            "F10, F29: EC2 silent about the volume",
            Facts { attachment: Fact::Unknown, instance: stopped(), ..silent() },
            refuse(Refusal::AttachmentUnknown),
        ),
        (
            "F10, F29: EC2 silent about the instance",
            Facts { instance: Fact::Unknown, ..silent() },
            refuse(Refusal::InstanceUnknown),
        ),
        (
            "F30: InvalidInstanceID.NotFound",
            Facts { instance: Fact::Absent, ..silent() },
            refuse(Refusal::InstanceMissing),
        ),
        (
            "F30: NotFound, ec2-only",
            Facts { instance: Fact::Absent, mode: Mode::Ec2Only, ..silent() },
            refuse(Refusal::InstanceMissing),
        ),
        ("F5: hibernated", with(Stopped, Fact::Present(())), refuse(Refusal::Hibernated)),
        (
            "hibernated by our fence",
            Facts { fence: Fact::Present(()), ..with(Stopped, Fact::Present(())) },
            refuse(Refusal::Hibernated),
        ),
        (
            "stopped, hibernated or not",
            with(Stopped, Fact::Unknown),
            refuse(Refusal::HibernationUnknown),
        ),
        ("launching", with(Pending, Fact::Absent), Verdict::Wait(Waiting::Transition)),
        ("F4: stopping", with(Stopping, Fact::Absent), Verdict::Wait(Waiting::Transition)),
        ("shutting down", with(ShuttingDown, Fact::Absent), Verdict::Wait(Waiting::Transition)),
        (
            "F43: a fence that EC2 does not show yet, or that failed after it was accepted",
            Facts { fence: Fact::Present(()), ..silent() },
            refuse(Refusal::NoReport),
        ),
        ("F9, F33: in use", kubelet_report(KubeletReport::InUse), refuse(Refusal::InUse)),
        ("F9: not ready", kubelet_report(KubeletReport::NotReady), refuse(Refusal::NodeNotReady)),
        ("no report", silent(), refuse(Refusal::NoReport)),
        (
            "F31: no Node object",
            Facts { kubelet_report: Fact::Absent, ..silent() },
            refuse(Refusal::NoReport),
        ),
        (
            "F28: a report, a fence and an order from before the attach: the stop that they tell of is over",
            Facts {
                fence: Fact::Present(()),
                override_order: override_order(node(), LATER),
                ..kubelet_report(KubeletReport::InUse)
            },
            refuse(Refusal::InUse),
        ),
        (
            "F43: a fence whose stop does not end",
            Facts { fence: Fact::Present(()), ..with(Stopping, Fact::Absent) },
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "F43: a fence that terminates what cannot be stopped",
            Facts { fence: Fact::Present(()), ..with(Terminated, Fact::Absent) },
            Verdict::Safe(Rung::Fenced),
        ),
        ("strange attachment", at(Phase::Strange), refuse(Refusal::StrangeState)),
        ("strange instance", with(Strange, Fact::Absent), refuse(Refusal::StrangeState)),
    ];
    for (what, facts, want) in rows {
        assert_eq!(decide(facts), *want, "{what}");
    }
}
