//! What must hold of all processes of a machine together.

use ebs_csi_policy::profile::{self, Profile};

use crate::answer::{Answer, Verdict, printable};
use crate::process::Process;

/// The rule that no program but the driver's runs as one of its processes.
pub const PROGRAMS_OF_MACHINE: &str = "programs";

/// Returns the answer to a rule about all processes of a machine.
pub(crate) fn of_machine(rule: &'static str, verdict: Verdict, found: &str) -> Answer {
    let expected = match rule {
        PROGRAMS_OF_MACHINE => "the driver's processes run the driver's programs alone",
        _ => "each process of the driver that runs here, read in full",
    };
    Answer {
        of: Answer::MACHINE,
        rule,
        verdict,
        expected: expected.to_owned(),
        found: printable(found),
        evidence: "/proc".to_owned(),
    }
}

/// Returns what is missing on a machine on which these processes of the driver run: a node-agent
/// needs a helper and a helper a node-agent, unless the other one is in another machine.
pub(crate) fn missing_on_machine<'a>(
    processes: impl Iterator<Item = (&'a Process, &'static Profile)>,
) -> Vec<&'static str> {
    let processes: Vec<_> = processes.collect();
    let found = |wanted: &Profile, flag: &'static str| {
        let all = processes.iter().filter(|(_, profile)| profile.name == wanted.name);
        let values = all.map(|(process, _)| process.values_of(flag).collect::<Vec<_>>());
        values.collect::<Vec<_>>()
    };
    let is_here = |values: &Vec<&str>| !values.iter().any(|value| value.contains("vsock:"));
    let agents = found(profile::NODE_AGENT, "--helper");
    let helpers = found(profile::SUPERVISOR, "--listen");
    let mut missing = Vec::new();
    if helpers.is_empty() && agents.iter().any(is_here) {
        missing.push(profile::SUPERVISOR.name);
    }
    if agents.is_empty() && helpers.iter().any(is_here) {
        missing.push(profile::NODE_AGENT.name);
    }
    missing
}

/// Returns the profile whose user a process of another program has. The users of the controller and
/// node-lifecycle are left out: their sidecars have them, too.
pub(crate) fn user_of_driver(uid: u32) -> Option<&'static Profile> {
    let is_shared = |profile: &&Profile| {
        [profile::CONTROLLER, profile::NODE_LIFECYCLE].iter().any(|one| one.name == profile.name)
    };
    let mut own = profile::ALL.into_iter().filter(|profile| !is_shared(profile));
    own.find(|profile| profile.identity.uid != 0 && profile.identity.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::HELPER;

    fn of(program: &str, pid: u32) -> Process {
        Process { pid, parent: 1, program: program.to_owned(), ..Process::default() }
    }

    #[test]
    fn driver_user_of_other_program_is_known() {
        let listed = |uid| user_of_driver(uid).map(|profile| profile.name);
        assert_eq!(listed(profile::BROKER.identity.uid), Some("broker"));
        for uid in [0, profile::CONTROLLER.identity.uid, profile::NODE_LIFECYCLE.identity.uid] {
            assert_eq!(listed(uid), None);
        }
    }

    #[test]
    fn agent_and_helper_need_each_other() {
        let agent = |helper: &str| {
            let mut agent = of("ebs-csi-node-agent", 10);
            agent.arguments = vec!["agent".to_owned(), "--helper".to_owned(), helper.to_owned()];
            agent
        };
        let supervisor = |listen: &str| {
            let mut supervisor = of(HELPER, 11);
            supervisor.arguments = vec!["helper".to_owned(), format!("--listen={listen}")];
            supervisor
        };
        for (processes, expected) in [
            (vec![agent("unix:///s")], 1),
            (vec![agent("hvsock:///s:1")], 0),
            (vec![supervisor("unix:///s")], 1),
            (vec![supervisor("vsock://:1")], 0),
            (vec![agent("unix:///s"), supervisor("unix:///s")], 0),
            (vec![], 0),
        ] {
            let all = processes.iter().filter_map(|one| Some((one, one.expected(&processes)?)));
            assert_eq!(missing_on_machine(all).len(), expected, "{processes:?}");
        }
    }
}
