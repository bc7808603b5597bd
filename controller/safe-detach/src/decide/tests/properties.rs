//! Tests properties that hold for every set of facts, not only for the expected ones.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

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
    let phase =
        select(vec![Phase::Attached, Phase::Leaving, Phase::NotAttached, Phase::Unrecognised]);
    let since = || select(vec![SINCE, LATER]);
    let node_evidence = vec![
        NodeEvidence::Released,
        NodeEvidence::ReleasedByKubelet,
        NodeEvidence::InUse,
        NodeEvidence::PromiseNeeded,
        NodeEvidence::NotReady,
    ];
    let override_order = (select(vec![node(), other_node()]), since())
        .prop_map(|(instance, since)| OverrideOrder { instance, since, subject: node() });
    let attachment = (phase, proptest::option::of(since()))
        .prop_map(|(phase, since)| AttachmentFact { phase, since });
    let instance = (select(Power::ALL.to_vec()), fact(Just(())))
        .prop_map(|(power, hibernation)| InstanceFact { power, hibernation });
    (
        select(Mode::ALL.to_vec()),
        fact(attachment),
        fact(instance),
        fact(select(node_evidence)),
        fact(Just(())),
        fact(override_order),
    )
        .prop_map(|(mode, attachment, instance, node, fence, override_order)| Facts {
            mode,
            attachment,
            instance,
            node,
            fence,
            override_order,
        })
}

/// Returns the facts with one of them lost, for each fact.
fn losses(facts: &Facts) -> Vec<Facts> {
    let changes: [fn(&mut Facts); 7] = [
        |f| f.attachment = Fact::Unknown,
        |f| f.instance = Fact::Unknown,
        |f| f.node = Fact::Unknown,
        |f| f.fence = Fact::Unknown,
        |f| f.override_order = Fact::Unknown,
        |f| {
            if let Fact::Present(instance) = &mut f.instance {
                instance.hibernation = Fact::Unknown;
            }
        },
        |f| {
            if let Fact::Present(attachment) = &mut f.attachment {
                attachment.since = None;
            }
        },
    ];
    let lost = changes.map(|change| {
        let mut facts = facts.clone();
        change(&mut facts);
        facts
    });
    lost.into()
}

fn permits_detach(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Safe(_) | Verdict::Done)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn losing_fact_never_permits_detach(facts in any_facts()) {
        if !permits_detach(decide(&facts)) {
            for less in losses(&facts) {
                prop_assert!(!permits_detach(decide(&less)), "{less:?}");
            }
        }
    }

    #[test]
    fn unknown_attachment_is_refused(facts in any_facts()) {
        let facts = Facts { attachment: Fact::Unknown, ..facts };
        prop_assert_eq!(decide(&facts), Verdict::Refuse(Refusal::AttachmentUnknown));
    }

    /// An instance in a transitional state is waited for, whatever else is known.
    #[test]
    fn attached_volume_on_transitional_instance_waits(facts in any_facts(), which in 0..3_usize) {
        let power = [Power::Pending, Power::Stopping, Power::ShuttingDown][which];
        let facts = Facts {
            mode: Mode::Enforce,
            attachment: attachment(Phase::Attached),
            instance: instance(power, Fact::Unknown),
            override_order: Fact::Absent,
            ..facts
        };
        prop_assert_eq!(decide(&facts), Verdict::Wait(Waiting::Transition));
    }

    /// The verdict on a whole instance holds for each of its volumes, in the strictest mode.
    #[test]
    fn instance_verdict_holds_for_each_volume(facts in any_facts()) {
        let facts = Facts {
            mode: Mode::Enforce,
            attachment: attachment(Phase::Attached),
            override_order: Fact::Absent,
            ..facts
        };
        let whole = decide_instance(&facts.instance, facts.fence);
        if whole == Verdict::Refuse(Refusal::Running) {
            prop_assert!(matches!(facts.instance, Fact::Present(i) if i.power == Power::Running));
        } else {
            prop_assert_eq!(decide(&facts), whole);
        }
    }

    /// Whatever `enforce` permits without an order, `ec2-only` and `off` permit too: the modes are
    /// ordered.
    #[test]
    fn stricter_mode_permits_no_additional_detach(facts in any_facts()) {
        let under = |mode| permits_detach(decide(&Facts { mode, ..facts.clone() }));
        prop_assert!(!under(Mode::Enforce) || under(Mode::Ec2Only));
        prop_assert!(!under(Mode::Ec2Only) || under(Mode::Off));
    }
}
