//! Securebits, namespaces, variables and sockets of the processes, row by row.

use std::collections::BTreeSet;

use ebs_csi_policy::profile::environment::{GIVEN, KEPT, given};
use ebs_csi_policy::profile::process::{LANDLOCK, NAMESPACES, Share, secure_bits};
use ebs_csi_policy::profile::socket_file::SOCKETS;
use ebs_csi_policy::profile::{ALL, NODE_AGENT, SUPERVISOR, named};
use ebs_csi_policy::tool::ToolId;

/// linux/securebits.h: all but KEEP_CAPS, whose lock is among them.
#[test]
fn each_securebit_but_keep_caps_is_set() {
    assert_eq!(secure_bits(), 0xff & !(1 << 4));
}

/// The floor of a profile is an ABI whose rights its rules speak of.
#[test]
fn no_landlock_floor_is_above_handled_abi() {
    for profile in ALL {
        assert!(profile.landlock.floor <= LANDLOCK.abi, "{}", profile.name);
    }
}

#[test]
fn helper_alone_leaves_namespaces_of_node() {
    // linux/sched.h: CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET
    assert_eq!(SUPERVISOR.unshared(), 0x0400_0000 | 0x0800_0000 | 0x4000_0000);
    let helper = ["supervisor", "broker", "directories", "opener", "relay", "runner", "tool"];
    for profile in ALL {
        let is_of_helper = helper.contains(&profile.name);
        assert_eq!(profile.unshared() != 0, is_of_helper, "{}", profile.name);
        assert_eq!(profile.namespaces().next().is_some(), is_of_helper, "{}", profile.name);
        let shares = profile.namespaces().filter(|row| row.share == Share::WithSupervisor);
        let kinds = shares.map(|row| row.kinds.len()).sum::<usize>();
        let is_child = is_of_helper && profile.name != "supervisor";
        assert_eq!(kinds, if is_child { 7 } else { 0 }, "{}", profile.name);
    }
    assert!(NAMESPACES.iter().all(|row| !row.kinds.is_empty()));
}

#[test]
fn each_kept_row_keeps_its_variables_alone() {
    for row in KEPT {
        for profile in ALL {
            let own = profile.kept_variables().flat_map(|row| row.begins);
            let own: BTreeSet<&str> = own.copied().collect();
            for begin in row.begins {
                let is_kept = own.iter().any(|known| begin.starts_with(known));
                assert_eq!(profile.keeps_variable(begin), is_kept, "{begin} of {}", profile.name);
                let more = profile.keeps_variable(&format!("{begin}_MORE"));
                assert_eq!(more, is_kept, "{begin} of {}", profile.name);
                assert!(!profile.keeps_variable(&format!("X{begin}")), "{begin}");
            }
        }
        let kept = row.profiles.iter().filter_map(|name| named(name));
        let all = kept.flat_map(|profile| row.begins.iter().map(move |begin| (profile, begin)));
        assert!(all.clone().next().is_some());
        for (profile, begin) in all {
            assert!(profile.keeps_variable(begin), "{begin} of {}", profile.name);
        }
    }
}

#[test]
fn only_controller_keeps_credentials_of_aws() {
    for name in ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"] {
        for profile in ALL {
            let is_controller = profile.name == "controller";
            assert_eq!(profile.keeps_variable(name), is_controller, "{name} of {}", profile.name);
            assert_eq!(profile.forbids_variable(name).is_none(), is_controller, "{name}");
        }
    }
}

#[test]
fn tool_is_given_rows_of_its_own() {
    for tool in ToolId::ALL.iter().copied() {
        for time in [0, 1_700_000_000] {
            let found: BTreeSet<String> = given(tool, time).into_iter().collect();
            for row in GIVEN {
                let is_its = row.tools.is_empty() || row.tools.contains(&tool.as_str());
                let of_time = row.value == "{time}";
                let value = if of_time { time.to_string() } else { row.value.to_owned() };
                let line = format!("{}={value}", row.name);
                let wanted = is_its && (time != 0 || !of_time);
                assert_eq!(found.contains(&line), wanted, "{line} of {}", tool.as_str());
            }
            assert!(found.len() <= GIVEN.len());
        }
    }
    let of_mke2fs = given(ToolId::Mke2fs, 7);
    let expected = ["LC_ALL=C", "TZ=UTC", "MALLOC_ARENA_MAX=4", "E2FSPROGS_FAKE_TIME=7"];
    assert_eq!(of_mke2fs, expected);
    assert_eq!(given(ToolId::E2fsckFull, 7).pop().as_deref(), Some("E2FSCK_TIME=7"));
}

#[test]
fn each_socket_row_serves_its_peers_alone() {
    for row in SOCKETS {
        let users = ALL.iter().map(|profile| (profile.name, profile.identity.uid));
        for (name, uid) in users.chain([("root", 0), ("nobody", 65534)]) {
            let is_peer = row.peers.is_empty()
                || row
                    .peers
                    .iter()
                    .any(|peer| named(peer).is_some_and(|profile| profile.identity.uid == uid));
            assert_eq!(row.serves(uid), is_peer, "{name} at {} of {}", row.flag, row.profile);
        }
        let profile = named(row.profile).expect("a profile");
        assert_eq!(profile.socket_mode(row.flag), row.mode);
        assert_eq!(profile.socket_mode("--none"), 0o600);
    }
    let helper = SOCKETS.iter().find(|row| row.profile == "broker").expect("a row");
    assert!(helper.serves(NODE_AGENT.identity.uid) && !helper.serves(0));
    assert_eq!(helper.gid(), Some(NODE_AGENT.identity.gid));
}

/// From ABI 9 on, Landlock keeps each other process from unix sockets by their paths.
#[test]
fn socket_paths_are_resolved_by_three_processes() {
    use ebs_csi_policy::profile::FileRight::ResolveUnix;
    let resolving = ALL.into_iter().filter(|profile| {
        profile.landlock.files.rules().iter().any(|row| row.rights.contains(&ResolveUnix))
    });
    let names: Vec<_> = resolving.map(|profile| profile.name).collect();
    assert_eq!(names, ["node-lifecycle", "router", "node-agent"]);
}
