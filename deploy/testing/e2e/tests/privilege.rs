//! Compares the rights of the live processes, as the kernel reports them, with the table of
//! `policy/README.md`.

use std::time::Duration;

use ebs_csi_audit::Process;
use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep as Step, program};
use ebs_csi_policy::SANDBOX;
use ebs_csi_policy::profile;
use ebs_csi_sandbox::audit;
use ebs_csi_sandbox::binaries::for_test;
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::pod_view;

/// CAP_SYS_ADMIN (linux/capability.h).
const SYS_ADMIN: u64 = 1 << 21;

#[tokio::test]
async fn each_process_has_exactly_its_documented_rights() {
    let Some(fixture) = Fixture::start().await else { return };
    let mut volume = Lifecycle::new(&fixture, Claim::filesystem("pvc-privilege", "ext4", 10));
    fixture.take(&mut volume, Step::up_to(Step::Attach)).await;
    // The runner and the tool are checked while a disk is formatted.
    let ((), staged) = tokio::join!(
        async {
            let tool = fixture.catch_tool().await;
            check_rights(&fixture, true).await;
            drop(tool);
        },
        volume.step(Step::Stage)
    );
    fixture.must("stage", async { staged }).await;
    let rest = [Step::Publish, Step::Unpublish, Step::Unstage, Step::Detach];
    fixture.take(&mut volume, &rest).await;
    check_rights(&fixture, false).await;
    check_auditor(&fixture);
    fixture.must("delete", fixture.co.delete(&volume.volume().unwrap().id)).await;
    fixture.finish().await;
}

async fn check_rights(fixture: &Fixture, tool_runs: bool) {
    // The program reads the filters of each thread, too.
    let helper = fixture.world.nodes[0].helper.pid().expect("the helper runs").to_string();
    let (status, output) = auditor(&["audit", "--tree", &helper, "--policy", "sandbox"]);
    assert_eq!(status, Some(0), "{output}");
    assert!(!tool_runs || output.contains(" tool "), "{output}");
    let seen = audit::survey(&fixture.world).expect("every process runs");
    println!("{}", audit::table(&seen));
    let of_tool = if tool_runs { &[profile::RUNNER, profile::TOOL][..] } else { &[] };
    for wanted in audit::ALWAYS_RUNNING.iter().chain(of_tool) {
        let is_seen = seen.iter().any(|process| process.profile.name == wanted.name);
        assert!(is_seen, "no {} was seen", wanted.name);
    }
    for process in &seen {
        let what = format!("{} of {}", process.profile.name, process.place);
        assert!(process.deviations.is_empty(), "{what}: {}", process.deviations.join(", "));
        // A process that starts as root drops what it does not need, too.
        let held = process.profile.capabilities.iter().map(|held| held.capability.bit());
        let bounding = process.process.status.bounding;
        assert_eq!(bounding & !held.sum::<u64>(), 0, "{what}: {bounding:#x}");
        if process.profile.name == profile::CONTROLLER.name {
            continue;
        }
        let environment = std::fs::read(format!("/proc/{}/environ", process.process.pid));
        let environment = String::from_utf8_lossy(&environment.unwrap_or_default()).into_owned();
        let aws =
            "AWS_ACCESS AWS_SECRET AWS_SESSION AWS_WEB_IDENTITY AWS_ROLE AWS_CONTAINER AWS_PROFILE";
        for secret in aws.split(' ').chain(["KUBERNETES_", "AKIA"]) {
            assert!(!environment.contains(secret), "{what} was given {secret}");
        }
    }
}

/// Runs the auditor. Returns its exit status and its output.
fn auditor(arguments: &[&str]) -> (Option<i32>, String) {
    let program = for_test(&["ebs-csi-policy"]).expect("the auditor").path("ebs-csi-policy");
    let ended = program::run(program::bare(&program.expect("the auditor"), arguments, &[]));
    (ended.status, ended.stdout + &ended.stderr)
}

/// The auditor distinguishes the profiles, and reports `--sandbox`, with which the helper runs.
fn check_auditor(fixture: &Fixture) {
    let node = &fixture.world.nodes[0];
    let [controller, agent, helper] = [&fixture.world.controller, &node.agent, &node.helper]
        .map(|process| process.pid().expect("it runs").to_string());
    for (arguments, expected, word) in [
        (&["--pid", &controller, "--as", "controller"][..], 0, ""),
        (&["--pid", &agent, "--as", "node-agent"], 0, ""),
        (&["--tree", &helper], 1, "sandbox"),
        (&["--pid", &helper, "--as", "node-agent"], 1, ""),
        (&["--pid", &controller, "--as", "tool"], 1, ""),
    ] {
        let (status, output) = auditor(&[&["audit"], arguments].concat());
        assert_eq!(status, Some(expected), "{arguments:?}: {output}");
        assert!(output.contains(word), "{arguments:?}: {output}");
    }
}

/// Returns the differences of the launcher's processes from the policy.
fn deviations_in_mode_all(launcher: i32) -> Vec<String> {
    let tree = match Process::tree(u32::try_from(launcher).unwrap()) {
        Ok(tree) => tree,
        Err(error) => return vec![error.to_string()],
    };
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for process in &tree {
        let Some(profile) = process.expected(&tree) else {
            found.push(format!("{} has no profile", process.program));
            continue;
        };
        seen.push(profile.name);
        // The helper was started with `--sandbox`.
        let deviations = process.deviations(profile, SANDBOX);
        found.extend(deviations.iter().map(|what| format!("{}: {what}", profile.name)));
        let may_mount = process.status.bounding & SYS_ADMIN != 0;
        if may_mount != (profile.name == profile::BROKER.name) {
            found.push(format!(
                "{} has CAP_SYS_ADMIN in its bounding set: {may_mount}",
                profile.name
            ));
        }
    }
    seen.sort_unstable();
    let mut needed = [
        "launcher",
        "router",
        "controller",
        "node-agent",
        "supervisor",
        "broker",
        "directories",
        "opener",
    ];
    needed.sort_unstable();
    if seen != needed {
        found.push(format!("{seen:?} run instead of {needed:?}"));
    }
    found
}

#[tokio::test]
async fn single_socket_serves_all_services_without_privilege_gain() {
    if for_test(&["aws-ebs-csi-driver"]).is_none() {
        return;
    }
    let Some(mut fixture) = Fixture::start().await else { return };
    fixture.start_all(&[]).await;
    let info = fixture.must("NodeGetInfo", fixture.kubelets[0].info()).await;
    assert_eq!(info.node_id, fixture.instance(0));
    let (volume, attachment) = fixture.attached(&Claim::filesystem("pvc-1", "ext4", 1)).await;
    let published = fixture.published(&volume, &attachment, "pod").await;
    pod_view::write(&published, "pvc-1").unwrap();
    let launcher = fixture.world.launcher.as_ref().and_then(|launcher| launcher.pid()).unwrap();
    let mut deviations = deviations_in_mode_all(launcher);
    for _ in 0..2_000 {
        if deviations.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        deviations = deviations_in_mode_all(launcher);
    }
    assert_eq!(deviations, Vec::<String>::new());
    fixture.discard(&volume, &["pod"]).await;
    fixture.finish().await;
}
