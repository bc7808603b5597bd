//! Explores every interleaving, in a small scope, with the shipped functions: of one detach
//! ([`detach`]), of a failover from end to end ([`failover`]), and of the replicas that act and the
//! brake that limits them ([`brake`]).
//!
//! `deploy/docs/failure-scenarios.md` defines the numbers of the properties. `EBS_CSI_MODEL=large`
//! explores larger scopes; the variable may name one of them instead (`EBS_CSI_MODEL="enforce,
//! persons, two boots"`). Each larger scope takes minutes and up to some gigabytes.

mod brake;
mod detach;
mod explore;
mod failover;
mod kubernetes_objects;

use ebs_csi_safe_detach::Mode;
use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};
use explore::{Exploration, explore, join};
use failover::{PodKind, Rules};

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

fn assert_fault_found(what: &str, found: Exploration, property: &str) {
    let found = print_counts(what, found);
    let (broken, trace) = found.broken.unwrap_or_else(|| panic!("{what} is not found"));
    println!("{what}: {broken}\n  {}", trace.join("\n  "));
    assert!(broken.starts_with(property), "{what}: {broken}");
    assert!(!trace.is_empty(), "{what}");
}

fn explore_detach(mode: Mode, scope: detach::Scope, fault: detach::Fault) -> Exploration {
    let rules = detach::Rules { mode, fault, scope };
    explore(detach::World::start(), &[], |world| world.next(rules))
}

#[test]
fn no_interleaving_of_a_detach_breaks_a_property() {
    use detach::Scope;
    let two = Scope { starts: u8::from(is_large()), ..Scope::BOTH };
    let trusting: &[_] = &["terminated", "stopped", "break-glass", "trusted"];
    let enforcing: &[_] = &["terminated", "stopped", "kubelet-report", "fenced", "break-glass"];
    let rows = [
        ("ec2-only, one controller", Mode::Ec2Only, Scope::ALONE, trusting),
        ("enforce, one controller", Mode::Enforce, Scope::ALONE, enforcing),
        ("enforce, two controllers", Mode::Enforce, two, &enforcing[..4]),
    ];
    for (what, mode, scope, rungs) in rows {
        if is_large() && !is_wanted(what) {
            continue;
        }
        let found = print_counts(what, explore_detach(mode, scope, detach::Fault::None));
        let taken = rungs.iter().map(|rung| format!("DetachVolume is sent: {rung}"));
        assert_nothing_broken(what, &found, &taken.collect::<Vec<_>>());
    }
}

#[test]
fn planted_detach_faults_are_found_with_trace() {
    use detach::Fault;
    let rows = [
        (Fault::DetachOnNotFound, "S1"),
        (Fault::ReadBeforeTheCall, "S7"),
        (Fault::ReportWithoutVolumesAttached, "S1"),
        (Fault::KubeletForgets, "S1"),
        (Fault::StaleFacts, "S1"),
    ];
    for (fault, property) in rows {
        let found = explore_detach(Mode::Enforce, detach::Scope::ALONE, fault);
        assert_fault_found(&format!("{fault:?}"), found, property);
    }
}

/// `enforce` and `prove-first`, one controller, one replica, no persons.
const FAILOVER: Rules = Rules {
    mode: Mode::Enforce,
    failover: FailoverMode::ProveFirst,
    fault: failover::Fault::None,
    pod: PodKind::Eligible,
    controllers: 1,
    replicas: 1,
    persons: false,
    fences: None,
    late_answers: false,
    boots: 1,
};

