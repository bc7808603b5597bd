mod properties;
mod table;

use ebs_csi_wire::InstanceId;

use super::*;
use crate::facts::AttachTime;

const SINCE: AttachTime = AttachTime { seconds: 1_767_225_600, nanoseconds: 0 };
const LATER: AttachTime = AttachTime { seconds: 1_767_225_700, nanoseconds: 0 };

fn node() -> InstanceId {
    InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap()
}

fn other_node() -> InstanceId {
    InstanceId::parse("i-0bbbbbbbbbbbbbbb2").unwrap()
}

fn attachment(phase: Phase) -> Fact<AttachmentFact> {
    Fact::Present(AttachmentFact { phase, since: Some(SINCE) })
}

fn instance(power: Power, hibernation: Fact<()>) -> Fact<InstanceFact> {
    Fact::Present(InstanceFact { power, hibernation })
}

fn override_order(instance: InstanceId, since: AttachTime) -> Fact<OverrideOrder> {
    Fact::Present(OverrideOrder { instance, since, subject: node() })
}

/// Returns the facts of a volume on a running instance, without any report.
fn silent() -> Facts {
    Facts {
        mode: Mode::Enforce,
        attachment: attachment(Phase::Attached),
        instance: instance(Power::Running, Fact::Absent),
        node: Fact::Unknown,
        fence: Fact::Absent,
        override_order: Fact::Absent,
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
fn each_refusal_has_its_next_step() {
    for (refusal, part) in [
        (Refusal::InstanceUnknown, "asks EC2 again"),
        (Refusal::UnrecognisedState, "update the driver"),
        (Refusal::InstanceMissing, "detach the volume"),
        (Refusal::Hibernated, "without hibernation"),
        (Refusal::InUse, "end what uses the volume"),
        (Refusal::NodeNotReady, "bring the node back"),
        (Refusal::NoReport, "node-lifecycle"),
        (Refusal::Running, "stop or terminate"),
    ] {
        let step = refusal.next_step();
        assert!(step.contains(part), "{refusal}: {step}");
    }
}

#[test]
fn verdicts_have_the_labels_of_metrics() {
    let labels: Vec<_> = Verdict::all().map(Verdict::label).collect();
    let expected = [
        ("done", "no-attachment"),
        ("safe", "terminated"),
        ("safe", "stopped"),
        ("safe", "fenced"),
        ("safe", "node-answer"),
        ("safe", "kubelet-report"),
        ("safe", "trusted"),
        ("safe", "break-glass"),
        ("wait", "leaving"),
        ("wait", "transition"),
        ("wait", "promise"),
        ("refuse", "attachment-unknown"),
        ("refuse", "instance-unknown"),
        ("refuse", "strange-state"),
        ("refuse", "instance-missing"),
        ("refuse", "hibernated"),
        ("refuse", "hibernation-unknown"),
        ("refuse", "in-use"),
        ("refuse", "node-not-ready"),
        ("refuse", "no-report"),
        ("refuse", "running"),
    ];
    assert_eq!(labels, expected);
}

#[test]
fn only_unknown_state_in_ec2_is_missing_data() {
    let missing = Refusal::ALL.into_iter().filter(|why| why.is_missing_data());
    let names: Vec<_> = missing.map(|why| why.to_string()).collect();
    assert_eq!(names, ["attachment-unknown", "instance-unknown"]);
}
