//! Explores every interleaving, in a small scope, with the shipped functions: of a volume from one
//! attach to the next ([`world`]), and of the replicas that act and the brake that limits them
//! ([`brake`]).
//!
//! `deploy/docs/failure-scenarios.md` defines the numbers of the properties. The run writes its
//! counts into `deploy/docs/model.md` with `UPDATE_GENERATED=1`, and otherwise compares them.
//! `EBS_CSI_MODEL=large` explores larger scopes; the variable may name one of them instead
//! (`EBS_CSI_MODEL="enforce, persons, two boots"`). Each larger scope takes minutes and up to some
//! gigabytes.

mod brake;
mod explore;
mod kubernetes_objects;
mod page;
mod planted;
mod world;

use std::collections::{BTreeMap, HashMap};

use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};
use ebs_csi_safe_detach::{Mode, OldAgents};
use explore::{Exploration, explore, join};
use page::Row;
use world::{Agents, Kubelet, PodKind, Rules, World};

fn is_large() -> bool {
    std::env::var_os("EBS_CSI_MODEL").is_some()
}

fn is_wanted(name: &str) -> bool {
    std::env::var("EBS_CSI_MODEL").is_ok_and(|scope| scope == "large" || scope == name)
}

fn print_counts(what: &str, found: Exploration) -> Exploration {
    let Exploration { states, steps, .. } = found;
    println!("{what}: {states} states, {steps} steps");
    for (goal, states) in &found.checked_from {
        println!("  from {states} states: {goal}");
    }
    found
}

fn assert_nothing_broken(what: &str, found: &Exploration, taken: &[impl AsRef<str>]) {
    if let Some((property, trace)) = &found.broken {
        panic!("{what}: {property}\n  {}", trace.join("\n  "));
    }
    // A property must not hold only because the steps that could break it never happened.
    for step in taken.iter().map(AsRef::as_ref) {
        assert!(found.taken.iter().any(|name| join(*name) == step), "{what}: never {step}");
    }
}

/// `enforce` and `prove-first`, one controller, one replica, no persons, and a kubelet that starts
/// anew.
const FAILOVER: Rules = Rules {
    mode: Mode::Enforce,
    failover: FailoverMode::ProveFirst,
    fault: world::Fault::None,
    pod: PodKind::Eligible,
    controllers: 1,
    replicas: 1,
    persons: false,
    finalizers: false,
    orders: false,
    fences: None,
    late_answers: false,
    boots: 1,
    power_fails: true,
    kubelet: Kubelet::RESTARTS,
    agents: Agents::Stay,
    old_agents: OldAgents::Refuse,
};

/// In `ec2-only`, the order of CSI calls is trusted.
const EC2_ONLY: Rules = Rules { mode: Mode::Ec2Only, kubelet: Kubelet::ORDERLY, ..FAILOVER };

/// `enforce` without failover, on nodes where everything happens.
const EVIDENCE: Rules = Rules {
    replicas: 0,
    persons: true,
    finalizers: true,
    power_fails: false,
    kubelet: Kubelet::FULL,
    agents: Agents::Replaced,
    ..FAILOVER
};

fn explore_world(rules: Rules) -> Exploration {
    explore(World::start(rules), &world::goals(rules), |world| world.next(rules))
}

/// Explores every state and checks that every goal can be reached from each.
fn explore_scope(what: &str, rules: Rules, taken: &[&str]) -> Row {
    let found = print_counts(what, explore_world(rules));
    assert_nothing_broken(what, &found, taken);
    assert!(found.checked_from.iter().all(|(_, states)| *states > 0), "{what}");
    Row::new(what, &found)
}

/// The name of a scope, its rules, and the steps that happen in it.
type Scope<'a> = (&'a str, Rules, &'a [&'a str]);
type Change = fn(&mut Rules);

