use ebs_csi_wire::InstanceId;
use proptest::prelude::*;

use super::*;
use crate::facts::AttachTime;

const SINCE: AttachTime = AttachTime {
    seconds: 1_767_225_600,
    nanoseconds: 0,
};
const LATER: AttachTime = AttachTime {
    seconds: 1_767_225_700,
    nanoseconds: 0,
};

fn node() -> InstanceId {
    InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap()
}

fn other_node() -> InstanceId {
    InstanceId::parse("i-0bbbbbbbbbbbbbbb2").unwrap()
}

fn attachment(phase: Phase) -> Fact<AttachmentFact> {
    Fact::Present(AttachmentFact {
        phase,
        since: Some(SINCE),
    })
}

fn instance(power: Power, hibernation: Fact<()>) -> Fact<InstanceFact> {
    Fact::Present(InstanceFact { power, hibernation })
}

fn glass(instance: InstanceId, since: AttachTime) -> Fact<BrokenGlass> {
    Fact::Present(BrokenGlass {
        instance,
        since,
        asked: node(),
    })
}

/// A volume at a running instance, of which nobody has said anything.
fn silent() -> Facts {
    Facts {
        mode: Mode::Enforce,
        attachment: attachment(Phase::Held),
        instance: instance(Power::Running, Fact::Absent),
        word: Fact::Unknown,
        fence: Fact::Absent,
        broken_glass: Fact::Absent,
    }
}

