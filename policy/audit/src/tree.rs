//! Which processes there are, which profile each should have, and which must be there.

use std::path::Path;
use std::{fs, io};

use ebs_csi_policy::profile::{self, Profile};

use crate::answer::{Answer, Verdict};
use crate::machine::{PROGRAMS_OF_MACHINE, of_machine};
use crate::process::{HELPER, Process, program_of, read_status};
use crate::rules::PROCESSES;
use crate::sys::is_end;

/// The program of the launcher and of the router.
const LAUNCHER: &str = "aws-ebs-csi-driver";
/// The programs of the driver.
const PROGRAMS: [&str; 5] =
    ["ebs-csi-controller", "ebs-csi-node-lifecycle", "ebs-csi-node-agent", HELPER, LAUNCHER];
/// The processes that a supervisor always has. With an address of vsock it has a relay, too.
pub const PARTS_OF_HELPER: [&Profile; 3] = [profile::BROKER, profile::DIRECTORIES, profile::OPENER];
/// What is read of every process of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// The effective user.
    pub(crate) uid: u32,
    /// The file name of its program; `None` for a thread of the kernel, and an error for a process
    /// that does not show it.
    pub(crate) program: Result<Option<String>, String>,
}

impl Listed {
    /// Returns whether it runs a program of the driver.
    pub(crate) fn is_of_driver(&self) -> bool {
        let program = self.program.as_ref().ok().and_then(Option::as_deref);
        program.is_some_and(|name| PROGRAMS.contains(&name))
    }
}

/// Lists the processes of this machine, but for those that end meanwhile. Fails when `/proc` is
/// something else than the kernel's.
pub(crate) fn list() -> io::Result<Vec<Listed>> {
    if rustix::fs::statfs("/proc")?.f_type != rustix::fs::PROC_SUPER_MAGIC {
        return Err(io::Error::other("/proc is not the kernel's"));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let status = match read_status(&Path::new("/proc").join(&name)) {
            Err(error) if is_end(&error) => continue,
            status => status.map_err(|error| unreadable(pid, &error))?,
        };
        let program = program_of(pid).map_err(|error| error.to_string());
        found.push(Listed { pid, parent: status.parent, uid: status.uids[1], program });
    }
    found.sort_unstable_by_key(|one| one.pid);
    Ok(found)
}

/// Returns the numbers of these processes and of all that descend from them, in order.
pub(crate) fn members(list: &[Listed], roots: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut members: std::collections::BTreeSet<u32> = roots.into_iter().collect();
    // A child may have a lower number than its parent once numbers have wrapped.
    loop {
        let before = members.len();
        for one in list {
            if members.contains(&one.parent) {
                members.insert(one.pid);
            }
        }
        if members.len() == before {
            return members.into_iter().collect();
        }
    }
}