/// Explores the scopes for that section of the page or, on demand, each of them made larger by each
/// of the changes.
fn explore_all(section: &str, scopes: &[Scope<'_>], larger: &[(&str, Change)]) {
    if !is_large() {
        let rows = scopes.iter().map(|(what, rules, taken)| explore_scope(what, *rules, taken));
        page::check(section, &rows.collect::<Vec<_>>());
        return;
    }
    for (what, rules, taken) in scopes {
        // In `ec2-only`, persons do nothing. There and with old agents, the order of CSI calls is
        // trusted.
        let trusts = rules.mode == Mode::Ec2Only || rules.agents == Agents::Old;
        for (how, change) in larger {
            let name = format!("{what}, {how}");
            let mut larger = *rules;
            change(&mut larger);
            let changes_order = (larger.persons, larger.kubelet) != (rules.persons, rules.kubelet);
            let same = larger == *rules || trusts && changes_order;
            if !same && is_wanted(&name) {
                explore_scope(&name, larger, taken);
            }
        }
    }
}

#[test]
fn no_interleaving_of_a_detach_breaks_a_property() {
    let (ended, stopped) = ("DetachVolume is sent: terminated", "DetachVolume is sent: stopped");
    let (answered, reported) =
        ("DetachVolume is sent: node-answer", "DetachVolume is sent: kubelet-report");
    let (trusted, ordered) = ("DetachVolume is sent: trusted", "DetachVolume is sent: break-glass");
    let of_promise = [
        answered,
        "decided: safe: free",
        "decided: safe: by promise",
        "a promise is requested",
        "a promise is recorded",
        "a promise ends",
        "the request for a promise is withdrawn",
        "kubelet starts anew",
        "the agent's page is not read",
        "a publish supersedes the call",
        "the node-agent's pod is replaced",
        "the facts are stale",
        "what held the disk ends",
        "the disk appears",
    ];
    let alone = Rules { finalizers: false, persons: false, agents: Agents::Stay, ..EVIDENCE };
    let orders = Rules { orders: true, power_fails: true, kubelet: Kubelet::RESTARTS, ..alone };
    let old = Rules {
        agents: Agents::Old,
        old_agents: OldAgents::KubeletReport,
        kubelet: Kubelet { restarts: false, holders: false, slow: true },
        ..alone
    };
    let both = Rules { controllers: 2, kubelet: Kubelet::RESTARTS, ..EVIDENCE };
    let mixed = Rules { agents: Agents::Mixed, ..EVIDENCE };
    let rows: [Scope<'_>; 6] = [
        (
            "ec2-only, orders",
            Rules { replicas: 0, orders: true, ..EC2_ONLY },
            &[trusted, ordered, ended, stopped],
        ),
        ("enforce, orders", orders, &[answered, ordered, ended, stopped]),
        ("enforce, everything at the node", EVIDENCE, &of_promise),
        ("enforce, two controllers", both, &of_promise[..12]),
        ("enforce, old agents, kubelet orderly", old, &[reported]),
        ("enforce, agents up and down, old refused", mixed, &[answered]),
    ];
    let larger: [(&str, Change); 3] = [
        ("two boots", |rules| rules.boots = 2),
        ("power too", |rules| rules.power_fails = true),
        ("everything at the node", |rules| rules.kubelet = Kubelet::FULL),
    ];
    explore_all("detach", &rows, &larger);
}

#[test]
fn failover_interleavings_keep_properties_and_goals_reachable() {
    let (stopped, trusted) = ("DetachVolume is sent: stopped", "DetachVolume is sent: trusted");
    let (fenced, refused) = ("the instance is fenced", "the fence is refused: checks pass");
    let (taint, removed) = ("our taint is set", "our taint is removed");
    let pod_deleted = "the pod is deleted by force";
    let with_persons = [
        stopped,
        taint,
        removed,
        "our taint is set: conflict",
        pod_deleted,
        "the VolumeAttachment is deleted",
        "a retry of the detach is requested",
        "a person deletes the pod by force",
    ];
    let (lost, impaired) = (Some(FenceWhen::Lost), Some(FenceWhen::Impaired));
    let kep = FailoverMode::Kep;
    // The largest scopes leave kubelet's restarts to the larger run.
    let orderly = Rules { kubelet: Kubelet::ORDERLY, ..FAILOVER };
    let both = Rules { controllers: 2, boots: 0, ..orderly };
    let two_replicas = [stopped, taint, removed, "our taint is removed: conflict"];
    let all_fencing = [stopped, taint, fenced, refused];
    let rows: [Scope<'_>; 7] = [
        ("ec2-only", EC2_ONLY, &[trusted, taint, removed]),
        ("enforce, two controllers, no boot", both, &two_replicas[..2]),
        ("enforce, persons", Rules { persons: true, ..orderly }, &with_persons),
        ("enforce, two replicas", Rules { replicas: 2, ..orderly }, &two_replicas),
        ("enforce, fencing lost", Rules { fences: lost, ..FAILOVER }, &all_fencing[..3]),
        ("enforce, fencing impaired", Rules { fences: impaired, ..FAILOVER }, &all_fencing),
        ("enforce, mode kep", Rules { failover: kep, ..FAILOVER }, &[stopped, pod_deleted]),
    ];
    let larger: [(&str, Change); 5] = [
        ("two boots", |rules| rules.boots = 2),
        ("late answers", |rules| rules.late_answers = true),
        ("persons too", |rules| rules.persons = true),
        ("kubelet starts anew", |rules| rules.kubelet = Kubelet::RESTARTS),
        ("everything at the node", |rules| rules.kubelet = Kubelet::FULL),
    ];
    explore_all("failover", &rows, &larger);
}

/// Each arrow has the first step that leads from the one phase to the other.
#[test]
fn drawing_has_every_transition_between_phases() {
    if is_large() {
        return;
    }
    let rules = Rules { kubelet: Kubelet::ORDERLY, ..FAILOVER };
    let mut arrows = BTreeMap::new();
    let mut phases = HashMap::new();
    let mut phase = |world: &World| *phases.entry(*world).or_insert_with(|| world.phase(rules));
    let found = explore(World::start(rules), &[], |world| {
        let steps = world.next(rules);
        let before = phase(world);
        for (name, after) in steps.successes() {
            let after = phase(after);
            if after != before {
                arrows.entry((before, after)).or_insert(name);
            }
        }
        steps
    });
    assert!(found.broken.is_none(), "{:?}", found.broken);
    page::check_text("phases", &page::drawing(&arrows));
}

#[test]
fn no_interleaving_deletes_ineligible_pod() {
    let kinds = [
        PodKind::Shared,
        PodKind::Foreign,
        PodKind::DaemonSet,
        PodKind::Tolerates,
        PodKind::OptedOut,
    ];
    let mut table = Vec::new();
    for kind in kinds {
        let what = format!("{kind:?}");
        if is_large() && !is_wanted(&what) {
            continue;
        }
        let boots = u8::from(is_large() || kind == PodKind::Tolerates);
        table.push(explore_scope(&what, Rules { pod: kind, boots, ..FAILOVER }, &[]));
    }
    page::check("pods", &table);
}

#[test]
fn no_interleaving_of_2_replicas_exceeds_brake() {
    use brake::Fault::{AcrossTerms, LeaseWithoutVersion, NoJournal};
    let explored = |fault| explore(brake::Brake::start(), &[], |world| world.next(fault));
    let what = "two replicas and the brake";
    let found = print_counts(what, explored(brake::Fault::None));
    let taken = ["the call arrives", "the journal is not written", "ten minutes pass"];
    assert_nothing_broken(what, &found, &taken);
    let mut table = vec![Row::new(what, &found)];
    for fault in [NoJournal, LeaseWithoutVersion, AcrossTerms] {
        table.push(planted::assert_found(&format!("{fault:?}"), explored(fault), "S15"));
    }
    page::check("brake", &table);
}