/// A row per line of the ladder, and per thing that is no evidence.
#[test]
fn each_line_of_the_ladder() {
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
            "on its way off",
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
        // Not evidence.
        (
            "glass broken for another instance",
            Facts {
                broken_glass: glass(other_node(), SINCE),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        (
            "glass broken for an attachment before",
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
            "EC2 silent about the volume",
            Facts {
                attachment: Fact::Unknown,
                instance: stopped(),
                ..silent()
            },
            refuse(Refusal::AttachmentUnknown),
        ),
        (
            "EC2 silent about the instance",
            Facts {
                instance: Fact::Unknown,
                ..silent()
            },
            refuse(Refusal::InstanceUnknown),
        ),
        (
            "InvalidInstanceID.NotFound",
            Facts {
                instance: Fact::Absent,
                ..silent()
            },
            refuse(Refusal::InstanceMissing),
        ),
        (
            "NotFound, ec2-only",
            Facts {
                instance: Fact::Absent,
                mode: Mode::Ec2Only,
                ..silent()
            },
            refuse(Refusal::InstanceMissing),
        ),
        (
            "hibernated",
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
            "stopping",
            with(Stopping, Fact::Absent),
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "shutting down",
            with(ShuttingDown, Fact::Absent),
            Verdict::Wait(Waiting::Transition),
        ),
        (
            "a fence that EC2 does not show yet",
            Facts {
                fence: Fact::Present(()),
                ..silent()
            },
            refuse(Refusal::NoWord),
        ),
        ("in use", word(NodeWord::InUse), refuse(Refusal::InUse)),
        (
            "not ready",
            word(NodeWord::NotReady),
            refuse(Refusal::NodeNotReady),
        ),
        ("no word", silent(), refuse(Refusal::NoWord)),
        (
            "no Node object",
            Facts {
                word: Fact::Absent,
                ..silent()
            },
            refuse(Refusal::NoWord),
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

#[test]
fn modes_are_read_as_they_are_written() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("on".parse::<Mode>().is_err());
}

#[test]
fn each_refusal_has_a_token_of_its_own_and_a_next_step() {
    let tokens: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|r| r.token()).collect();
    assert_eq!(tokens.len(), Refusal::ALL.len());
    assert!(Refusal::ALL.iter().all(|r| !r.next_step().is_empty()));
}

fn fact<T: Clone + fmt::Debug + 'static>(
    present: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Fact<T>> {
    prop_oneof![
        3 => present.prop_map(Fact::Present),
        1 => Just(Fact::Absent),
        1 => Just(Fact::Unknown),
    ]
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let power = prop_oneof![
        Just(Power::Pending),
        Just(Power::Running),
        Just(Power::ShuttingDown),
        Just(Power::Terminated),
        Just(Power::Stopping),
        Just(Power::Stopped),
        Just(Power::Strange),
    ];
    let phase = prop_oneof![
        Just(Phase::Held),
        Just(Phase::Leaving),
        Just(Phase::Off),
        Just(Phase::Strange),
    ];
    let since = || prop_oneof![Just(SINCE), Just(LATER)];
    let word = prop_oneof![
        Just(NodeWord::Released),
        Just(NodeWord::InUse),
        Just(NodeWord::NotReady),
    ];
    let glass =
        (prop_oneof![Just(node()), Just(other_node())], since()).prop_map(|(instance, since)| {
            BrokenGlass {
                instance,
                since,
                asked: node(),
            }
        });
    (
        prop_oneof![Just(Mode::Off), Just(Mode::Ec2Only), Just(Mode::Enforce)],
        fact(
            (phase, proptest::option::of(since()))
                .prop_map(|(phase, since)| AttachmentFact { phase, since }),
        ),
        fact(
            (power, fact(Just(())))
                .prop_map(|(power, hibernation)| InstanceFact { power, hibernation }),
        ),
        fact(word),
        fact(Just(())),
        fact(glass),
    )
        .prop_map(
            |(mode, attachment, instance, word, fence, broken_glass)| Facts {
                mode,
                attachment,
                instance,
                word,
                fence,
                broken_glass,
            },
        )
}

/// The facts with one of them lost.
fn losses(facts: &Facts) -> Vec<Facts> {
    let lost = |change: &dyn Fn(&mut Facts)| {
        let mut facts = facts.clone();
        change(&mut facts);
        facts
    };
    vec![
        lost(&|f| f.attachment = Fact::Unknown),
        lost(&|f| f.instance = Fact::Unknown),
        lost(&|f| f.word = Fact::Unknown),
        lost(&|f| f.fence = Fact::Unknown),
        lost(&|f| f.broken_glass = Fact::Unknown),
        lost(&|f| {
            if let Fact::Present(instance) = &mut f.instance {
                instance.hibernation = Fact::Unknown;
            }
        }),
        lost(&|f| {
            if let Fact::Present(attachment) = &mut f.attachment {
                attachment.since = None;
            }
        }),
    ]
}

fn lets_go(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Safe(_) | Verdict::Done)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Losing a fact never makes a detach safe.
    #[test]
    fn knowing_less_is_never_safer(facts in any_facts()) {
        if !lets_go(decide(&facts)) {
            for less in losses(&facts) {
                prop_assert!(!lets_go(decide(&less)), "{less:?}");
            }
        }
    }

    /// With nothing known, nothing is let go.
    #[test]
    fn silence_is_refused(facts in any_facts()) {
        let facts = Facts { attachment: Fact::Unknown, ..facts };
        prop_assert_eq!(decide(&facts), Verdict::Refuse(Refusal::AttachmentUnknown));
    }

    /// An instance on its way from one state to another is waited for, whatever else is known.
    #[test]
    fn a_transition_is_waited_for(facts in any_facts(), which in 0..3_usize) {
        let power = [Power::Pending, Power::Stopping, Power::ShuttingDown][which];
        let facts = Facts {
            mode: Mode::Enforce,
            attachment: attachment(Phase::Held),
            instance: instance(power, Fact::Unknown),
            broken_glass: Fact::Absent,
            ..facts
        };
        prop_assert_eq!(decide(&facts), Verdict::Wait(Waiting::Transition));
    }

    /// What is said of a whole instance holds for each volume at it, under the strictest mode.
    #[test]
    fn an_instance_that_is_let_go_lets_each_volume_go(facts in any_facts()) {
        let facts = Facts {
            mode: Mode::Enforce,
            attachment: attachment(Phase::Held),
            broken_glass: Fact::Absent,
            ..facts
        };
        let whole = decide_instance(&facts.instance, facts.fence);
        if whole == Verdict::Refuse(Refusal::Running) {
            prop_assert!(matches!(facts.instance, Fact::Present(i) if i.power == Power::Running));
        } else {
            prop_assert_eq!(decide(&facts), whole);
        }
    }

    /// Whatever `enforce` lets go by itself, `ec2-only` lets go too, and `off` as well: the modes are ordered.
    #[test]
    fn a_stricter_mode_lets_no_more_go(facts in any_facts()) {
        let under = |mode| lets_go(decide(&Facts { mode, ..facts.clone() }));
        prop_assert!(!under(Mode::Enforce) || under(Mode::Ec2Only));
        prop_assert!(!under(Mode::Ec2Only) || under(Mode::Off));
    }
}
