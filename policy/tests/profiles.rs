//! The profiles, row by row.

use std::collections::BTreeSet;

use ebs_csi_policy::audit::Status;
use ebs_csi_policy::profile::{
    self, ALL, BROKER, CONTROLLER, CallAnswer, Condition, DIRECTORIES, FilePlace, FileRight, Files,
    LAUNCHER, NODE_AGENT, NODE_LIFECYCLE, OPENER, Profile, ROUTER, RUNNER, SUPERVISOR, Scope, TOOL,
    Tcp,
};
use ebs_csi_policy::tool::ToolId;

fn allows(profile: &Profile, call: &str) -> bool {
    profile.calls.iter().any(|rule| rule.call == call && rule.answer == CallAnswer::Allow)
}

/// Returns the status of a process that matches its profile exactly.
fn exact(profile: &Profile) -> Status {
    let set = |effective_only: bool| {
        profile
            .capabilities
            .iter()
            .filter(|held| held.effective || !effective_only)
            .map(|held| held.capability.bit())
            .sum()
    };
    Status {
        name: profile.name.to_owned(),
        uids: [profile.identity.uid; 4],
        gids: [profile.identity.gid; 4],
        groups: profile.identity.groups.to_vec(),
        threads: 1,
        permitted: set(false),
        effective: set(true),
        bounding: set(false),
        no_new_privs: true,
        seccomp: 2,
        ..Status::default()
    }
}

