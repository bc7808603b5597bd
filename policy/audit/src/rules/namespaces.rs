//! The namespaces of a process, and whether its mounts reach the node.

use ebs_csi_policy::profile::Profile;
use ebs_csi_policy::profile::process::Share;

use crate::answer::{Answer, Verdict};
use crate::process::{Namespaces, Process};

pub(crate) fn expected(profile: &Profile) -> String {
    let rows = profile.namespaces().map(|row| {
        let kinds: Vec<_> = row.kinds.iter().map(|kind| kind.name).collect();
        let whose = match row.share {
            Share::NotWithNode => "not the node's",
            Share::WithNode => "the node's",
            Share::WithSupervisor => "the supervisor's",
        };
        format!("{} {whose}", kinds.join(" "))
    });
    rows.collect::<Vec<_>>().join("; ")
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
    let wrong = differences(profile, own, node, parent);
    let shown: Vec<_> = own.values().flatten().map(String::as_str).collect();
    Answer::of_findings(profile, "namespaces", &wrong, shown.join(" "), evidence)
}

fn differences(
    profile: &Profile,
    own: &Namespaces,
    node: &Namespaces,
    supervisor: Option<&Namespaces>,
) -> Vec<String> {
    let split = own.iter().filter(|(_, names)| names.len() != 1);
    let mut wrong: Vec<String> = split
        .map(|(kind, names)| format!("threads in {} {kind} namespaces", names.len()))
        .collect();
    for row in profile.namespaces() {
        for kind in row.kinds.iter().map(|kind| kind.name) {
            let shared = |other: &Namespaces| {
                let both = own.get(kind).zip(other.get(kind));
                both.is_some_and(|(names, theirs)| !theirs.is_disjoint(names))
            };
            match row.share {
                Share::NotWithNode if shared(node) => {
                    wrong.push(format!("the node's {kind} namespace"));
                }
                Share::WithNode if !shared(node) => {
                    wrong.push(format!("another {kind} namespace than the node's"));
                }
                Share::WithSupervisor if supervisor.is_some_and(|parent| !shared(parent)) => {
                    wrong.push(format!("another {kind} namespace than the supervisor's"));
                }
                _ => {}
            }
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
    use ebs_csi_policy::profile;

    /// The kinds that the auditor reads.
    const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

    fn all(name: &str) -> Namespaces {
        KINDS.map(|kind| (kind.to_owned(), [name.to_owned()].into())).into()
    }

    /// Returns what all rows allow, where the supervisor has namespaces `s` and the node `n`.
    fn right(profile: &Profile) -> Namespaces {
        let mut right = all("s");
        for row in profile.namespaces().filter(|row| row.share == Share::WithNode) {
            right.extend(row.kinds.iter().map(|kind| (kind.name.to_owned(), ["n".into()].into())));
        }
        right
    }

    #[test]
    fn each_namespace_row_allows_and_refuses() {
        let node = all("n");
        let mut tried = 0;
        for profile in profile::ALL {
            let right = right(profile);
            let supervisor = &right;
            assert_eq!(differences(profile, &right, &node, Some(supervisor)), [""; 0]);
            for row in profile.namespaces() {
                for kind in row.kinds.iter().map(|kind| kind.name) {
                    let (whose, found) = match row.share {
                        Share::NotWithNode => ("n", format!("the node's {kind} namespace")),
                        Share::WithNode => {
                            ("s", format!("another {kind} namespace than the node's"))
                        }
                        Share::WithSupervisor => {
                            ("x", format!("another {kind} namespace than the supervisor's"))
                        }
                    };
                    let mut wrong = right.clone();
                    wrong.insert(kind.to_owned(), [whose.to_owned()].into());
                    let all = differences(profile, &wrong, &node, Some(supervisor));
                    assert!(all.contains(&found), "{} {found}: {all:?}", profile.name);
                    tried += 1;
                    // Nothing is said about a process whose parent was not read.
                    let alone = differences(profile, &wrong, &node, None);
                    let is_said = row.share != Share::WithSupervisor;
                    assert_eq!(alone.contains(&found), is_said, "{} {found}", profile.name);
                }
            }
        }
        assert_eq!(tried, 7 * 4 + 6 * 7);
    }

    #[test]
    fn threads_in_several_namespaces_are_a_difference() {
        let mut split = right(profile::BROKER);
        split.insert("net".to_owned(), ["s".to_owned(), "n".to_owned()].into());
        let found = differences(profile::BROKER, &split, &all("n"), None);
        assert_eq!(found, ["threads in 2 net namespaces", "the node's net namespace"]);
    }
}
