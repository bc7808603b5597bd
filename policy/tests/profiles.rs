//! The profiles, row by row.

use std::collections::BTreeSet;

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{
    self, ALL, BROKER, CONTROLLER, CallAnswer, CallRule, Condition, DIRECTORIES, FilePlace,
    FileRight, Files, LAUNCHER, Limit, NODE_AGENT, OPENER, Profile, RELAY, RUNNER, Resource,
    SUPERVISOR, Scope, TOOL, Tcp,
};

fn allows(profile: &Profile, call: &str) -> bool {
    profile.calls.iter().any(|rule| rule.call == call && rule.answer == CallAnswer::Allow)
}

fn assert_denied(profile: &Profile, calls: &str) {
    for call in calls.split(' ') {
        assert!(!allows(profile, call), "{call} of {}", profile.name);
    }
}

/// Returns the names of the profiles for which this holds.
fn profiles_that(holds: impl Fn(&Profile) -> bool) -> Vec<&'static str> {
    ALL.into_iter().filter(|profile| holds(profile)).map(|profile| profile.name).collect()
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

#[test]
fn only_broker_and_launcher_hold_capabilities() {
    let names = |profile: &Profile| {
        profile.capabilities.iter().map(|held| held.capability.name).collect::<Vec<_>>()
    };
    assert_eq!(profiles_that(|p| !p.capabilities.is_empty()), ["launcher", "broker"]);
    assert_eq!(names(LAUNCHER), ["CAP_KILL"]);
    assert_eq!(names(BROKER), ["CAP_SYS_ADMIN", "CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"]);
    assert_eq!(BROKER.capabilities.iter().filter(|held| held.effective).count(), 1);
}

#[test]
fn only_the_directories_process_is_user_0() {
    assert_eq!(profiles_that(|p| p.identity.uid == 0), ["directories"]);
    let others = ALL.iter().filter(|p| p.name != "runner" && p.name != "tool");
    let users: BTreeSet<u32> = others.map(|p| p.identity.uid).collect();
    assert_eq!(users.len(), 10, "processes that trust each other differently share no user");
}

#[test]
fn each_dangerous_call_has_its_few_profiles() {
    // These undo confinement, reach widely into the kernel, or change owners, modes and names of
    // files. A file of memfd_create would have no size limit.
    const NOBODY: &str = "mount pivot_root chroot setns unshare ptrace bpf io_uring_setup userfaultfd \
        perf_event_open init_module finit_module kexec_load keyctl add_key request_key \
        mknod chmod fchmod fchmodat chown fchown fchownat setuid setresuid setgid \
        setgroups open_by_handle_at reboot swapon syslog acct quotactl personality \
        process_vm_writev execveat rename renameat2 symlinkat linkat memfd_create setrlimit";
    const MOUNTS: &str = "fsopen fsconfig fsmount move_mount open_tree mount_setattr umount2";
    for (calls, expected) in [
        (NOBODY, &[][..]),
        (MOUNTS, &["broker"]),
        // The execve in the tool's profile is the one that starts the tool: a tool cannot make a
        // child.
        ("execve", &["supervisor", "runner", "tool"]),
        // Limits are set where tools run alone.
        ("prlimit64", &["supervisor", "runner", "tool"]),
        // Tools and look-ups of names start threads. A thread needs clone, and without one no other
        // process is made either.
        ("clone", &["controller", "node-lifecycle", "supervisor", "runner", "tool"]),
    ] {
        for call in calls.split(' ') {
            assert_eq!(profiles_that(|p| allows(p, call)), expected, "{call}");
        }
    }
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
        setpgid sched_setaffinity sched_setscheduler setpriority fork vfork";
    assert_denied(TOOL, CALLS);
}

