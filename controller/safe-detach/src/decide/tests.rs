mod ladder;
mod properties;

use ebs_csi_wire::InstanceId;

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

/// Returns the facts of a volume on a running instance, without any report.
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

#[test]
fn modes_round_trip_and_unknown_mode_fails() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("on".parse::<Mode>().is_err());
}

#[test]
fn each_refusal_has_unique_token_and_next_step() {
    let tokens: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|r| r.token()).collect();
    assert_eq!(tokens.len(), Refusal::ALL.len());
    assert!(Refusal::ALL.iter().all(|r| !r.next_step().is_empty()));
}
