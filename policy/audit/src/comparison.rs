//! Where a live process differs from its profile.

use ebs_csi_policy::deviation::Deviation;
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{self, Choice, Profile, Resource};
use ebs_csi_policy::variant::{PRODUCTION, Policy};
use rustix::process::Pid;

use crate::holdings;
use crate::process::{FILTERED, Process};

/// The argument that weakens every policy.
const ALLOW_MISSING_LANDLOCK: &str = "--allow-missing-landlock";
/// Distributions give the groups below this number to the system's own files and devices; a pod's
/// `fsGroup` and `supplementalGroups` are not among them.
const FIRST_ORDINARY_GROUP: u32 = 1000;

impl Process {
    /// Returns every difference between the process and a profile. A policy other than `policy` and
    /// [`PRODUCTION`] is one.
    #[must_use]
    pub fn deviations(&self, profile: &'static Profile, policy: Policy) -> Vec<Deviation> {
        let mut expected = profile.on(&self.disks);
        // A disk that root alone may open may have appeared after the start of a process that is
        // not root.
        if expected.identity.uid == 0 && self.status.uids == [profile.identity.uid; 4] {
            let mut disks = self.disks.clone();
            disks.nodes.retain(|(_, owner)| !owner.is_open_to_root_alone());
            expected = profile.on(&disks);
        }
        let mut deviations = of_status(expected, &self.status);
        for thread in self.threads.iter().filter(|thread| thread.status != self.status) {
            let own = of_status(expected, &thread.status);
            let other = own.into_iter().filter(|one| !deviations.contains(one));
            deviations.extend(other.collect::<Vec<_>>().into_iter().map(|mut one| {
                one.found += &format!(" in thread {}", thread.number);
                one
            }));
        }
        deviations.extend(self.deviations_of_filters(expected));
        deviations.extend(holdings::deviations(self, expected));
        let mut add = |what, expected: &str, found: &str| {
            let (expected, found) = (expected.to_owned(), found.to_owned());
            deviations.push(Deviation { what, expected, found });
        };
        if self.is_replaced {
            add("program", "the file at its path", "a file that was replaced or removed");
        }
        for limit in profile.limits {
            let (name, what) = match limit.resource {
                Resource::Core => ("Max core file size", "core limit"),
                Resource::Descriptors => ("Max open files", "descriptor limit"),
            };
            let actual =
                self.limits.iter().find(|(known, _)| known == name).and_then(|(_, value)| *value);
            if actual.is_none_or(|actual| actual > limit.value) {
                let found = actual.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
                add(what, &limit.value.to_string(), &found);
            }
        }
        let enforced = self.policy();
        if enforced != policy && enforced != PRODUCTION {
            add("policy", policy.name, enforced.name);
        }
        if self.arguments.iter().any(|given| given == ALLOW_MISSING_LANDLOCK) {
            add("policy", policy.name, "a start without Landlock allowed");
        }
        // Only the controller calls AWS; no other process gets a credential.
        if profile.name != profile::CONTROLLER.name {
            let is_credential = |name: &&String| {
                name.starts_with("AWS_")
                    && ["SECRET", "TOKEN", "ACCESS_KEY", "CREDENTIALS", "ROLE_ARN"]
                        .iter()
                        .any(|word| name.contains(word))
            };
            for name in self.variables.iter().filter(is_credential) {
                add("environment", "no AWS credential", name);
            }
        }
        deviations
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
    fn deviations_of_filters(&self, profile: &Profile) -> Vec<Deviation> {
        let number = self.status.own_number.unwrap_or(self.pid);
        let number = i32::try_from(number).ok().and_then(Pid::from_raw).unwrap_or(Pid::INIT);
        let deviation = |expected: String, found: String| Deviation {
            what: "system call filters",
            expected,
            found,
        };
        let filters = match ebs_csi_confine::filters(profile, self.choice(profile), number) {
            Ok(filters) => filters,
            Err(fault) => return vec![deviation("those of the profile".into(), fault.to_string())],
        };
        let statuses = self.threads.iter().map(|thread| &thread.status).chain([&self.status]);
        let counts = statuses.filter(|status| status.seccomp == FILTERED);
        let fewest = counts.filter_map(|status| status.seccomp_filters).min();
        let wanted = u32::try_from(filters.len()).unwrap_or(u32::MAX);
        let mut found = Vec::new();
        if let Some(fewest) = fewest.filter(|fewest| *fewest < wanted) {
            found.push(deviation(format!("{wanted} or more"), fewest.to_string()));
        }
        let lacking = self.threads.iter().filter_map(|thread| {
            let own = thread.filters.as_ref()?;
            let lacks = filters.iter().filter(|wanted| !own.contains(wanted)).count();
            (lacks > 0).then_some((thread.number, lacks))
        });
        if let Some((thread, lacks)) = lacking.max_by_key(|(_, lacks)| *lacks) {
            let expected = format!("the {wanted} of the profile {}", profile.name);
            found.push(deviation(expected, format!("{lacks} of them missing in thread {thread}")));
        }
        found
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
mod tests {
    use super::*;
    use crate::process::Thread;
    use ebs_csi_policy::profile::{BlockNodes, NodeOwner};
    use ebs_csi_policy::variant::{GUEST, SANDBOX};

    fn confined(profile: &'static Profile) -> Process {
        let held = profile.capabilities.iter().filter(|held| held.effective);
        let held = held.map(|held| held.capability.bit()).sum();
        let limit = |resource| {
            profile.limits.iter().find(|one| one.resource == resource).map(|limit| limit.value)
        };
        Process {
            status: Status {
                uids: [profile.identity.uid; 4],
                gids: [profile.identity.gid; 4],
                groups: profile.identity.groups.to_vec(),
                no_new_privs: true,
                seccomp: 2,
                permitted: held,
                effective: held,
                bounding: held,
                ..Status::default()
            },
            limits: vec![
                ("Max core file size".to_owned(), limit(Resource::Core)),
                ("Max open files".to_owned(), limit(Resource::Descriptors)),
            ],
            ..Process::default()
        }
    }

    #[test]
    fn broker_matching_its_profile_has_no_deviation() {
        let process = confined(profile::BROKER);
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION), []);
    }

    /// Where only root may open the disks, the opener may run as user 0; elsewhere user 0 is a
    /// deviation.
    #[test]
    fn opener_group_must_match_disk_group() {
        let disk = |gid| BlockNodes {
            nodes: vec![("nvme0n1".to_owned(), NodeOwner { uid: 0, gid, mode: 0o660 })],
        };
        let mut process = confined(profile::OPENER);
        process.disks = disk(485);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION)[0].what, "supplementary groups");
        process.status.groups = vec![485];
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.disks = disk(6);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION).len(), 1);
        // Device nodes that only root may open: the opener's user is 0, unless the nodes appeared
        // later.
        process.status.groups.clear();
        process.disks = disk(0);
        process.disks.nodes[0].1.mode = 0o600;
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.status.uids = [0; 4];
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION), []);
        process.disks = disk(6);
        assert_eq!(process.deviations(profile::OPENER, PRODUCTION)[0].what, "user");
    }

    #[test]
    fn unexpected_policy_is_deviation_and_shown() {
        let mut process = confined(profile::BROKER);
        assert_eq!(process.deviations(profile::BROKER, GUEST), []);
        for (flag, policy) in [("--guest-disks", GUEST), ("--sandbox", SANDBOX)] {
            process.arguments = vec!["helper".to_owned(), flag.to_owned()];
            assert_eq!(process.policy(), policy);
            assert_eq!(process.deviations(profile::BROKER, policy), []);
            let other = if policy == GUEST { SANDBOX } else { GUEST };
            for expected in [PRODUCTION, other] {
                let found = process.deviations(profile::BROKER, expected);
                assert_eq!(found.len(), 1, "{flag}");
                assert_eq!((found[0].what, &*found[0].found), ("policy", policy.name));
            }
        }
    }

    #[test]
    fn credential_in_node_process_environment_is_deviation() {
        let mut process = confined(profile::BROKER);
        process.variables = vec![
            "AWS_REGION".to_owned(),
            "AWS_SECRET_ACCESS_KEY".to_owned(),
            "AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(),
        ];
        let found = process.deviations(profile::BROKER, PRODUCTION);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|one| one.what == "environment"));
    }

    #[test]
    fn too_high_or_missing_limit_is_deviation() {
        let mut process = confined(profile::BROKER);
        process.limits[1].1 = Some(4096);
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION)[0].what, "descriptor limit");
        process.limits.clear();
        assert_eq!(process.deviations(profile::BROKER, PRODUCTION).len(), 2);
    }

    #[test]
    fn deviation_of_second_thread_names_thread() {
        let mut process = confined(profile::CONTROLLER);
        let root = Status { uids: [0; 4], ..process.status.clone() };
        let status = process.status.clone();
        process.threads = [(7, status), (8, root)]
            .map(|(number, status)| Thread { number, status, filters: None })
            .to_vec();
        let found = process.deviations(profile::CONTROLLER, PRODUCTION);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["user: expected 65530, found [0, 0, 0, 0] in thread 8"]);
    }

    #[test]
    fn system_groups_of_pod_are_deviation() {
        for (groups, expected) in
            [(&[65530, 2000][..], 0), (&[0][..], 1), (&[999, 2000][..], 1), (&[1000][..], 0)]
        {
            let mut process = confined(profile::CONTROLLER);
            process.status.groups = groups.to_vec();
            let found = process.deviations(profile::CONTROLLER, PRODUCTION);
            assert_eq!(found.len(), expected, "{groups:?}: {found:?}");
        }
    }

    #[test]
    fn too_few_or_other_filters_are_deviation() {
        let deviations = |count, programs: Option<Vec<Vec<u8>>>| {
            let mut process = confined(profile::OPENER);
            process.status.seccomp_filters = Some(count);
            let status = process.status.clone();
            process.threads = vec![Thread { number: 7, status, filters: programs }];
            process.deviations(profile::OPENER, PRODUCTION).len()
        };
        let right = ebs_csi_confine::filters(profile::OPENER, None, Pid::INIT).unwrap();
        let further = [&[vec![6, 0, 0, 0, 0, 0, 0xff, 0x7f]], &right[..]].concat();
        let allow_all = further[..1].to_vec();
        let count = u32::try_from(right.len()).unwrap();
        assert_eq!(deviations(count, None), 0);
        assert_eq!(deviations(count - 1, None), 1);
        assert_eq!(deviations(count + 1, Some(further)), 0);
        assert_eq!(deviations(count, Some(right)), 0);
        assert_eq!(deviations(count, Some(allow_all)), 1);
    }

    #[test]
    fn replaced_program_is_deviation() {
        let process = Process { is_replaced: true, ..confined(profile::BROKER) };
        let found = process.deviations(profile::BROKER, PRODUCTION);
        assert_eq!((found.len(), found[0].what), (1, "program"));
    }
}