impl Process {
    /// Returns the process and all its descendants, in the order of their numbers. Fails when one
    /// of them cannot be read. Leaves out those that end meanwhile, but for the first.
    pub fn tree(root: u32) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for pid in members(&list()?, [root]) {
            match Self::read(pid) {
                Ok(process) => found.push(process),
                Err(error) if pid != root && is_end(&error) => {}
                Err(error) => return Err(unreadable(pid, &error)),
            }
        }
        Ok(found)
    }

    /// Returns the profile that the process should have, by its program, its parent and its user.
    /// Returns `None` for a program that is not the driver's.
    #[must_use]
    pub fn expected(&self, tree: &[Self]) -> Option<&'static Profile> {
        let has_helper_parent = self.parent_in(tree).is_some_and(|parent| parent.program == HELPER);
        match self.program.as_str() {
            "ebs-csi-controller" => Some(profile::CONTROLLER),
            "ebs-csi-node-lifecycle" => Some(profile::NODE_LIFECYCLE),
            "ebs-csi-node-agent" => Some(profile::NODE_AGENT),
            LAUNCHER if self.arguments.get(1).is_some_and(|mode| mode == "router") => {
                Some(profile::ROUTER)
            }
            LAUNCHER => Some(profile::LAUNCHER),
            HELPER if !has_helper_parent => Some(profile::SUPERVISOR),
            HELPER if self.status.gids[1] == profile::OPENER.identity.gid => Some(profile::OPENER),
            HELPER => Some(match self.status.uids[1] {
                uid if uid == profile::BROKER.identity.uid => profile::BROKER,
                uid if uid == profile::RUNNER.identity.uid => profile::RUNNER,
                uid if uid == profile::RELAY.identity.uid => profile::RELAY,
                _ => profile::DIRECTORIES,
            }),
            _ if has_helper_parent => Some(profile::TOOL),
            _ => None,
        }
    }

    pub(crate) fn parent_in<'a>(&self, tree: &'a [Self]) -> Option<&'a Self> {
        tree.iter().find(|one| one.pid == self.parent)
    }

    /// Returns the answers about the process as a member of its tree: whether each process that it
    /// must have runs once, and, for a program that is not the driver's, that one of the driver's
    /// has started it.
    #[must_use]
    pub fn answers_in(&self, tree: &[Self]) -> Vec<Answer> {
        let Some(own) = self.expected(tree) else {
            // As many steps as there are processes, should parents form a ring.
            let ancestors = std::iter::successors(Some(self), |one| one.parent_in(tree));
            let mut ancestors = ancestors.skip(1).take(tree.len());
            let started_by_driver = ancestors.any(|one| one.expected(tree).is_some());
            let found = format!("{} started by one of them", self.program);
            return Vec::from_iter(
                started_by_driver
                    .then(|| of_machine(PROGRAMS_OF_MACHINE, Verdict::Deviates, &found)),
            );
        };
        let parts: Vec<&str> = match own.name {
            name if name == profile::SUPERVISOR.name => {
                let has_vsock = self.values_of("--listen").any(|one| one.starts_with("vsock:"));
                let relay = has_vsock.then_some(profile::RELAY);
                PARTS_OF_HELPER.into_iter().chain(relay).map(|part| part.name).collect()
            }
            // The launcher's arguments name what it has started: `controller:17`.
            name if name == profile::LAUNCHER.name => self
                .arguments
                .iter()
                .filter_map(|word| Some(word.split_once(':')?.0))
                .map(|part| if part == "mount-helper" { profile::SUPERVISOR.name } else { part })
                .collect(),
            _ => return Vec::new(),
        };
        let children: Vec<&Self> = tree.iter().filter(|one| one.parent == self.pid).collect();
        let count = |part: &str| {
            let is_part = |one: &&&Self| {
                one.program == part || one.expected(tree).is_some_and(|found| found.name == part)
            };
            children.iter().filter(is_part).count()
        };
        let wrong: Vec<_> = parts
            .iter()
            .map(|part| (part, count(part)))
            .filter(|(_, count)| *count != 1)
            .map(|(part, count)| format!("{count} of {part}"))
            .collect();
        let evidence = format!("/proc/*/status, children of {}", self.pid);
        let (verdict, found) = match wrong.as_slice() {
            [] => (Verdict::Conforms, parts.join(", ")),
            // A process that is not there, or is not known by its program, is not seen.
            some if some.iter().all(|one| one.starts_with("0 of ")) => {
                (Verdict::NotSeen, some.join("; "))
            }
            some => (Verdict::Deviates, some.join("; ")),
        };
        vec![Answer::new(own, PROCESSES, verdict, found, evidence)]
    }

    /// Returns the answers of [`Process::answers_in`] that do not conform.
    #[must_use]
    pub fn deviations_in(&self, tree: &[Self]) -> Vec<Answer> {
        let mut answers = self.answers_in(tree);
        answers.retain(|answer| answer.verdict != Verdict::Conforms);
        answers
    }
}