/// The flags of their clone calls name no new namespace; clone3 is absent or fails with ENOSYS.
#[test]
fn only_supervisor_and_runner_fork() {
    /// The `CLONE_NEW…` flags of linux/sched.h that clone(2) takes.
    const NAMESPACES: u64 = 0x7e02_0000;
    const PARENT: u64 = 0x8000;
    let forks = |profile: &Profile| {
        let mut forks = false;
        for rule in profile.calls.iter().filter(|rule| rule.call == "clone") {
            match rule.condition {
                _ if rule.answer != CallAnswer::Allow => {}
                Condition::OneOf { argument: 0, mask: u64::MAX, values, .. } => {
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
        forks
    };
    assert_eq!(profiles_that(forks), ["supervisor", "runner"]);
    for rule in ALL.iter().flat_map(|p| p.calls).filter(|rule| rule.call == "clone3") {
        assert!(matches!(rule.answer, CallAnswer::Errno(errno) if errno.number == 38), "{rule:?}");
    }
}

/// Unlike open and openat, openat2 can confine a lookup to a held directory.
#[test]
fn broker_starts_nothing_and_opens_only_with_openat2() {
    assert_denied(BROKER, "clone clone3 fork vfork execve open openat socket connect bind");
    assert!(allows(BROKER, "openat2"));
}

/// What such a process may write to is open before its filter, and can be neither closed nor
/// replaced.
#[test]
fn privileged_processes_write_only_to_kept_descriptors() {
    const CALLS: &str = "writev pwrite64 pwritev dup dup2 dup3 close_range sendfile splice \
        copy_file_range";
    let keeping = |profile: &Profile| profile.kept_descriptors > 0;
    assert_eq!(profiles_that(keeping), ["broker", "directories", "opener", "relay"]);
    for profile in ALL.into_iter().filter(|profile| keeping(profile)) {
        assert_denied(profile, CALLS);
        for rule in profile.calls.iter().filter(|rule| rule.answer == CallAnswer::Allow) {
            match (rule.call, rule.condition) {
                ("write", Condition::Below { argument: 0, limit })
                | ("close", Condition::NotBelow { argument: 0, limit }) => {
                    assert_eq!(limit, profile.kept_descriptors);
                }
                ("write" | "close", condition) => panic!("{condition:?} of {}", profile.name),
                _ => {}
            }
        }
        let descriptors = |limit: &&Limit| limit.resource == Resource::Descriptors;
        let most = profile.limits.iter().find(descriptors).map(|limit| limit.value);
        assert!(most.is_some_and(|most| most >= 2 * u64::from(profile.kept_descriptors)));
    }
}

#[test]
fn memory_is_executable_only_where_libraries_are_loaded() {
    let maps_freely = |profile: &Profile| {
        let maps = |rule: &&CallRule| rule.call == "mmap" || rule.call == "mprotect";
        profile.calls.iter().filter(maps).any(|rule| match rule.condition {
            Condition::LacksBits(bits) => !bits.iter().any(|(_, bits)| bits.name == "PROT_EXEC"),
            _ => true,
        })
    };
    let expected = ["controller", "node-lifecycle", "supervisor", "runner", "tool"];
    assert_eq!(profiles_that(maps_freely), expected);
}

/// The group distinguishes the opener from the directories process, because both may have the same
/// user.
#[test]
fn only_opener_opens_disks_and_cannot_mount() {
    assert_eq!(profiles_that(|p| p.identity.opens_disks), ["opener"]);
    assert_eq!(profiles_that(|p| !p.identity.groups.is_empty()), ["opener"]);
    assert_denied(OPENER, "fsopen capset");
    assert!(OPENER.landlock.floor_is_hard);
    assert_ne!(OPENER.identity.gid, DIRECTORIES.identity.gid);
}

#[test]
fn relay_accepts_for_broker_and_opens_nothing() {
    assert_denied(RELAY, "openat openat2 socket connect setsockopt recvmsg listen");
    let accepted_by = |profile: &Profile| {
        profile.listeners.iter().map(|listener| listener.accepted_by).collect::<Vec<_>>()
    };
    assert_eq!((accepted_by(RELAY), accepted_by(BROKER)), (vec![None], vec![Some(RELAY.name)]));
    assert!(matches!(RELAY.landlock.files, Files::Listed([])));
}

/// The agent alone has a choice: the socket of a mount-helper in a virtual machine.
#[test]
fn only_the_agent_may_choose_vsock() {
    assert_eq!(profiles_that(|p| !p.choices.is_empty()), ["node-agent"]);
    let [choice] = NODE_AGENT.choices else { panic!("{:?}", NODE_AGENT.choices) };
    assert_eq!(choice.name, "vsock");
    for rule in choice.calls {
        let Condition::OneOf { values, .. } = rule.condition else {
            panic!("{} without a condition", rule.call);
        };
        let families: Vec<_> = values.iter().map(|value| value.name).collect();
        assert_eq!((rule.call, families), ("socket", vec!["AF_VSOCK"]));
    }
}

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
    }
    assert_eq!(profiles_that(|p| p.landlock.tcp == Tcp::Free), ["controller", "node-lifecycle"]);
}

#[test]
fn socket_pairs_are_unix_sockets() {
    let rules = ALL.iter().flat_map(|profile| profile.calls);
    for rule in rules.filter(|rule| rule.call == "socketpair") {
        let Condition::OneOf { argument: 0, values: [family], .. } = rule.condition else {
            panic!("{rule:?}");
        };
        assert_eq!(family.name, "AF_UNIX");
    }
}

#[test]
fn internet_sockets_speak_tcp_or_udp() {
    let rules = ALL.iter().flat_map(|profile| profile.calls);
    let allowed = rules.filter(|rule| rule.answer == CallAnswer::Allow && rule.call == "socket");
    for rule in allowed {
        let Condition::OneOf { values, and, .. } = rule.condition else { panic!("{rule:?}") };
        let protocols = and.map(|(argument, _, values)| {
            (argument, values.iter().map(|value| value.number).collect::<Vec<_>>())
        });
        let is_internet = values.iter().any(|family| family.name.starts_with("AF_INET"));
        assert_eq!(protocols, is_internet.then(|| (2, vec![0, 6, 17])), "{rule:?}");
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

#[test]
fn landlock_file_writes_are_limited_to_devices() {
    for profile in ALL {
        let rules = profile.landlock.files.rules();
        for rule in rules.iter().filter(|rule| rule.rights.contains(&FileRight::WriteFile)) {
            let place = match rule.place {
                FilePlace::Path(path) => path,
                FilePlace::Named(name) => name,
            };
            assert!(["/dev", "/dev/null", "device"].contains(&place), "{rule:?}");
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
    let both = [Scope::AbstractUnixSocket, Scope::Signal];
    assert_eq!(profiles_that(|p| p.landlock.scopes != both), ["launcher"]);
    assert_eq!(LAUNCHER.landlock.scopes, [Scope::AbstractUnixSocket]);
    assert!(
        matches!(BROKER.landlock.files, Files::Free),
        "a domain with a right on files cannot mount"
    );
    assert!(TOOL.landlock.floor_is_hard && DIRECTORIES.landlock.floor_is_hard);
}

#[test]
fn runner_and_supervisor_profiles_have_same_calls() {
    let calls = |profile: &Profile| profile.calls.iter().map(|rule| rule.call).collect::<Vec<_>>();
    assert_eq!(calls(RUNNER), calls(SUPERVISOR));
}

#[test]
fn every_profile_is_found_by_its_name() {
    for profile in ALL {
        let found = profile::named(profile.name).map(|found| found.about);
        assert_eq!(found, Some(profile.about));
    }
    assert!(profile::named("root").is_none());
}

/// A container runtime may repeat the primary group among the supplementary groups.
#[test]
fn process_matching_its_profile_has_no_deviation() {
    for profile in ALL {
        let mut status = exact(profile);
        assert_eq!(profile.deviations(&status), [], "{}", profile.name);
        status.groups.push(profile.identity.gid);
        assert_eq!(profile.deviations(&status), [], "{}", profile.name);
    }
}

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
            assert!(deviations.iter().any(|one| one.what == what), "{what} of {}", profile.name);
        }
    }
}

#[test]
fn profile_gives_held_capability_by_name() {
    let number = |name| BROKER.capability(name).map(|held| held.number);
    assert_eq!([number("CAP_SYS_ADMIN"), number("CAP_CHOWN")], [Some(21), None]);
}

#[test]
fn optional_capability_may_be_absent_required_may_not() {
    let needed = 1 << 21;
    let status = Status { permitted: needed, bounding: needed, ..exact(BROKER) };
    assert_eq!(BROKER.deviations(&status), []);
    assert_ne!(BROKER.deviations(&Status { permitted: 0, effective: 0, ..status }), []);
}

/// The processes that a container runtime may start under another user than the profile's.
const STARTED_UNPRIVILEGED: [&str; 4] = ["controller", "node-lifecycle", "launcher", "router"];

#[test]
fn other_unprivileged_user_is_accepted_where_allowed() {
    let accepts = |profile: &Profile, uid, gid| {
        let status = Status { uids: [uid; 4], gids: [gid; 4], ..exact(profile) };
        profile.deviations(&status).is_empty()
    };
    assert_eq!(profiles_that(|p| accepts(p, 1000, 1000)), STARTED_UNPRIVILEGED);
    assert_eq!(profiles_that(|p| accepts(p, 1000, p.identity.gid)), STARTED_UNPRIVILEGED);
    assert!(!accepts(CONTROLLER, 0, 0));
}

#[test]
fn only_profiles_started_unprivileged_accept_extra_groups() {
    let accepts = |profile: &Profile| {
        let mut status = exact(profile);
        status.groups.extend([profile.identity.gid, 2000]);
        assert_eq!(profile.identity.extra_groups(&status.groups), [2000]);
        profile.deviations(&status).is_empty()
    };
    assert_eq!(profiles_that(accepts), STARTED_UNPRIVILEGED);
}

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