/// The launcher holds only CAP_KILL; the broker holds 3 capabilities, of which 1 is effective.
#[test]
fn only_broker_and_launcher_hold_capabilities() {
    for profile in ALL {
        let names: Vec<_> = profile.capabilities.iter().map(|held| held.capability.name).collect();
        if profile.name == "broker" {
            assert_eq!(names, ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"]);
        } else if profile.name == "launcher" {
            assert_eq!(names, ["CAP_KILL"]);
        } else {
            assert!(names.is_empty(), "{}", profile.name);
        }
    }
    let effective: Vec<_> = BROKER.capabilities.iter().filter(|held| held.effective).collect();
    assert_eq!(effective.len(), 1);
}

#[test]
fn only_the_directories_process_is_user_0() {
    for profile in ALL {
        assert_eq!(profile.identity.uid == 0, profile.name == "directories", "{}", profile.name);
    }
    let users: BTreeSet<u32> = [
        CONTROLLER,
        NODE_LIFECYCLE,
        LAUNCHER,
        ROUTER,
        NODE_AGENT,
        BROKER,
        SUPERVISOR,
        DIRECTORIES,
        OPENER,
    ]
    .map(|p| p.identity.uid)
    .into();
    assert_eq!(users.len(), 9, "processes that trust each other differently share no user");
}

#[test]
fn only_the_broker_may_change_mounts() {
    const CALLS: &str = "fsopen fsconfig fsmount move_mount open_tree mount_setattr umount2";
    for call in CALLS.split(' ') {
        for profile in ALL {
            assert_eq!(
                allows(profile, call),
                profile.name == "broker",
                "{call} in {}",
                profile.name
            );
        }
    }
}

/// These calls undo confinement, reach widely into the kernel, or change owners, modes and names of
/// files. A file of memfd_create would have no size limit.
#[test]
fn no_profile_allows_dangerous_system_calls() {
    const CALLS: &str = "mount pivot_root chroot setns unshare ptrace bpf io_uring_setup userfaultfd \
        perf_event_open init_module finit_module kexec_load keyctl add_key request_key \
        mknod chmod fchmod fchmodat chown fchown fchownat setuid setresuid setgid \
        setgroups open_by_handle_at reboot swapon syslog acct quotactl personality \
        process_vm_writev execveat rename renameat2 symlinkat linkat memfd_create";
    for call in CALLS.split(' ') {
        for profile in ALL {
            assert!(!allows(profile, call), "{call} in {}", profile.name);
        }
    }
}

#[test]
fn only_supervisor_runner_and_tool_allow_execve() {
    for profile in ALL {
        let may = ["supervisor", "runner", "tool"].contains(&profile.name);
        assert_eq!(allows(profile, "execve"), may, "{}", profile.name);
    }
    // The execve in the tool's profile is the one that starts the tool: a tool cannot make a child.
    assert!(!allows(TOOL, "fork") && !allows(TOOL, "vfork"));
}

#[test]
fn tool_profile_denies_calls_targeting_other_processes() {
    let conditions = |call: &str| {
        let rules = TOOL.calls.iter().filter(|rule| rule.call == call);
        let allowed = rules.filter(|rule| rule.answer == CallAnswer::Allow);
        allowed.map(|rule| rule.condition).collect::<Vec<_>>()
    };
    assert!(matches!(conditions("tgkill")[..], [Condition::Itself { argument: 0 }]));
    let [Condition::OneOf { argument: 0, values, .. }] = conditions("prlimit64")[..] else {
        panic!("{:?}", conditions("prlimit64"));
    };
    assert_eq!(values.iter().map(|value| value.number).sum::<u64>(), 0);
    // F_SETSIG, F_GETSIG, F_SETOWN, F_SETLEASE, F_NOTIFY and similar commands are refused.
    let [Condition::OneOf { argument: 1, values, .. }] = conditions("fcntl")[..] else {
        panic!("{:?}", conditions("fcntl"));
    };
    assert!(values.iter().all(|value| value.number <= 4 || value.number == 1030));
    const CALLS: &str = "kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal process_vm_readv \
        setpgid sched_setaffinity sched_setscheduler setpriority";
    for call in CALLS.split(' ') {
        assert!(!allows(TOOL, call), "{call}");
    }
}

/// The flags of their clone calls name no new namespace; clone3 is absent or fails with ENOSYS.
#[test]
fn only_supervisor_and_runner_fork() {
    /// The `CLONE_NEW…` flags of linux/sched.h that clone(2) takes.
    const NAMESPACES: u64 = 0x7e02_0000;
    const PARENT: u64 = 0x8000;
    for profile in ALL {
        let mut forks = false;
        for rule in profile.calls.iter().filter(|rule| rule.call == "clone") {
            match rule.condition {
                _ if rule.answer != CallAnswer::Allow => {}
                Condition::OneOf { argument: 0, mask: 0xffff_ffff, values } => {
                    for value in values {
                        assert_eq!(value.number & (NAMESPACES | PARENT), 0, "{}", value.name);
                        forks |= value.number & 0x1_0000 == 0;
                    }
                }
                // A call that makes a thread cannot make a user or process namespace (clone(2)).
                // The other namespaces need SYS_ADMIN, which no profile with this condition has.
                Condition::HasBits { argument: 0, bits } => {
                    assert_eq!(bits.name, "CLONE_THREAD");
                    assert!(profile.capabilities.is_empty(), "{}", profile.name);
                }
                condition => panic!("{condition:?} in {}", profile.name),
            }
        }
        assert_eq!(forks, ["supervisor", "runner"].contains(&profile.name), "{}", profile.name);
        let clone3 = profile.calls.iter().find(|rule| rule.call == "clone3");
        assert!(
            clone3.is_none_or(
                |rule| matches!(rule.answer, CallAnswer::Errno(errno) if errno.number == 38)
            ),
            "{}",
            profile.name
        );
    }
}

/// Unlike open and openat, openat2 can confine a lookup to a held directory.
#[test]
fn broker_starts_nothing_and_opens_only_with_openat2() {
    const CALLS: &str = "clone clone3 fork vfork execve open openat socket connect bind";
    for call in CALLS.split(' ') {
        assert!(!allows(BROKER, call), "{call}");
    }
    assert!(allows(BROKER, "openat2"));
}

/// The group distinguishes the opener from the directories process, because both may have the same
/// user.
#[test]
fn only_opener_opens_disks_and_cannot_mount() {
    for profile in ALL {
        let opens = profile.name == "opener";
        assert_eq!(profile.identity.opens_disks, opens, "{}", profile.name);
        let groups = &profile.identity.groups;
        assert_eq!(groups.is_empty(), !opens, "{}", profile.name);
    }
    assert!(!allows(OPENER, "fsopen") && !allows(OPENER, "capset"));
    assert!(OPENER.landlock.floor_is_hard);
    assert_ne!(OPENER.identity.gid, DIRECTORIES.identity.gid);
}

/// The agent alone has a choice: the socket of a mount-helper in a virtual machine.
#[test]
fn only_the_agent_may_choose_vsock() {
    for profile in ALL {
        let choices: Vec<_> = profile.choices.iter().map(|choice| choice.name).collect();
        let expected: &[&str] = match profile.name {
            "node-agent" => &["vsock"],
            _ => &[],
        };
        assert_eq!(choices, expected, "{}", profile.name);
        for rule in profile.choices.iter().flat_map(|choice| choice.calls) {
            let Condition::OneOf { values, .. } = rule.condition else {
                panic!("{} without a condition", rule.call);
            };
            let families: Vec<_> = values.iter().map(|value| value.name).collect();
            assert_eq!((rule.call, families), ("socket", vec!["AF_VSOCK"]));
        }
    }
}

/// Only the controller and node-lifecycle may create internet sockets and use TCP without limits.
#[test]
fn only_services_and_router_create_sockets() {
    for profile in ALL {
        let families: BTreeSet<&str> = profile
            .calls
            .iter()
            .filter(|rule| rule.call == "socket" && rule.answer == CallAnswer::Allow)
            .flat_map(|rule| match rule.condition {
                Condition::OneOf { values, .. } => values.iter().map(|value| value.name).collect(),
                _ => vec!["any"],
            })
            .collect();
        let expected = match profile.name {
            "controller" => BTreeSet::from(["AF_INET", "AF_INET6"]),
            "node-lifecycle" => BTreeSet::from(["AF_INET", "AF_INET6", "AF_UNIX"]),
            "node-agent" | "router" => BTreeSet::from(["AF_UNIX"]),
            _ => BTreeSet::new(),
        };
        assert_eq!(families, expected, "{}", profile.name);
        assert_eq!(
            profile.landlock.tcp == Tcp::Free,
            matches!(profile.name, "controller" | "node-lifecycle")
        );
    }
}

#[test]
fn ioctl_is_allowed_only_with_command_list() {
    for profile in ALL {
        for rule in profile.calls.iter().filter(|rule| rule.call == "ioctl") {
            let listed = matches!(rule.condition, Condition::OneOf { argument: 1, .. });
            let refused = matches!(rule.answer, CallAnswer::Errno(errno) if errno.name == "ENOTTY");
            assert!(listed || refused, "{}", profile.name);
        }
    }
}

/// Only the directories process makes directories, files or sockets, except the node-agent's
/// registration socket.
#[test]
fn landlock_file_writes_are_limited_to_devices() {
    for profile in ALL {
        let Files::Listed(rules) = profile.landlock.files else {
            continue;
        };
        for rule in rules.iter().filter(|rule| rule.rights.contains(&FileRight::WriteFile)) {
            let place = match rule.place {
                FilePlace::Path(path) => path,
                FilePlace::Named(name) => name,
            };
            assert!(
                ["/dev", "/dev/null", "device"].contains(&place),
                "{place} in {}",
                profile.name
            );
        }
        for rule in rules.iter().filter(|rule| {
            rule.rights.iter().any(|right| {
                matches!(right, FileRight::MakeDir | FileRight::MakeReg | FileRight::MakeSock)
            })
        }) {
            // The node-agent makes its registration socket again where kubelet looks for it.
            let registers = profile.name == "node-agent"
                && rule.place == FilePlace::Named("registration-directory")
                && rule.rights == [FileRight::MakeSock, FileRight::RemoveFile];
            assert!(registers || profile.name == "directories", "{rule:?}");
        }
    }
}

/// Only the launcher may send signals outside its Landlock domain, because it started its processes
/// before its confinement.
#[test]
fn landlock_scopes_block_signals_and_abstract_sockets() {
    for profile in ALL {
        let scopes: &[Scope] = match profile.name {
            // The launcher signals the processes that it started before its confinement.
            "launcher" => &[Scope::AbstractUnixSocket],
            _ => &[Scope::AbstractUnixSocket, Scope::Signal],
        };
        assert_eq!(profile.landlock.scopes, scopes, "{}", profile.name);
    }
    assert!(
        matches!(BROKER.landlock.files, Files::Free),
        "a domain with a right on files cannot mount"
    );
    assert!(TOOL.landlock.floor_is_hard && DIRECTORIES.landlock.floor_is_hard);
}

/// The runner's filter also holds in its tool, so the tool's calls and ioctl commands are a subset.
#[test]
fn runner_and_supervisor_profiles_have_same_calls() {
    let calls =
        |profile: &Profile| profile.calls.iter().map(|rule| rule.call).collect::<BTreeSet<_>>();
    assert_eq!(calls(RUNNER), calls(SUPERVISOR));
    let beyond: Vec<_> = calls(TOOL).difference(&calls(SUPERVISOR)).copied().collect();
    assert!(beyond.is_empty(), "the runner's filter holds in its tool, too: {beyond:?}");
    let commands = |profile: &Profile| {
        profile
            .calls
            .iter()
            .filter(|rule| rule.call == "ioctl")
            .flat_map(|rule| match rule.condition {
                Condition::OneOf { values, .. } => {
                    values.iter().map(|value| value.number).collect()
                }
                _ => Vec::new(),
            })
            .collect::<BTreeSet<u64>>()
    };
    assert!(commands(TOOL).is_subset(&commands(SUPERVISOR)));
}

#[test]
fn every_tool_has_a_profile() {
    for id in ToolId::ALL {
        assert!(profile::tool(id).is_some(), "{}", id.key());
    }
    for profile in ALL {
        let found = profile::named(profile.name).map(|found| found.about);
        assert_eq!(found, Some(profile.about));
    }
    assert!(profile::named("root").is_none());
}

#[test]
fn every_system_call_rule_has_reason() {
    for profile in ALL {
        for rule in profile.calls {
            assert!(rule.why.len() >= 4, "{} of {}", rule.call, profile.name);
        }
    }
}

#[test]
fn process_matching_its_profile_has_no_deviation() {
    for profile in ALL {
        assert!(profile.deviations(&exact(profile)).is_empty(), "{}", profile.name);
    }
}

/// The privileges are users, groups and capability sets; a missing no_new_privs or seccomp filter
/// is a deviation as well.
#[test]
fn each_privilege_beyond_profile_is_deviation() {
    type Change = fn(&mut Status);
    let changes: [(&str, Change); 9] = [
        ("user", |status| status.uids[1] = 0x7777_0000),
        ("group", |status| status.gids[3] = 4242),
        ("supplementary groups", |status| status.groups.push(4242)),
        ("permitted capabilities", |status| status.permitted |= 1),
        ("effective capabilities", |status| status.effective |= 1),
        ("bounding set", |status| {
            status.bounding |= 1;
            status.permitted |= 1;
        }),
        ("ambient capabilities", |status| status.ambient = 1 << 21),
        ("no_new_privs", |status| status.no_new_privs = false),
        ("seccomp", |status| status.seccomp = 0),
    ];
    for profile in ALL {
        for (what, change) in changes {
            // A process with such a profile keeps the groups that it was started with.
            if what == "supplementary groups" && profile.identity.other_unprivileged_uid {
                continue;
            }
            let mut status = exact(profile);
            change(&mut status);
            let deviations = profile.deviations(&status);
            assert!(
                deviations.iter().any(|found| found.what == what),
                "{what} of {}",
                profile.name
            );
        }
    }
}

#[test]
fn optional_capability_may_be_absent_required_may_not() {
    let mut status = exact(BROKER);
    let needed = 1 << 21;
    status.permitted = needed;
    status.bounding = needed;
    assert!(BROKER.deviations(&status).is_empty());
    status.permitted = 0;
    status.effective = 0;
    assert!(!BROKER.deviations(&status).is_empty());
}

/// The controller, node-lifecycle, launcher and router accept user 1000; the node-agent and the
/// broker do not.
#[test]
fn other_unprivileged_user_is_accepted_where_allowed() {
    let with_user = |profile: &Profile, user| {
        let mut status = exact(profile);
        status.uids = [user; 4];
        status.gids = [user; 4];
        profile.deviations(&status).is_empty()
    };
    for profile in [CONTROLLER, NODE_LIFECYCLE, LAUNCHER, ROUTER] {
        let mut status = exact(profile);
        status.uids = [1000; 4];
        assert!(profile.deviations(&status).is_empty(), "{}", profile.name);
    }
    assert!(with_user(CONTROLLER, 1000));
    assert!(!with_user(CONTROLLER, 0));
    assert!(!with_user(NODE_AGENT, 1000));
    assert!(!with_user(BROKER, 1000));
}

#[test]
fn primary_gid_in_supplementary_groups_is_no_deviation() {
    for profile in ALL {
        let mut status = exact(profile);
        status.groups.push(profile.identity.gid);
        let deviations = profile.deviations(&status);
        assert!(deviations.is_empty(), "{}: {deviations:?}", profile.name);
    }
}

#[test]
fn only_profiles_started_unprivileged_accept_extra_groups() {
    for profile in ALL {
        let mut status = exact(profile);
        status.groups.extend([profile.identity.gid, 2000]);
        let free = ["controller", "node-lifecycle", "launcher", "router"].contains(&profile.name);
        assert_eq!(profile.deviations(&status).is_empty(), free, "{}", profile.name);
        assert_eq!(profile.identity.extra_groups(&status.groups), [2000]);
    }
}

/// Each ID is 0 or from 65520 to 65531, which no distribution, systemd or base image allocates.
#[test]
fn profile_ids_avoid_allocated_user_ranges() {
    // Distributions allocate 0 to 999 and 1000 to 60000, systemd's dynamic users have 61184 to
    // 65519, base images use 65532 (nonroot), 65533 and 65534 (nobody). Nobody allocates 65520 to
    // 65531.
    for profile in ALL {
        for id in [profile.identity.uid, profile.identity.gid] {
            // Exceptions: the process that makes directories is root, and group 0 gives access to
            // kubelet's directories.
            assert!(id == 0 || (65520..=65531).contains(&id), "{id} of {}", profile.name);
        }
    }
}
