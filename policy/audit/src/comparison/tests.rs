use std::sync::Arc;

use super::*;
use crate::process::Thread;
use ebs_csi_policy::profile::{self, BlockNodes, NodeOwner, Resource};
use ebs_csi_policy::variant::PRODUCTION;

/// Returns the rules that deviate.
fn wrong(process: &Process, profile: &'static Profile) -> Vec<&'static str> {
    process.deviations(profile, PRODUCTION).into_iter().map(|answer| answer.rule).collect()
}

fn answer(process: &Process, profile: &'static Profile, rule: &str) -> Answer {
    let answers = process.answers(profile, &Expectation::of(PRODUCTION), None);
    answers.into_iter().find(|answer| answer.rule == rule).unwrap()
}

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
    assert_eq!(wrong(&process, profile::BROKER), [""; 0]);
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
    assert_eq!(wrong(&process, profile::OPENER), ["groups"]);
    process.status.groups = vec![485];
    assert_eq!(wrong(&process, profile::OPENER), [""; 0]);
    process.disks = disk(6);
    assert_eq!(wrong(&process, profile::OPENER), ["groups"]);
    // Device nodes that only root may open: the opener's user is 0, unless the nodes appeared
    // later.
    process.status.groups.clear();
    process.disks = disk(0);
    process.disks.nodes[0].1.mode = 0o600;
    assert_eq!(wrong(&process, profile::OPENER), [""; 0]);
    process.status.uids = [0; 4];
    assert_eq!(wrong(&process, profile::OPENER), [""; 0]);
    process.disks = disk(6);
    assert_eq!(wrong(&process, profile::OPENER)[..1], ["user"]);
}

#[test]
fn credential_in_node_process_environment_is_deviation() {
    let mut process = confined(profile::BROKER);
    process.variables = vec![
        "AWS_REGION".to_owned(),
        "AWS_SECRET_ACCESS_KEY".to_owned(),
        "AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(),
    ];
    let found = answer(&process, profile::BROKER, "environment");
    assert_eq!(found.verdict, Verdict::Deviates);
    assert_eq!(found.found, "AWS_SECRET_ACCESS_KEY; AWS_WEB_IDENTITY_TOKEN_FILE");
    process.variables.clear();
    process.environment_is_cut = true;
    assert_eq!(answer(&process, profile::BROKER, "environment").verdict, Verdict::NotSeen);
}

#[test]
fn too_high_or_missing_limit_is_deviation() {
    let mut process = confined(profile::BROKER);
    process.limits[1].1 = Some(4096);
    assert_eq!(answer(&process, profile::BROKER, "limits").found, "nofile 4096");
    process.limits[1].1 = None;
    assert_eq!(answer(&process, profile::BROKER, "limits").found, "nofile unlimited");
    process.limits.clear();
    assert_eq!(wrong(&process, profile::BROKER), ["limits"]);
}

#[test]
fn deviation_of_second_thread_names_thread() {
    let mut process = confined(profile::CONTROLLER);
    let root = Status { uids: [0; 4], ..process.status.clone() };
    let status = process.status.clone();
    process.threads = [(7, status), (8, root)]
        .map(|(number, status)| Thread { number, status, filters: None })
        .to_vec();
    let found = answer(&process, profile::CONTROLLER, "user");
    assert_eq!(found.found, "user [0, 0, 0, 0] instead of 65530 in thread 8");
    assert_eq!(wrong(&process, profile::CONTROLLER), ["user"]);
}

#[test]
fn system_groups_of_pod_are_deviation() {
    for (groups, expected) in [
        (&[65530, 2000][..], Verdict::Conforms),
        (&[0][..], Verdict::Deviates),
        (&[999, 2000][..], Verdict::Deviates),
        (&[1000][..], Verdict::Conforms),
    ] {
        let mut process = confined(profile::CONTROLLER);
        process.status.groups = groups.to_vec();
        let found = answer(&process, profile::CONTROLLER, "groups");
        assert_eq!(found.verdict, expected, "{groups:?}: {found}");
    }
}

