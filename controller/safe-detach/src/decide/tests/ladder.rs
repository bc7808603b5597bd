//! Tests the decision table, row by row.

use super::*;

/// Has a case for each row of the table, and for each fact that is no evidence.
#[test]
fn facts_decide_verdict_as_in_decision_table() {
    use Power::{Pending, ShuttingDown, Stopped, Stopping, Strange, Terminated};
    let stopped = || instance(Stopped, Fact::Absent);
    let word = |word| Facts {
        word: Fact::Present(word),
        ..silent()
    };
    let with = |power, hibernation| Facts {
        instance: instance(power, hibernation),
        ..silent()
    };
    let at = |phase| Facts {
        attachment: attachment(phase),
        instance: stopped(),
        ..silent()
    };
    let refuse = Verdict::Refuse;
    let rows: &[(&str, Facts, Verdict)] = &[
        (
            "no attachment",
            Facts {
                attachment: Fact::Absent,
                instance: Fact::Unknown,
                ..silent()
            },
            Verdict::Done,
        ),
        ("off already", at(Phase::Off), Verdict::Done),
        (
            "F26: on its way off, busy or not",
            at(Phase::Leaving),
            Verdict::Wait(Waiting::Leaving),
        ),
        (
            "terminated",
            with(Terminated, Fact::Unknown),
            Verdict::Safe(Rung::Terminated),
        ),
        (
            "stopped",
            with(Stopped, Fact::Absent),
            Verdict::Safe(Rung::Stopped),
        ),
        (
            "stopped by our fence",
            Facts {
                instance: stopped(),
                fence: Fact::Present(()),
                ..silent()
            },
            Verdict::Safe(Rung::Fenced),
        ),
        (
            "running, released",
            word(NodeWord::Released),
            Verdict::Safe(Rung::NodeWord),
        ),
        (
            "running, trusted",
            Facts {
                mode: Mode::Ec2Only,
                ..silent()
            },
            Verdict::Safe(Rung::Trusted),
        ),
        (
            "running, off",
            Facts {
                mode: Mode::Off,
                instance: Fact::Unknown,
                ..silent()
            },
            Verdict::Safe(Rung::Trusted),
        ),
        (
            "glass broken",
            Facts {
                broken_glass: glass(node(), SINCE),
                ..silent()
            },
            Verdict::Safe(Rung::BrokenGlass),
        ),
        (
            "glass broken for what is stuck",
            Facts {
                broken_glass: glass(node(), SINCE),
                ..at(Phase::Leaving)
            },
            Verdict::Safe(Rung::BrokenGlass),
        ),
        // Facts that are no evidence.
        (
            "F32: glass broken for another instance",
            Facts {
                broken_glass: glass(other_node(), SINCE),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "F27, F28: glass broken for an attachment before",
            Facts {
                broken_glass: glass(node(), LATER),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "attachment without a time",
            Facts {
                attachment: Fact::Present(AttachmentFact {
                    phase: Phase::Held,
                    since: None,
                }),
                broken_glass: glass(node(), SINCE),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "F10, F29: EC2 silent about the volume",
            Facts {
                attachment: Fact::Unknown,
                instance: stopped(),
                ..silent()
            },
            refuse(Refusal::AttachmentUnknown),
        ),
        (
            "F10, F29: EC2 silent about the instance",
            Facts {
                instance: Fact::Unknown,
                ..silent()
            },
            refuse(Refusal::InstanceUnknown),
        ),
        (
            "F30: InvalidInstanceID.NotFound",
            Facts {
                instance: Fact::Absent,
                ..silent()
            },
            refuse(Refusal::InstanceMissing),
        ),
        (
            "F30: NotFound, ec2-only",
            Facts {
                instance: Fact::Absent,
                mode: Mode::Ec2Only,
                ..silent()
            },
            refuse(Refusal::InstanceMissing),
        ),
        (
            "F5: hibernated",
            with(Stopped, Fact::Present(())),
            refuse(Refusal::Hibernated),
        ),
        (
            "hibernated by our fence",
            Facts {
                fence: Fact::Present(()),
                ..with(Stopped, Fact::Present(()))
            },
            refuse(Refusal::Hibernated),
        ),
        (
            "stopped, hibernated or not",
            with(Stopped, Fact::Unknown),
            refuse(Refusal::HibernationUnknown),
        ),
        (
            "launching",
            with(Pending, Fact::Absent),
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "F4: stopping",
            with(Stopping, Fact::Absent),
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "shutting down",
            with(ShuttingDown, Fact::Absent),
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "F43: a fence that EC2 does not show yet, or that failed after it was accepted",
            Facts {
                fence: Fact::Present(()),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "F9, F33: in use",
            word(NodeWord::InUse),
            refuse(Refusal::InUse),
        ),
        (
            "F9: not ready",
            word(NodeWord::NotReady),
            refuse(Refusal::NodeNotReady),
        ),
        ("no word", silent(), refuse(Refusal::NoWord)),
        (
            "F31: no Node object",
            Facts {
                word: Fact::Absent,
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "F28: a word, a fence and an order from before the attach: the stop that they tell of is over",
            Facts {
                fence: Fact::Present(()),
                broken_glass: glass(node(), LATER),
                ..word(NodeWord::InUse)
            },
            refuse(Refusal::InUse),
        ),
        (
            "F43: a fence whose stop does not end",
            Facts {
                fence: Fact::Present(()),
                ..with(Stopping, Fact::Absent)
            },
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "F43: a fence that terminates what cannot be stopped",
            Facts {
                fence: Fact::Present(()),
                ..with(Terminated, Fact::Absent)
            },
            Verdict::Safe(Rung::Fenced),
        ),
        (
            "strange attachment",
            at(Phase::Strange),
            refuse(Refusal::StrangeState),
        ),
        (
            "strange instance",
            with(Strange, Fact::Absent),
            refuse(Refusal::StrangeState),
        ),
    ];
    for (what, facts, want) in rows {
        assert_eq!(decide(facts), *want, "{what}");
    }
}
