//! The answers about a process, a tree of processes, or all of a machine.

use std::io;

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::Profile;
use ebs_csi_policy::variant::Policy;

use crate::answer::{self, Answer, Verdict, printable};
use crate::collected::Collected;
use crate::machine::{self, PROGRAMS_OF_MACHINE, of_machine};
use crate::process::{HELPER, Process};
use crate::rules::PROCESSES;
use crate::rules::settings::Expectation;
use crate::sys::is_end;
use crate::tree::{self, Listed, members};

/// The answers about one process.
#[derive(Clone, Debug)]
pub struct Audited {
    /// The process's number.
    pub pid: u32,
    /// The file name of its program, without control characters.
    pub program: String,
    /// The profile that it should have; `None` for a program that is not the driver's.
    pub profile: Option<&'static Profile>,
    /// The policy that its arguments choose.
    pub policy: Policy,
    /// `/proc/PID/status`; `None` for a process that cannot be read.
    pub status: Option<Status>,
    /// The answers, by their rules' names.
    pub answers: Vec<Answer>,
}

/// The answers about several processes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The processes, by their numbers.
    pub processes: Vec<Audited>,
    /// The answers about all of them together.
    pub machine: Vec<Answer>,
}

/// Where an audit reads processes.
#[derive(Debug)]
pub enum Source {
    /// This machine.
    Here,
    /// What was collected, here or elsewhere.
    Collected(Collected),
}

impl Source {
    fn list(&self) -> io::Result<Vec<Listed>> {
        match self {
            Self::Here => tree::list(),
            Self::Collected(collected) => Ok(collected.list().to_vec()),
        }
    }

    fn read(&self, pid: u32) -> io::Result<Process> {
        match self {
            Self::Here => Process::read(pid),
            Self::Collected(collected) => collected.process(pid),
        }
    }

    /// Reads what an audit needs of a process that has a profile.
    fn read_rest(&self, process: &mut Process, expectation: &Expectation) {
        if let Self::Here = self {
            process.read_filters();
            if expectation.build.is_some() {
                process.read_digest();
            }
        }
    }
}

impl Audit {
    /// Audits one process by a profile.
    #[must_use]
    pub fn of_process(
        pid: u32,
        profile: &'static Profile,
        expectation: &Expectation,
        source: &Source,
    ) -> Self {
        let audited = match source.read(pid) {
            Ok(mut process) => {
                source.read_rest(&mut process, expectation);
                audited(&process, Some(profile), expectation, &[])
            }
            Err(error) => Audited {
                pid,
                program: String::new(),
                profile: Some(profile),
                policy: expectation.policy,
                status: None,
                answers: Process::unreadable(pid, profile, &error.to_string()),
            },
        };
        Self { processes: vec![audited], machine: Vec::new() }
    }

    /// Audits a process and all that descend from it by the profiles that they should have. Fails
    /// when the processes of the machine cannot be listed.
    pub fn of_tree(root: u32, expectation: &Expectation, source: &Source) -> io::Result<Self> {
        let list = source.list()?;
        Ok(of_members(&list, &members(&list, [root]), expectation, source).0)
    }

    /// Audits every process of the driver on this machine, and looks for processes of other
    /// programs with the driver's users. Fails when the processes cannot be listed.
    pub fn of_machine(expectation: &Expectation, source: &Source) -> io::Result<Self> {
        let list = source.list()?;
        let all = members(&list, list.iter().filter(|one| one.is_of_driver()).map(|one| one.pid));
        let (mut audit, read) = of_members(&list, &all, expectation, source);
        let known = read.iter().filter_map(|one| Some((one, one.expected(&read)?)));
        for missing in machine::missing_on_machine(known) {
            let found = format!("0 of {missing}");
            audit.machine.push(of_machine(PROCESSES, Verdict::NotSeen, &found));
        }
        for one in list.iter().filter(|one| all.binary_search(&one.pid).is_err()) {
            let found = match (&one.program, machine::user_of_driver(one.uid)) {
                (Err(why), _) => format!("process {} does not show its program: {why}", one.pid),
                (Ok(Some(name)), Some(profile)) => {
                    let role = profile.name;
                    format!("process {} runs {name} as user {} of the {role}", one.pid, one.uid)
                }
                _ => continue,
            };
            audit.machine.push(of_machine(PROGRAMS_OF_MACHINE, Verdict::NotSeen, &found));
        }
        Ok(audit)
    }

    /// Returns every answer.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.processes.iter().flat_map(|one| &one.answers).chain(&self.machine)
    }

    /// Returns the exit status: 0 when all rules conform, 1 when one deviates, 2 when something was
    /// not seen.
    #[must_use]
    pub fn status(&self) -> u8 {
        answer::status(self.answers())
    }
}

/// Audits the processes of these numbers. Returns the processes that were read, too.
fn of_members(
    list: &[Listed],
    numbers: &[u32],
    expectation: &Expectation,
    source: &Source,
) -> (Audit, Vec<Process>) {
    let mut audit = Audit::default();
    let mut read = Vec::new();
    for pid in numbers {
        match source.read(*pid) {
            Ok(process) => read.push(process),
            Err(error) if is_end(&error) && is_job(list, *pid) => {}
            Err(error) => {
                let error = tree::unreadable(*pid, &error).to_string();
                audit.machine.push(of_machine(PROCESSES, Verdict::NotSeen, &error));
            }
        }
    }
    if read.iter().all(|process| process.expected(&read).is_none()) {
        audit.machine.push(of_machine(PROCESSES, Verdict::NotSeen, "no process of the driver"));
    }
    let profiles: Vec<_> = read.iter().map(|process| process.expected(&read)).collect();
    for (process, _) in read.iter_mut().zip(&profiles).filter(|(_, profile)| profile.is_some()) {
        source.read_rest(process, expectation);
    }
    let all = read.iter().zip(profiles);
    audit.processes =
        all.map(|(process, profile)| audited(process, profile, expectation, &read)).collect();
    (audit, read)
}

/// Returns whether a process is the runner of a job or its tool, which end with the job.
fn is_job(list: &[Listed], pid: u32) -> bool {
    let find = |pid| list.iter().find(|one| one.pid == pid);
    let is_helper = |one: &&Listed| matches!(&one.program, Ok(Some(name)) if name == HELPER);
    let parent = find(pid).and_then(|one| find(one.parent)).filter(is_helper);
    find(pid).zip(parent).is_some_and(|(one, parent)| {
        one.uid == ebs_csi_policy::profile::RUNNER.identity.uid && parent.uid == one.uid
    })
}

fn audited(
    process: &Process,
    profile: Option<&'static Profile>,
    expectation: &Expectation,
    tree: &[Process],
) -> Audited {
    let supervisor = process.parent_in(tree).filter(|parent| parent.program == HELPER);
    let mut answers = process.answers_in(tree);
    // Of a single process, nothing is known about those that it has started.
    answers.retain(|_| !tree.is_empty());
    if let Some(profile) = profile {
        answers.extend(process.answers(profile, expectation, supervisor));
    }
    answers.sort_by_key(|answer| answer.rule);
    Audited {
        pid: process.pid,
        program: printable(&process.program),
        profile,
        policy: process.policy(),
        status: Some(process.status.clone()),
        answers,
    }
}