#[test]
fn too_few_or_other_filters_never_conform() {
    let verdict = |count, programs: Option<Vec<Vec<u8>>>| {
        let mut process = confined(profile::OPENER);
        process.status.seccomp_filters = Some(count);
        let status = process.status.clone();
        let filters = programs.map(|all| all.into_iter().map(Arc::from).collect());
        process.threads = vec![Thread { number: 7, status, filters }];
        answer(&process, profile::OPENER, "system-calls").verdict
    };
    let right = ebs_csi_confine::filters(profile::OPENER, None, Pid::INIT).unwrap();
    let further = [&[vec![6, 0, 0, 0, 0, 0, 0xff, 0x7f]], &right[..]].concat();
    let allow_all = further[..1].to_vec();
    let mut one_instruction_more = right.clone();
    one_instruction_more[0].extend([6, 0, 0, 0, 0, 0, 0xff, 0x7f]);
    let count = u32::try_from(right.len()).unwrap();
    // Any filters have a number, those of a container's runtime, too.
    assert_eq!(verdict(count, None), Verdict::NotSeen);
    assert_eq!(verdict(count + 4, None), Verdict::NotSeen);
    assert_eq!(verdict(count - 1, None), Verdict::Deviates);
    assert_eq!(verdict(count + 1, Some(further)), Verdict::Conforms);
    assert_eq!(verdict(count, Some(right)), Verdict::Conforms);
    assert_eq!(verdict(count, Some(allow_all)), Verdict::Deviates);
    assert_eq!(verdict(count, Some(one_instruction_more)), Verdict::Deviates);
}

#[test]
fn replaced_or_renamed_program_is_not_seen() {
    let program = |name: &str, is_replaced| {
        let process = Process { is_replaced, program: name.to_owned(), ..Process::default() };
        answer(&process, profile::BROKER, "program").verdict
    };
    assert_eq!(program("ebs-csi-mount-helper", false), Verdict::Conforms);
    assert_eq!(program("ebs-csi-mount-helper", true), Verdict::NotSeen);
    assert_eq!(program("ebs-csi-mount-helper2", false), Verdict::NotSeen);
    assert_eq!(program("ebs-csi-controller", false), Verdict::NotSeen);
}

/// Only what no kernel shows leaves the exit status as it is.
#[test]
fn unreadable_process_answers_each_rule_unseen() {
    for profile in profile::ALL {
        let answers = Process::unreadable(7, profile, "why");
        let seen = confined(profile).answers(profile, &Expectation::of(PRODUCTION), None);
        let names = |answers: &[Answer]| answers.iter().map(Answer::id).collect::<Vec<_>>();
        assert_eq!(names(&answers), names(&seen));
        for answer in answers {
            let expected = if rules::NEVER_SEEN.contains(&answer.rule) {
                Verdict::NeverSeen
            } else {
                Verdict::NotSeen
            };
            assert_eq!(answer.verdict, expected, "{answer}");
        }
    }
}

#[test]
fn process_that_ended_meanwhile_never_conforms() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut process = Process::read(child.id()).unwrap();
    process.program = rules::programs(profile::BROKER);
    assert_eq!(answer(&process, profile::BROKER, "program").verdict, Verdict::Conforms);
    child.kill().unwrap();
    child.wait().unwrap();
    process.read_filters();
    for rule in ["program", "system-calls"] {
        let found = answer(&process, profile::BROKER, rule);
        assert_ne!(found.verdict, Verdict::Conforms, "{found}");
    }
    assert_eq!(answer(&process, profile::BROKER, "program").verdict, Verdict::NotSeen);
}

#[test]
fn thread_whose_filters_are_hidden_never_conforms() {
    let right = ebs_csi_confine::filters(profile::OPENER, None, Pid::INIT).unwrap();
    let mut process = confined(profile::OPENER);
    process.status.seccomp_filters = Some(u32::try_from(right.len()).unwrap());
    let filters = Some(right.into_iter().map(Arc::from).collect());
    let status = process.status.clone();
    process.threads = vec![Thread { number: 7, status, filters }];
    let verdict = |process: &Process| answer(process, profile::OPENER, "system-calls").verdict;
    assert_eq!(verdict(&process), Verdict::Conforms);
    let hidden = Thread { number: 8, filters: None, ..process.threads[0].clone() };
    process.threads.push(hidden);
    assert_eq!(verdict(&process), Verdict::NotSeen);
    process.threads.pop();
    process.filters_unseen = Some("it starts threads faster than they are read".to_owned());
    assert_eq!(verdict(&process), Verdict::NotSeen);
}
