//! The answers to the rules of a profile about a live process.

use std::collections::BTreeMap;

use ebs_csi_policy::deviation::Deviation;
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{Choice, Profile};
use ebs_csi_policy::variant::Policy;
use rustix::process::Pid;

use crate::answer::{Answer, Verdict};
use crate::process::{FILTERED, Process};
use crate::rules::settings::Expectation;
use crate::rules::{self, environment, holdings, namespaces, settings, socket_files};

/// Distributions give the groups below this number to the system's own files and devices; a pod's
/// `fsGroup` and `supplementalGroups` are not among them.
const FIRST_ORDINARY_GROUP: u32 = 1000;
/// What the comparison of a status calls the rules on it.
const RULES_OF_STATUS: [(&str, &[&str]); 6] = [
    ("user", &["user"]),
    ("group", &["group"]),
    ("groups", &["supplementary groups"]),
    (
        "capabilities",
        &[
            "permitted capabilities",
            "effective capabilities",
            "bounding set",
            "inheritable capabilities",
            "ambient capabilities",
        ],
    ),
    ("no-new-privs", &["no_new_privs"]),
    ("system-calls", &["seccomp"]),
];

impl Process {
    /// Returns the answers to all rules of a profile but those on the tree, in the order of the
    /// rules' names. `supervisor` is the process's parent where that is the mount-helper's.
    #[must_use]
    pub fn answers(
        &self,
        profile: &'static Profile,
        expectation: &Expectation,
        supervisor: Option<&Self>,
    ) -> Vec<Answer> {
        let machine = self.profile_here(profile);
        let mut answers = self.of_status(machine);
        answers.extend([
            self.limits(profile),
            settings::answer(self, profile, expectation),
            self.environment(profile),
            self.program(profile),
        ]);
        answers.extend(rules::NEVER_SEEN.map(|rule| Self::unseen(profile, rule)));
        answers.extend(holdings::answers(self, machine));
        answers.extend(expectation.build.as_ref().map(|build| build.answer(self, profile)));
        for rule in rules::RULES.iter().filter(|rule| rule.applies_to(profile)) {
            match rule.name {
                "namespaces" => answers.push(namespaces::answer(self, profile, supervisor)),
                "propagation" => answers.push(namespaces::propagation(self, profile)),
                "socket-files" => answers.push(socket_files::answer(self, profile)),
                _ => {}
            }
        }
        answers.sort_by_key(|answer| answer.rule);
        answers
    }

    /// Returns the answers that are deviations. A policy other than `policy` and production is one.
    #[must_use]
    pub fn deviations(&self, profile: &'static Profile, policy: Policy) -> Vec<Answer> {
        let mut answers = self.answers(profile, &Expectation::of(policy), None);
        answers.retain(|answer| answer.verdict == Verdict::Deviates);
        answers
    }

    /// Returns the answers to all rules of a profile for a process that cannot be read.
    #[must_use]
    pub fn unreadable(pid: u32, profile: &'static Profile, why: &str) -> Vec<Answer> {
        let rules = rules::RULES.into_iter().filter(|rule| rule.applies_to(profile));
        let rules = rules.filter(|rule| ![rules::DIGEST, rules::PROCESSES].contains(&rule.name));
        let answer = |rule: rules::Rule| match rule.name {
            name if rules::NEVER_SEEN.contains(&name) => {
                Answer::new(profile, name, Verdict::NeverSeen, why, "")
            }
            name => Answer::new(profile, name, Verdict::NotSeen, why, format!("/proc/{pid}")),
        };
        rules.map(answer).collect()
    }

