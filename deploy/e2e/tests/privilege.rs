//! Compares the rights of the live processes, as the kernel reports them, with the table of
//! `policy/README.md`.

use std::path::Path;

use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep as Step, program, tool_at_work};
use ebs_csi_policy::profile;
use ebs_csi_sandbox::audit;
use ebs_csi_sandbox::binaries::for_test;
use ebs_csi_sandbox::co::Claim;

fn environment(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn each_process_has_exactly_its_documented_rights() {
    let Some(fixture) = Fixture::start().await else { return };
    let mut volume = Lifecycle::new(&fixture, Claim::filesystem("pvc-privilege", "ext4", 10));
    fixture.take(&mut volume, Step::up_to(Step::Attach)).await;
    // The runner and the tool are checked while a disk is formatted.
    let ((), staged) = tokio::join!(
        async {
            let tool = tool_at_work::catch(&fixture.world.nodes[0]).await;
            check_rights(&fixture, true).await;
            drop(tool);
        },
        volume.step(Step::Stage)
    );
    fixture.must("stage", async { staged }).await;
    let rest = [Step::Publish, Step::Unpublish, Step::Unstage, Step::Detach];
    fixture.take(&mut volume, &rest).await;
    check_rights(&fixture, false).await;
    fixture.must("delete", fixture.co.delete(&volume.volume().unwrap().id)).await;
    fixture.finish().await;
}

async fn check_rights(fixture: &Fixture, tool_runs: bool) {
    // The program reads the filters of each thread, too.
    let program = for_test(&["ebs-csi-policy"]).expect("the auditor").path("ebs-csi-policy");
    let helper = fixture.world.nodes[0].helper.pid().expect("the helper runs").to_string();
    let arguments = ["audit", "--tree", &helper, "--policy", "sandbox"];
    let (status, output) = auditor(&program.expect("the auditor"), &arguments);
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
        let environment = environment(process.process.pid);
        for secret in [
            "AWS_ACCESS",
            "AWS_SECRET",
            "AWS_SESSION",
            "AWS_WEB_IDENTITY",
            "AWS_ROLE",
            "AWS_CONTAINER",
            "AWS_PROFILE",
            "KUBERNETES_",
            "AKIA",
        ] {
            assert!(!environment.contains(secret), "{what} was given {secret}");
        }
    }
}

/// Runs the auditor. Returns its exit status and its output.
fn auditor(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = program::run(program::bare(program, arguments, &[]));
    (ended.status, ended.stdout + &ended.stderr)
}

#[tokio::test]
async fn auditor_reports_sandbox_flag_and_wrong_profiles() {
    let Some(binaries) = for_test(&["ebs-csi-policy"]) else { return };
    let program = binaries.path("ebs-csi-policy").unwrap();
    let Some(fixture) = Fixture::start().await else { return };
    let controller = fixture.world.controller.pid().unwrap().to_string();
    let agent = fixture.world.nodes[0].agent.pid().unwrap().to_string();
    let helper = fixture.world.nodes[0].helper.pid().unwrap().to_string();
    for (pid, profile) in [(&controller, "controller"), (&agent, "node-agent")] {
        let (status, output) = auditor(&program, &["audit", "--pid", pid, "--as", profile]);
        println!("{output}");
        assert_eq!(status, Some(0), "{profile}: {output}");
    }
    // The helper was started with --sandbox, which the auditor must report.
    let (status, output) = auditor(&program, &["audit", "--tree", &helper]);
    println!("{output}");
    assert_eq!(status, Some(1), "{output}");
    assert!(output.contains("sandbox"), "{output}");
    // The auditor also distinguishes the profiles.
    let (status, output) = auditor(&program, &["audit", "--pid", &helper, "--as", "node-agent"]);
    assert_eq!(status, Some(1), "{output}");
    let (status, output) = auditor(&program, &["audit", "--pid", &controller, "--as", "tool"]);
    assert_eq!(status, Some(1), "{output}");
    fixture.finish().await;
}
