use std::collections::BTreeMap;

use super::*;
use crate::lifecycle::{Claim, Evidence};

const HERE: &str = "i-1";
const ELSEWHERE: &str = "i-2";

pub(crate) fn pod(name: &str, volumes: &[&str]) -> Pod {
    let ours = |volume: &&str| Claim::Ours {
        volume: (*volume).to_owned(),
        shared: false,
    };
    Pod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        deleting: false,
        ended: false,
        claims: volumes.iter().map(ours).collect(),
        tolerations: Vec::new(),
        of_daemon_set: false,
        mirror: false,
        opted_out: false,
    }
}

pub(crate) fn attachment(volume: &str) -> Attachment {
    Attachment {
        name: format!("csi-{volume}"),
        uid: format!("uid-csi-{volume}"),
        volume: volume.to_owned(),
        instance: Some(HERE.to_owned()),
        deleting: false,
        nudged: false,
    }
}

/// A node that is not Ready, with one pod on two attached volumes; nothing is known of any.
fn dead() -> NodeFacts {
    NodeFacts {
        object: Fact::Present(Node {
            ready: Readiness::NotReady,
            instance: Some(HERE.to_owned()),
            boot: "boot-1".to_owned(),
            out_of_service: OutOfService::None,
            opted_out: false,
            may_fence: false,
            lost_for_long: false,
        }),
        attachments: vec![attachment("vol-1"), attachment("vol-2")],
        pods: vec![pod("db-0", &["vol-1", "vol-2"])],
        volumes: BTreeMap::new(),
        instances: BTreeMap::new(),
    }
}

fn answer(facts: &mut NodeFacts, volume: &str, evidence: Evidence) {
    let key = (HERE.to_owned(), volume.to_owned());
    facts.volumes.insert(key, evidence);
}

fn is_off(facts: &mut NodeFacts, instance: &str) {
    let launched = "2026-01-01T00:00:00Z".to_owned();
    let off = InstanceEvidence::Off { launched };
    facts.instances.insert(instance.to_owned(), off);
}

fn node(facts: &mut NodeFacts) -> &mut Node {
    match &mut facts.object {
        Fact::Present(node) => node,
        Fact::Absent | Fact::Unknown => panic!("a node is there"),
    }
}

fn tainted(boot: &str) -> OutOfService {
    OutOfService::Ours(Return {
        instance: HERE.to_owned(),
        launched: String::new(),
        boot: boot.to_owned(),
    })
}

/// An intent in short.
fn word(intent: &Intent) -> String {
    match intent {
        Intent::AddTaint(about) => format!("taint {} {}", about.instance, about.boot),
        Intent::RemoveTaint => "lift".to_owned(),
        Intent::DeletePod { name, .. } => format!("pod {name}"),
        Intent::DeleteAttachment { name, .. } => format!("attachment {name}"),
        Intent::Nudge { name, .. } => format!("nudge {name}"),
    }
}