/// Adds the process to an error.
pub(crate) fn unreadable(pid: u32, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("process {pid} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::process_status::Status;

    fn helper(pid: u32, parent: u32, uid: u32) -> Process {
        Process {
            pid,
            parent,
            program: HELPER.to_owned(),
            status: Status { uids: [uid; 4], ..Status::default() },
            ..Process::default()
        }
    }

    fn named(pid: u32, parent: u32, program: &str) -> Process {
        Process { pid, parent, program: program.to_owned(), ..Process::default() }
    }

    /// Returns what a process lacks or is in its tree.
    fn found(process: &Process, tree: &[Process]) -> Vec<String> {
        process
            .deviations_in(tree)
            .iter()
            .map(|one| format!("{} {}", one.id(), one.found))
            .collect()
    }

    /// The group distinguishes the opener from the directories process when both run as user 0.
    #[test]
    fn helper_processes_are_identified_by_parent_and_user() {
        let tool = named(14, 13, "mke2fs");
        let mut opener = helper(15, 10, 0);
        opener.status.gids = [profile::OPENER.identity.gid; 4];
        let (supervisor, broker) = (helper(10, 1, 65525), helper(11, 10, 65531));
        let (directories, runner) = (helper(12, 10, 0), helper(13, 10, 65525));
        let relay = helper(16, 10, 65523);
        let mut tree = vec![supervisor, broker, directories, runner, tool, opener, relay];
        let names = |tree: &[Process]| {
            let each = tree.iter().map(|one| one.expected(tree).map_or("-", |found| found.name));
            each.collect::<Vec<_>>()
        };
        let expected = ["supervisor", "broker", "directories", "runner", "tool", "opener", "relay"];
        assert_eq!(names(&tree), expected);
        assert!(tree.iter().all(|one| found(one, &tree).is_empty()));
        tree[0].arguments = ["helper", "--listen", "vsock://:5"].map(str::to_owned).to_vec();
        assert_eq!(found(&tree[0], &tree), [""; 0]);
        tree.pop();
        assert_eq!(found(&tree[0], &tree), ["supervisor/processes 0 of relay"]);
        tree[0].arguments.clear();
        tree.remove(1);
        assert_eq!(found(&tree[0], &tree), ["supervisor/processes 0 of broker"]);
    }

    #[test]
    fn second_process_of_role_is_deviation() {
        let (supervisor, broker) = (helper(10, 1, 65525), helper(11, 10, 65531));
        let mut opener = helper(12, 10, 65526);
        opener.status.gids = [profile::OPENER.identity.gid; 4];
        let tree = [supervisor, broker, opener, helper(13, 10, 0), helper(14, 10, 65531)];
        let answers = tree[0].answers_in(&tree);
        assert_eq!((answers[0].verdict, &*answers[0].found), (Verdict::Deviates, "2 of broker"));
        assert_eq!(tree[0].answers_in(&tree[..4])[0].verdict, Verdict::Conforms);
        assert_eq!(tree[0].answers_in(&tree[..1])[0].verdict, Verdict::NotSeen);
    }

    #[test]
    fn launcher_lacks_what_its_arguments_name() {
        let mut launcher = named(10, 1, LAUNCHER);
        launcher.arguments = ["x", "supervise", "mount-helper:11", "node-agent:12", "router:13"]
            .map(str::to_owned)
            .to_vec();
        let mut router = named(13, 10, LAUNCHER);
        router.arguments = ["x", "router"].map(str::to_owned).to_vec();
        let agent = named(12, 10, "ebs-csi-node-agent");
        let mut tree = vec![launcher, helper(11, 10, 65525), agent, router];
        assert_eq!(found(&tree[0], &tree), [""; 0]);
        tree.truncate(2);
        let lacks = "launcher/processes 0 of node-agent; 0 of router";
        assert_eq!(found(&tree[0], &tree), [lacks]);
    }

    #[test]
    fn foreign_program_beneath_driver_is_deviation() {
        let tree = [named(10, 1, "containerd"), named(11, 10, "ebs-csi-controller")];
        let tree = [&tree[..], &[named(12, 11, "sh"), named(13, 12, "cat")]].concat();
        let all: Vec<_> = tree.iter().map(|one| found(one, &tree).len()).collect();
        assert_eq!(all, [0, 0, 1, 1]);
        assert!(tree[0].expected(&tree).is_none());
        let ring = [named(20, 21, "sh"), named(21, 20, "cat")];
        assert!(ring.iter().all(|one| found(one, &ring).is_empty()));
    }
}
