mod node;
mod volumes;

use std::collections::BTreeMap;

use super::*;
use crate::lifecycle::{Claim, Evidence};

const HERE: &str = "i-1";
const ELSEWHERE: &str = "i-2";

pub(crate) fn pod(name: &str, volumes: &[&str]) -> Pod {
    let ours = |volume: &&str| Claim::Ours { volume: (*volume).to_owned(), shared: false };
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
        version: "1".to_owned(),
        volume: volume.to_owned(),
        instance: Some(HERE.to_owned()),
        deleting: false,
        retry_requested: false,
    }
}

/// Returns the facts of a node that is not Ready, with one pod on two attached volumes; nothing is
/// known about either volume.
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

fn running() -> InstanceEvidence {
    InstanceEvidence::Running { impaired: Fact::Unknown }
}

fn tainted(boot: &str) -> OutOfService {
    OutOfService::Ours(TaintedBoot {
        instance: HERE.to_owned(),
        launched: String::new(),
        boot: boot.to_owned(),
    })
}

/// Returns an intent in short form.
fn word(intent: &Intent) -> String {
    match intent {
        Intent::AddTaint(about) => format!("taint {} {}", about.instance, about.boot),
        Intent::RemoveTaint => "lift".to_owned(),
        Intent::DeletePod { name, .. } => format!("pod {name}"),
        Intent::DeleteAttachment { name, .. } => format!("attachment {name}"),
        Intent::RetryDetach { name, .. } => format!("retry {name}"),
    }
}

type Change = fn(&mut NodeFacts);

/// The name of a case, its difference from the start, and the expected phase and intents.
type Row = (&'static str, Change, Phase, &'static [&'static str]);

/// Checks rows that start from [`dead`].
fn check(mode: FailoverMode, rows: &[Row]) {
    check_from(&dead(), mode, rows);
}

fn check_from(start: &NodeFacts, mode: FailoverMode, rows: &[Row]) {
    for (name, change, phase, want) in rows {
        let mut facts = start.clone();
        change(&mut facts);
        let step = step(&facts, mode);
        let got: Vec<String> = step.intents.iter().map(word).collect();
        assert_eq!(step.phase, *phase, "{name}");
        assert_eq!(got, *want, "{name}");
    }
}
