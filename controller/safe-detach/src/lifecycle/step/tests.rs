mod node;
mod volumes;

use super::*;
use crate::lifecycle::{Claim, VolumeEvidence};
use NodePhase::{Acting, Healthy, NodeProven, Querying, Recovering, Suspect, VolumesProven};

const HERE: &str = "i-1";
const ELSEWHERE: &str = "i-2";

fn object(name: &str) -> ObjectVersion {
    let (name, uid) = (name.to_owned(), format!("uid-{name}"));
    ObjectVersion { name, uid, ..ObjectVersion::default() }
}

pub(crate) fn pod(name: &str, volumes: &[&str]) -> Pod {
    let ours = |volume: &&str| Claim::Ours { volume: (*volume).to_owned(), shared: false };
    let claims = volumes.iter().map(ours).collect();
    Pod { object: object(name), claims, ..Pod::default() }
}

fn attachment(volume: &str) -> Attachment {
    Attachment {
        object: object(&format!("csi-{volume}")),
        volume: volume.to_owned(),
        instance: Some(HERE.to_owned()),
        ..Attachment::default()
    }
}

/// Returns the facts of a node that is not Ready, with one pod on two attached volumes; nothing is
/// known about either volume.
fn dead() -> NodeFacts {
    NodeFacts {
        object: Fact::Present(Node {
            instance: Some(HERE.to_owned()),
            boot: "boot-1".to_owned(),
            ..Node::default()
        }),
        attachments: vec![attachment("vol-1"), attachment("vol-2")],
        pods: vec![pod("db-0", &["vol-1", "vol-2"])],
        ..NodeFacts::default()
    }
}

pub(crate) fn node(facts: &mut NodeFacts) -> &mut Node {
    match &mut facts.object {
        Fact::Present(node) => node,
        Fact::Absent | Fact::Unknown => panic!("a node is there"),
    }
}

pub(crate) fn tainted(boot: &str) -> OutOfService {
    let (instance, boot) = (HERE.to_owned(), boot.to_owned());
    OutOfService::Ours(TaintedBoot { instance, launched: String::new(), boot })
}

/// Makes the pod's only volume one that several nodes may use at once.
pub(crate) fn share_volume(facts: &mut NodeFacts) {
    facts.pods[0].claims = vec![Claim::Ours { volume: "vol-1".to_owned(), shared: true }];
}

fn answer(facts: &mut NodeFacts, volume: &str, evidence: VolumeEvidence) {
    let key = (HERE.to_owned(), volume.to_owned());
    facts.volumes.insert(key, evidence);
}

fn set_instance(facts: &mut NodeFacts, instance: &str, evidence: InstanceEvidence) {
    facts.instances.insert(instance.to_owned(), evidence);
}

fn off() -> InstanceEvidence {
    InstanceEvidence::Off { launched: "2026-01-01T00:00:00Z".to_owned() }
}

// Changes that cases are made of.
const HERE_OFF: Change = |facts| set_instance(facts, HERE, off());
const HERE_NOT_OFF: Change = |facts| set_instance(facts, HERE, InstanceEvidence::NotOff);
const ELSEWHERE_OFF: Change = |facts| set_instance(facts, ELSEWHERE, off());
const ONE_PROVEN: Change = |facts| answer(facts, "vol-1", VolumeEvidence::Proven);
const ONE_UNPROVEN: Change = |facts| answer(facts, "vol-1", VolumeEvidence::Unproven);
const OTHER_UNPROVEN: Change = |facts| answer(facts, "vol-2", VolumeEvidence::Unproven);
const BOTH_PROVEN: Change = |facts| {
    ONE_PROVEN(facts);
    answer(facts, "vol-2", VolumeEvidence::Proven);
};
const BOTH_UNPROVEN: Change = |facts| {
    ONE_UNPROVEN(facts);
    OTHER_UNPROVEN(facts);
};
const READY: Change = |facts| node(facts).ready = true;
const NO_OBJECT: Change = |facts| facts.object = Fact::Absent;
const NO_PODS: Change = |facts| facts.pods.clear();
const NOTHING_LEFT: Change = |facts| {
    facts.pods.clear();
    facts.attachments.clear();
};
/// The pod tolerates every taint.
const TOLERATES: Change = |facts| facts.pods[0].tolerations = vec![Toleration::default()];
const POD_OPTED_OUT: Change = |facts| facts.pods[0].opted_out = true;
const POD_DELETING: Change = |facts| facts.pods[0].deleting = true;
const POD_ENDED: Change = |facts| facts.pods[0].ended = true;

/// Returns an intent in short form.
fn word(intent: &Intent) -> String {
    match intent {
        Intent::AddTaint(about) => format!("taint {} {}", about.instance, about.boot),
        Intent::RemoveTaint => "remove taint".to_owned(),
        Intent::DeletePod(pod) => format!("pod {}", pod.name),
        Intent::DeleteAttachment(attachment) => format!("attachment {}", attachment.name),
        Intent::RetryDetach(attachment) => format!("retry {}", attachment.name),
    }
}

type Change = fn(&mut NodeFacts);

/// The name of a case, its differences from the start, and the expected phase and intents.
type StepCase<'a> = (&'a str, &'a [Change], NodePhase, &'a [&'a str]);

/// Checks cases of `prove-first` that start from [`dead`].
fn check(cases: &[StepCase<'_>]) {
    check_from(&dead(), FailoverMode::ProveFirst, cases);
}

fn check_from(start: &NodeFacts, mode: FailoverMode, cases: &[StepCase<'_>]) {
    for (name, changes, phase, want) in cases {
        let mut facts = start.clone();
        changes.iter().for_each(|change| change(&mut facts));
        let step = step(&facts, mode);
        let got: Vec<String> = step.intents.iter().map(word).collect();
        assert_eq!(step.phase, *phase, "{name}");
        assert_eq!(got, *want, "{name}");
    }
}
