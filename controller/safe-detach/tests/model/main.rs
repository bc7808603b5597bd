//! Every interleaving of the controller, a node, EC2 with a late view and an orchestrator, in a small scope, with the decision that ships.
//!
//! The properties have the numbers of `deploy/docs/safe-detach.md`.

mod call;
mod explore;
mod world;

use ebs_csi_safe_detach::Mode;
use explore::{Found, explore};
use world::{Fault, Rules, World};

fn run(mode: Mode, fault: Fault) -> Found {
    let rules = Rules { mode, fault };
    let found = explore(World::start(), |world| world.next(rules));
    println!(
        "{mode}, {fault:?}: {} states, {} steps",
        found.states, found.steps
    );
    found
}

#[test]
fn no_interleaving_breaks_a_property() {
    for mode in [Mode::Ec2Only, Mode::Enforce] {
        let found = run(mode, Fault::None);
        if let Some((property, trace)) = found.broken {
            panic!("{mode}: {property}\n  {}", trace.join("\n  "));
        }
        // It is not true for want of anything that happens.
        let mut rungs = vec!["terminated", "stopped", "broken-glass"];
        rungs.extend(match mode {
            Mode::Ec2Only => ["trusted"].as_slice(),
            _ => &["node-word", "fenced"],
        });
        for rung in rungs {
            let step = format!("DetachVolume is sent: {rung}");
            assert!(found.taken.contains(&step), "{mode}: never {step}");
        }
    }
}

#[test]
fn planted_faults_are_found_with_the_way_to_them() {
    let rows = [
        (Fault::DetachOnNotFound, "S1"),
        (Fault::ReadBeforeTheCall, "S7"),
        (Fault::WordWithoutVolumesAttached, "S1"),
        (Fault::KubeletForgets, "S1"),
    ];
    for (fault, property) in rows {
        let found = run(Mode::Enforce, fault);
        let (broken, trace) = found
            .broken
            .unwrap_or_else(|| panic!("{fault:?} is not found"));
        println!("{fault:?}: {broken}\n  {}", trace.join("\n  "));
        assert!(broken.starts_with(property), "{fault:?}: {broken}");
        assert!(trace.len() >= 5, "{trace:?}");
    }
}