    /// Returns the profile on this machine, whose disks choose the opener's user and groups.
    fn profile_here(&self, profile: &'static Profile) -> &'static Profile {
        let expected = profile.on(&self.disks);
        // A disk that root alone may open may have appeared after the start of a process that is
        // not root.
        if expected.identity.uid == 0 && self.status.uids == [profile.identity.uid; 4] {
            let mut disks = self.disks.clone();
            disks.nodes.retain(|(_, owner)| !owner.is_open_to_root_alone());
            return profile.on(&disks);
        }
        expected
    }

    /// Answers the rules on what `/proc/PID/status` shows, and on filters.
    fn of_status(&self, profile: &'static Profile) -> Vec<Answer> {
        let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let of_process = of_status(profile, &self.status);
        let mut add = |one: &Deviation, thread: Option<u32>| {
            let place = thread.map_or_else(String::new, |thread| format!(" in thread {thread}"));
            let found = format!("{} {} instead of {}{place}", one.what, one.found, one.expected);
            wrong.entry(one.what).or_default().push(found);
        };
        of_process.iter().for_each(|one| add(one, None));
        for thread in self.threads.iter().filter(|thread| thread.status != self.status) {
            let own = of_status(profile, &thread.status);
            let others = own.iter().filter(|one| !of_process.contains(one));
            others.for_each(|one| add(one, Some(thread.number)));
        }
        let threads = self.threads.len();
        let evidence = format!("/proc/{}/task/*/status of {threads} threads", self.pid);
        let answers = RULES_OF_STATUS.iter().map(|(rule, whats)| {
            let wrong: Vec<String> =
                whats.iter().filter_map(|what| wrong.remove(what)).flatten().collect();
            if *rule == "system-calls" && wrong.is_empty() {
                return self.filters(profile);
            }
            Answer::of_findings(profile, rule, &wrong, self.shown(rule), evidence.clone())
        });
        answers.collect()
    }

    /// Returns what `/proc/PID/status` shows by a rule.
    fn shown(&self, rule: &str) -> String {
        let Status { uids, gids, groups, permitted, effective, bounding, .. } = &self.status;
        match rule {
            "user" => format!("{uids:?}"),
            "group" => format!("{gids:?}"),
            "groups" => format!("{groups:?}"),
            "capabilities" => {
                format!(
                    "permitted {permitted:#x}, effective {effective:#x}, bounding {bounding:#x}"
                )
            }
            _ => u8::from(self.status.no_new_privs).to_string(),
        }
    }

    fn limits(&self, profile: &'static Profile) -> Answer {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for limit in profile.limits {
            let (long, short) = rules::of_resource(limit.resource);
            let found = self.limits.iter().find(|(known, _)| known == long);
            match found {
                Some((_, Some(found))) if *found <= limit.value => {
                    right.push(format!("{short} {found}"));
                }
                Some((_, Some(found))) => wrong.push(format!("{short} {found}")),
                Some((_, None)) => wrong.push(format!("{short} unlimited")),
                None => wrong.push(format!("{short} not shown")),
            }
        }
        let evidence = format!("/proc/{}/limits", self.pid);
        Answer::of_findings(profile, "limits", &wrong, right.join(", "), evidence)
    }

    /// Compares the environment with which the process was started: a process removes what it does
    /// not keep, but its memory still shows it.
    fn environment(&self, profile: &'static Profile) -> Answer {
        let wrong: Vec<String> = self
            .variables
            .iter()
            .filter(|name| !environment::may_have(profile, name))
            .cloned()
            .collect();
        let evidence = format!("/proc/{}/environ", self.pid);
        if wrong.is_empty() && self.environment_is_cut && environment::is_restricted(profile) {
            let found = "an environment that is longer than what is read of it";
            return Answer::new(profile, "environment", Verdict::NotSeen, found, evidence);
        }
        let right = format!("{} variables", self.variables.len());
        Answer::of_findings(profile, "environment", &wrong, right, evidence)
    }

    /// Answers whether the file that runs is the one that the profile is for.
    fn program(&self, profile: &'static Profile) -> Answer {
        let evidence = format!("/proc/{}/exe", self.pid);
        let named = rules::programs(profile).split(", ").any(|name| name == self.program);
        let (verdict, how) = match () {
            () if self.is_replaced => (Verdict::NotSeen, ", a file that was replaced or removed"),
            () if !named => (Verdict::NotSeen, ""),
            () if self.seen.has_ended => (Verdict::NotSeen, ", which ended while it was read"),
            () => (Verdict::Conforms, ""),
        };
        Answer::new(profile, "program", verdict, format!("{}{how}", self.program), evidence)
    }