#[test]
fn every_rule_has_a_row() {
    use FailoverMode::{Kep, ProveFirst};
    type Change = fn(&mut NodeFacts);
    type Row = (
        &'static str,
        FailoverMode,
        Change,
        Phase,
        &'static [&'static str],
    );
    let rows: &[Row] = &[
        (
            "ready",
            ProveFirst,
            |f| node(f).ready = Readiness::Ready,
            Phase::Healthy,
            &[],
        ),
        (
            "ready, whatever is answered",
            ProveFirst,
            |f| {
                node(f).ready = Readiness::Ready;
                is_off(f, HERE);
            },
            Phase::Healthy,
            &[],
        ),
        (
            "nothing is answered",
            ProveFirst,
            |_| (),
            Phase::Suspect,
            &[],
        ),
        (
            "nodes could not be listed",
            ProveFirst,
            |f| {
                f.object = Fact::Unknown;
                is_off(f, HERE);
            },
            Phase::Suspect,
            &[],
        ),
        (
            "F9: the instance runs",
            ProveFirst,
            |f| {
                answer(f, "vol-1", Evidence::Unproven);
                answer(f, "vol-2", Evidence::Unproven);
            },
            Phase::Querying,
            &[],
        ),
        (
            "F4: the instance is stopping",
            ProveFirst,
            |f| answer(f, "vol-1", Evidence::Waiting),
            Phase::Querying,
            &[],
        ),
        (
            "F1, F3: the instance is off",
            ProveFirst,
            |f| is_off(f, HERE),
            Phase::NodeProven,
            &["taint i-1 boot-1"],
        ),
        (
            "another instance is off",
            ProveFirst,
            |f| is_off(f, ELSEWHERE),
            Phase::Suspect,
            &[],
        ),
        (
            "off, and nothing of this driver is there",
            ProveFirst,
            |f| {
                is_off(f, HERE);
                f.attachments.clear();
                f.pods.clear();
            },
            Phase::Suspect,
            &[],
        ),
        (
            "off, and the person does not want it",
            ProveFirst,
            |f| {
                is_off(f, HERE);
                node(f).opted_out = true;
            },
            Phase::NodeProven,
            &[],
        ),
        (
            "F34: a person's taint, the instance runs",
            ProveFirst,
            |f| {
                node(f).out_of_service = OutOfService::Foreign;
                answer(f, "vol-1", Evidence::Unproven);
                answer(f, "vol-2", Evidence::Unproven);
            },
            Phase::Querying,
            &[],
        ),
        (
            "a person's taint is not doubled",
            ProveFirst,
            |f| {
                node(f).out_of_service = OutOfService::Foreign;
                is_off(f, HERE);
            },
            Phase::NodeProven,
            &[],
        ),
        (
            "F35: a person's taint on a ready node",
            ProveFirst,
            |f| {
                node(f).out_of_service = OutOfService::Foreign;
                node(f).ready = Readiness::Ready;
                f.attachments.clear();
                f.pods.clear();
            },
            Phase::Healthy,
            &[],
        ),
        (
            "F36: one of the pod's two volumes is proved",
            ProveFirst,
            |f| {
                answer(f, "vol-1", Evidence::Proven);
                answer(f, "vol-2", Evidence::Unproven);
            },
            Phase::VolumesProven,
            &[],
        ),
        (
            "both volumes are proved",
            ProveFirst,
            |f| {
                answer(f, "vol-1", Evidence::Proven);
                answer(f, "vol-2", Evidence::Proven);
            },
            Phase::VolumesProven,
            &["pod db-0"],
        ),
        (
            "proved, and its pods are gone",
            ProveFirst,
            |f| {
                f.pods.clear();
                answer(f, "vol-1", Evidence::Proven);
            },
            Phase::VolumesProven,
            &["attachment csi-vol-1"],
        ),
        (
            "proved, and its pod has ended",
            ProveFirst,
            |f| {
                f.pods[0].ended = true;
                answer(f, "vol-1", Evidence::Proven);
            },
            Phase::VolumesProven,
            &["attachment csi-vol-1"],
        ),
        (
            "F37: a pod with another driver's volume",
            ProveFirst,
            |f| {
                f.pods[0].claims.push(Claim::Foreign);
                answer(f, "vol-1", Evidence::Proven);
                answer(f, "vol-2", Evidence::Proven);
            },
            Phase::VolumesProven,
            &[],
        ),
        (
            "a detach that was refused and is safe now",
            ProveFirst,
            |f| {
                f.pods.clear();
                f.attachments[0].deleting = true;
                answer(f, "vol-1", Evidence::Proven);
            },
            Phase::VolumesProven,
            &["nudge csi-vol-1"],
        ),
        (
            "it is nudged once",
            ProveFirst,
            |f| {
                f.pods.clear();
                f.attachments[0].deleting = true;
                f.attachments[0].nudged = true;
                answer(f, "vol-1", Evidence::Proven);
            },
            Phase::VolumesProven,
            &[],
        ),
        (
            "F31: the Node object is gone, the instance runs",
            ProveFirst,
            |f| {
                f.object = Fact::Absent;
                answer(f, "vol-1", Evidence::Unproven);
            },
            Phase::Querying,
            &[],
        ),
        (
            "F2: the Node object is gone, the instance is off",
            ProveFirst,
            |f| {
                f.object = Fact::Absent;
                f.pods.clear();
                is_off(f, HERE);
                answer(f, "vol-1", Evidence::Proven);
                answer(f, "vol-2", Evidence::Proven);
            },
            Phase::NodeProven,
            &["attachment csi-vol-1", "attachment csi-vol-2"],
        ),
        (
            "gone, and nothing is left",
            ProveFirst,
            |f| {
                f.object = Fact::Absent;
                f.pods.clear();
                f.attachments.clear();
            },
            Phase::Healthy,
            &[],
        ),
        (
            "F32: the name belongs to another instance now",
            ProveFirst,
            |f| {
                f.pods.clear();
                node(f).instance = Some(ELSEWHERE.to_owned());
                answer(f, "vol-1", Evidence::Proven);
                is_off(f, HERE);
            },
            Phase::VolumesProven,
            &[],
        ),
        (
            "ours, not back",
            ProveFirst,
            |f| {
                node(f).out_of_service = tainted("boot-1");
                f.attachments.clear();
                f.pods.clear();
            },
            Phase::Acting,
            &[],
        ),
        (
            "ours, ready, and the same boot",
            ProveFirst,
            |f| {
                node(f).out_of_service = tainted("boot-1");
                node(f).ready = Readiness::Ready;
                f.attachments.clear();
                f.pods.clear();
            },
            Phase::Acting,
            &[],
        ),
        (
            "ours, booted again, an attachment is left",
            ProveFirst,
            |f| {
                node(f).out_of_service = tainted("boot-0");
                node(f).ready = Readiness::Ready;
                f.pods.clear();
            },
            Phase::Recovering,
            &[],
        ),
        (
            "ours, booted again, a pod is ending",
            ProveFirst,
            |f| {
                node(f).out_of_service = tainted("boot-0");
                node(f).ready = Readiness::Ready;
                f.attachments.clear();
                f.pods[0].deleting = true;
            },
            Phase::Recovering,
            &[],
        ),
        (
            "ours, booted again, nothing left",
            ProveFirst,
            |f| {
                node(f).out_of_service = tainted("boot-0");
                node(f).ready = Readiness::Ready;
                f.attachments.clear();
                f.pods.clear();
            },
            Phase::Recovering,
            &["lift"],
        ),
        (
            "kep: a pod that Kubernetes does not want to end yet",
            Kep,
            |_| (),
            Phase::Suspect,
            &[],
        ),
        (
            "kep: a pod that Kubernetes wants to end",
            Kep,
            |f| f.pods[0].deleting = true,
            Phase::Suspect,
            &["pod db-0"],
        ),
        (
            "kep: its attachments follow",
            Kep,
            |f| f.pods.clear(),
            Phase::Suspect,
            &["attachment csi-vol-1", "attachment csi-vol-2"],
        ),
    ];
    for (name, mode, change, phase, want) in rows {
        let mut facts = dead();
        change(&mut facts);
        let step = step(&facts, *mode);
        let got: Vec<String> = step.intents.iter().map(word).collect();
        assert_eq!(step.phase, *phase, "{name}");
        assert_eq!(got, *want, "{name}");
    }
}