fn explore_failover(rules: Rules) -> Exploration {
    let goals: &[_] = match rules.pod {
        PodKind::Eligible => &failover::GOALS,
        // The taint does not stay because of a pod that does not move.
        PodKind::Tolerates => &failover::GOALS_OF_TOLERANT_POD,
        // A pod that failover leaves alone need not move.
        _ => &[],
    };
    explore(failover::World::start(), goals, |world| world.next(rules))
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
    ];
    let (lost, impaired) = (Some(FenceWhen::Lost), Some(FenceWhen::Impaired));
    let kep = FailoverMode::Kep;
    let two_replicas = [stopped, taint, removed, "our taint is removed: conflict"];
    let all_fencing = [stopped, taint, fenced, refused];
    let rows: [(_, _, &[&str]); 7] = [
        ("ec2-only", Rules { mode: Mode::Ec2Only, ..FAILOVER }, &[trusted, taint, removed]),
        ("enforce, two controllers", Rules { controllers: 2, ..FAILOVER }, &two_replicas[..3]),
        ("enforce, persons", Rules { persons: true, ..FAILOVER }, &with_persons),
        ("enforce, two replicas", Rules { replicas: 2, ..FAILOVER }, &two_replicas),
        ("enforce, fencing lost", Rules { fences: lost, ..FAILOVER }, &all_fencing[..3]),
        ("enforce, fencing impaired", Rules { fences: impaired, ..FAILOVER }, &all_fencing),
        ("enforce, mode kep", Rules { failover: kep, ..FAILOVER }, &[stopped, pod_deleted]),
    ];
    // Each of these changes makes a scope larger.
    type Change = fn(&mut Rules);
    let more: [(&str, Change); 3] = [
        ("two boots", |rules| rules.boots = 2),
        ("late answers", |rules| rules.late_answers = true),
        ("persons too", |rules| rules.persons = true),
    ];
    for (what, rules, taken) in rows {
        if !is_large() {
            assert_scope_holds(what, rules, taken);
            continue;
        }
        for (how, change) in more {
            let name = format!("{what}, {how}");
            let mut larger = rules;
            change(&mut larger);
            // With `ec2-only`, persons do nothing.
            let same = larger == rules || larger.persons && larger.mode == Mode::Ec2Only;
            if !same && is_wanted(&name) {
                assert_scope_holds(&name, larger, taken);
            }
        }
    }
}

/// Explores every state and checks that every goal can be reached from each.
fn assert_scope_holds(what: &str, rules: Rules, taken: &[&str]) {
    let found = print_counts(what, explore_failover(rules));
    assert_nothing_broken(what, &found, taken);
    assert!(found.checked_from.iter().all(|(_, states)| *states > 0), "{what}");
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
    for kind in kinds {
        let what = format!("{kind:?}");
        if is_large() && !is_wanted(&what) {
            continue;
        }
        let boots = u8::from(is_large() || kind == PodKind::Tolerates);
        assert_scope_holds(&what, Rules { pod: kind, boots, ..FAILOVER }, &[]);
    }
}

#[test]
fn planted_failover_faults_are_found_with_trace() {
    use failover::Fault;
    let rows = [
        (Fault::TaintByTimeout, "S9"),
        (Fault::TaintRemovedByTimeout, "L5"),
        (Fault::TaintWithoutVersion, "S9"),
        (Fault::PodsWithoutProof, "S8"),
        (Fault::AttachmentWithoutVersion, "S1"),
        (Fault::NoTaint, "L2"),
        (Fault::FenceOnFormerChecks, "S18"),
    ];
    for (fault, property) in rows {
        let found = explore_failover(Rules {
            fault,
            late_answers: fault == Fault::TaintWithoutVersion,
            fences: (fault == Fault::FenceOnFormerChecks).then_some(FenceWhen::Impaired),
            // In `enforce`, kubelet's report would prevent this fault from breaking the property.
            mode: match fault {
                Fault::AttachmentWithoutVersion => Mode::Ec2Only,
                _ => Mode::Enforce,
            },
            ..FAILOVER
        });
        assert_fault_found(&format!("{fault:?}"), found, property);
    }
}

#[test]
fn no_interleaving_of_2_replicas_exceeds_brake() {
    use brake::Fault::{AcrossTerms, LeaseWithoutVersion, NoJournal};
    let explored = |fault| explore(brake::Brake::start(), &[], |world| world.next(fault));
    let found = print_counts("two replicas and the brake", explored(brake::Fault::None));
    let taken = ["the call arrives", "the journal is not written", "ten minutes pass"];
    assert_nothing_broken("two replicas and the brake", &found, &taken);
    for fault in [NoJournal, LeaseWithoutVersion, AcrossTerms] {
        assert_fault_found(&format!("{fault:?}"), explored(fault), "S15");
    }
}