    /// Answers a rule on what the kernel shows to nobody but the process itself.
    fn unseen(profile: &'static Profile, rule: &'static str) -> Answer {
        let found = "the kernel does not show it; the process logs it when it starts";
        Answer::new(profile, rule, Verdict::NeverSeen, found, "")
    }

    /// Returns the choice of system calls that the process's arguments make:
    /// `--helper vsock://2:1` makes the choice `vsock`.
    pub(crate) fn choice(&self, profile: &Profile) -> Option<&'static Choice> {
        profile.choices.iter().find(|choice| {
            let scheme = format!("{}://", choice.name);
            self.arguments
                .iter()
                .any(|one| one.rsplit('=').next().is_some_and(|value| value.starts_with(&scheme)))
        })
    }

    /// Compares the system call filters of each thread with those of the profile. Further filters
    /// can only narrow what a process may do.
    fn filters(&self, profile: &'static Profile) -> Answer {
        let new = |verdict, found: String, evidence: &str| {
            let evidence = format!("{evidence} of process {}", self.pid);
            Answer::new(profile, "system-calls", verdict, found, evidence)
        };
        let number = self.status.own_number.unwrap_or(self.pid);
        let number = i32::try_from(number).ok().and_then(Pid::from_raw).unwrap_or(Pid::INIT);
        let filters = match ebs_csi_confine::filters(profile, self.choice(profile), number) {
            Ok(filters) => filters,
            Err(fault) => return new(Verdict::NotSeen, fault.to_string(), "this program"),
        };
        let wanted = filters.len();
        let statuses = self.threads.iter().map(|thread| &thread.status).chain([&self.status]);
        let counts = statuses.filter(|status| status.seccomp == FILTERED);
        let fewest = counts.filter_map(|status| status.seccomp_filters).min();
        if let Some(fewest) = fewest.filter(|fewest| u64::from(*fewest) < wanted as u64) {
            let found = format!("{fewest} filters instead of {wanted}");
            return new(Verdict::Deviates, found, "/proc/PID/status");
        }
        let lacking = self.threads.iter().filter_map(|thread| {
            let own = thread.filters.as_ref()?;
            let lacks = |wanted: &&Vec<u8>| !own.iter().any(|one| one[..] == wanted[..]);
            let lacks = filters.iter().filter(lacks).count();
            (lacks > 0).then_some((thread.number, lacks))
        });
        if let Some((thread, lacks)) = lacking.max_by_key(|(_, lacks)| *lacks) {
            let found = format!("{lacks} of its {wanted} filters missing in thread {thread}");
            return new(Verdict::Deviates, found, "ptrace");
        }
        if self.filters_unseen.is_some() || self.threads.iter().any(|one| one.filters.is_none()) {
            let count = fewest.map_or_else(|| "unknown".to_owned(), |one| one.to_string());
            let why = self.filters_unseen.as_deref().unwrap_or("they were not read");
            let found = format!("{count} filters, whose content is not shown: {why}");
            return new(Verdict::NotSeen, found, "ptrace");
        }
        new(Verdict::Conforms, format!("its {wanted} filters"), "ptrace")
    }
}

/// Returns the deviations of a thread's status. A process that keeps the groups of its pod may have
/// any of them but those of the system.
fn of_status(profile: &Profile, status: &Status) -> Vec<Deviation> {
    let mut found = profile.deviations(status);
    let extra = profile.identity.extra_groups(&status.groups);
    if profile.identity.other_unprivileged_uid
        && extra.iter().any(|group| *group < FIRST_ORDINARY_GROUP && *group != status.gids[1])
    {
        found.push(Deviation {
            what: "supplementary groups",
            expected: format!(
                "{:?} and none below {FIRST_ORDINARY_GROUP}",
                profile.identity.groups
            ),
            found: format!("{:?}", status.groups),
        });
    }
    found
}

#[cfg(test)]
mod tests;
