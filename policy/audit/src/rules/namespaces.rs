//! The namespaces of a process, and whether its mounts reach the node.

use ebs_csi_policy::profile::Profile;

use crate::answer::{Answer, Verdict};
use crate::process::{HELPER, Namespaces, Process};
use crate::rules;

/// Those that the helper makes anew.
const OWN: [&str; 3] = ["ipc", "net", "uts"];
/// What the policy says.
pub(crate) const EXPECTED: &str =
    "ipc, net and uts namespaces that are not the node's, and all of them the supervisor's";
/// Returns whether the processes of a profile have namespaces of their own.
pub(crate) fn has_own(profile: &Profile) -> bool {
    profile.name == "tool" || rules::programs(profile) == HELPER
}

pub(crate) fn answer(
    process: &Process,
    profile: &'static Profile,
    supervisor: Option<&Process>,
) -> Answer {
    let mut evidence = format!("/proc/{}/task/*/ns", process.pid);
    let parent = supervisor.map(|supervisor| supervisor.seen.namespaces.as_ref()).transpose();
    let (own, (node, whose), parent) =
        match (&process.seen.namespaces, &process.seen.of_node, parent) {
            (Ok(own), Ok(node), Ok(parent)) => (own, node, parent),
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
                return Answer::new(profile, "namespaces", Verdict::NotSeen, why, evidence);
            }
        };
    evidence += &format!(", compared with {whose}");
    let wrong = differences(own, node, parent);
    let shown: Vec<_> = own.values().flatten().map(String::as_str).collect();
    Answer::of_findings(profile, "namespaces", &wrong, shown.join(" "), evidence)
}

fn differences(
    own: &Namespaces,
    node: &Namespaces,
    supervisor: Option<&Namespaces>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, names) in own {
        let shared =
            |other: &Namespaces| other.get(kind).is_some_and(|theirs| !theirs.is_disjoint(names));
        if names.len() != 1 {
            wrong.push(format!("threads in {} {kind} namespaces", names.len()));
        }
        if OWN.contains(&kind.as_str()) && shared(node) {
            wrong.push(format!("the node's {kind} namespace"));
        }
        if supervisor.is_some_and(|parent| !shared(parent)) {
            wrong.push(format!("another {kind} namespace than the supervisor's"));
        }
    }
    wrong
}

/// Answers whether what the process mounts for volumes is seen outside its mount namespace.
pub(crate) fn propagation(process: &Process, profile: &'static Profile) -> Answer {
    let evidence = format!("/proc/{}/mountinfo", process.pid);
    let held = match &process.seen.mounts {
        Ok(held) => held,
        Err(why) => return Answer::new(profile, "propagation", Verdict::NotSeen, why, evidence),
    };
    let private = held.iter().filter(|(_, is_shared)| !is_shared);
    let wrong: Vec<_> = private.map(|(place, _)| format!("a private mount at {place}")).collect();
    let right = held.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>().join(", ");
    Answer::of_findings(profile, "propagation", &wrong, right, evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    fn namespaces(of: &[(&str, &[&str])]) -> Namespaces {
        let names = |names: &&[&str]| names.iter().map(|one| (*one).to_owned()).collect();
        of.iter().map(|(kind, all)| ((*kind).to_owned(), names(all))).collect()
    }

    #[test]
    fn shared_namespace_is_difference_only_with_node() {
        let node = namespaces(&[("net", &["1"]), ("mnt", &["2"])]);
        let own = namespaces(&[("net", &["7"]), ("mnt", &["2"])]);
        assert_eq!(differences(&own, &node, Some(&own)), [""; 0]);
        assert_eq!(differences(&node, &node, None), ["the node's net namespace"]);
        let moved = namespaces(&[("net", &["7"]), ("mnt", &["3"])]);
        let another = "another mnt namespace than the supervisor's";
        assert_eq!(differences(&moved, &node, Some(&own)), [another]);
        let split = namespaces(&[("net", &["7", "1"])]);
        let found = differences(&split, &node, None);
        assert_eq!(found, ["threads in 2 net namespaces", "the node's net namespace"]);
    }
}
